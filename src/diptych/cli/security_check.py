"""What `diptych doctor --security` looks at: who can read an archive, who may use it, and whether everything is whole.

Changes nothing. Each finding is one line: what, and the way out.
"""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from diptych.errors import DiptychError

PRIVATE = ("archive.sqlite", "users.json", "date-shift.key", "audit", "volumes")
SOON = timedelta(days=7)


def security_findings(archive: Path) -> list[str]:
    """Everything that should be put right before others use this archive."""
    from diptych.archive.archive_store import require_archive

    require_archive(archive)
    return [*_rights(archive), *_users(archive), *_audit(archive), *_content(archive), *_weights()]


def _rights(archive: Path) -> list[str]:
    found = []
    for path in (archive, *(archive / name for name in PRIVATE)):
        if path.is_symlink():
            found.append(f"{path}: is a link, which may lead anywhere; put the file itself there")
        elif path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            mode = stat.S_IMODE(path.stat().st_mode)
            found.append(f"{path}: others of this machine may read it (mode {mode:o}); run chmod go-rwx on it")
    return found


def _users(archive: Path) -> list[str]:
    from diptych.server.users import Users

    try:
        users = Users.of_archive(archive).all()
    except DiptychError as error:
        return [str(error)]
    now, found = datetime.now(UTC), []
    for user in users.values():
        if not user.tokens:
            found.append(f"user {user.name}: has no token; revoke the user, or add a token")
        for token in user.tokens:
            if token.expires is None:
                found.append(f"user {user.name}: token {token.id} never expires; revoke it and add one that does")
            elif token.over(now):
                found.append(f"user {user.name}: token {token.id} has expired; revoke it")
            elif token.over(now + SOON):
                found.append(f"user {user.name}: token {token.id} expires within a week; add another in time")
    return found


def _audit(archive: Path) -> list[str]:
    from diptych.archive.audit import AuditLog

    return [f"audit log: {problem}" for problem in AuditLog(archive).verify().problems]


def _content(archive: Path) -> list[str]:
    from diptych.archive import ArchiveStore
    from diptych.archive.pseudonyms import is_research_id

    try:
        listing = ArchiveStore.open(archive).listing()
    except DiptychError as error:
        return [str(error)]
    odd = [info.volume_key for info in listing.volumes if not is_research_id(info.volume_key)]
    named = [f"{len(odd)} keys may be names of patients; remove these volumes and index them again"] if odd else []
    return [*listing.problems, *named]


def _weights() -> list[str]:
    """Shipped models whose files do not match their fingerprint or checksums."""
    from diptych.metrics.label_decoders import LabelDecoders
    from diptych.model import load_model
    from diptych.model.shipped import shipped_models

    found = []
    for folder in shipped_models().values():
        try:
            LabelDecoders.open(folder, load_model(folder))
        except DiptychError as error:
            found.append(str(error))
    return found
