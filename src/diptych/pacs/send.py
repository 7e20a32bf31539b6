"""`send_study`: give what was found in a study back to the PACS it came from, once.

    which study? → what is there already? → findings on the scanner's grid → headers of the PACS → DICOM → store → note

UIDs are made with the vault's key from the study, what was taken in, the model and a revision: sending again asks the
server which of them it has and stores the others only, after whatever happened in between. Only here, and for the
viewer's address, is the way back read. Knows remotes, ledger and vault; what is written is in `dicom_results.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from diptych.errors import InputError, UsageError
from diptych.files import replacing
from diptych.intake.dicom_files import lenient
from diptych.intake.intake_record import SeriesRecord
from diptych.pacs.dicom_results import KINDS, make_capture, make_segmentation, make_twin, sorted_source
from diptych.pacs.incoming import work_folders
from diptych.pacs.ledger import FILE, Ledger, StudyRow
from diptych.pacs.measurement_report import make_report
from diptych.pacs.remote import Remote, connect
from diptych.pacs.servers import PacsConfig, Server
from diptych.pacs.study_findings import find_in_study, intake_of
from diptych.pacs.vault import Original, Vault
from diptych.progress import Progress, silent
from diptych.retrieval import Archive
from diptych.volumes.layout import one_line

STEPS = ("looking what is there", "decoding and searching", "reading headers", "writing", "storing")


@dataclass(frozen=True)
class Sent:
    """What became of a study's results."""

    volume_key: str
    server: str
    stored: tuple[str, ...]
    """Kinds of which something was stored now."""
    there: tuple[str, ...]
    """Kinds that were there already."""
    instances: int
    """Images and documents stored now."""
    left: tuple[str, ...] = ()
    """Kinds that there is nothing to write of: a segmentation where no lesion is predicted."""


@dataclass(frozen=True, eq=False)
class Desk:
    """Where studies of an archive came from and how results go back."""

    archive: Path
    config: PacsConfig
    ledger: Ledger
    vault: Vault

    @classmethod
    def open(cls, archive: Path, config: PacsConfig) -> Desk:
        """The desk of an archive that studies came to."""
        folder = work_folders(archive)[0]
        if not (folder / FILE).is_file():
            raise UsageError(
                f"{one_line(archive)}: no study ever came to it from a PACS; use diptych pacs fetch, watch or listen"
            )
        return cls(archive, config, Ledger(folder), Vault(config.vault))

    def row(self, study: str) -> StudyRow:
        """A study by its key in the archive, its pseudonym, or the hospital's StudyInstanceUID."""
        found = (
            self.ledger.study_of(study)
            or self.ledger.study(study)
            or self.ledger.study(self.vault.pseudonyms.study(study))
        )
        if found is None:
            raise UsageError(f"study {one_line(study)[:80]!r}: never came from a PACS; diptych pacs status lists those")
        if found.state != "done":
            raise InputError(f"study {found.study}: is not in the archive ({found.reason or found.state})")
        return found

    def server(self, original: Original, to: str | None = None) -> Server:
        """The server that results of a study go to: the one named, that it came from, or that of [listen]."""
        name = to or (original.server if original.server in self.config.servers else self.config.listen.server)
        if name is None:
            raise UsageError(
                "the study was sent to us by a scanner; name the server for results, as --to or in [listen]"
            )
        return self.config.server(name)


def send_study(
    desk: Desk,
    study: str,
    *,
    to: str | None = None,
    what: Sequence[str] = KINDS,
    on: str = "",
    again: bool = False,
    out: Path | None = None,
    archive: Archive | None = None,
    remote: Remote | None = None,
    progress: Progress = silent,
) -> Sent:
    """Write a study's results as DICOM and store them; what the server has already is left as it is.

    Args:
        desk: The archive's.
        study: Its key in the archive, its pseudonym, or the hospital's StudyInstanceUID.
        to: Another server than the one it came from.
        what: Some of `KINDS`.
        on: Channel whose series the results lie on.
        again: Send once more as a new revision, such as when the archive has grown.
        out: Write files into this folder instead of storing; they name the patient.
        archive: Opened already; for a service.
        remote: Connected already.
        progress: Told after each step.
    """
    if unknown := sorted(set(what) - set(KINDS)):
        raise UsageError(f"--what {one_line(unknown[0])[:40]}: is not known; choose of {', '.join(KINDS)}")
    row = desk.row(study)
    original = desk.vault.original(row.study)
    remote = remote or connect(desk.server(original, to))
    opened = archive or Archive.open(desk.archive)
    taken = intake_of(work_folders(desk.archive)[1] / row.volume_key)
    series = taken.find(on or taken.reference)
    uid = _namer(desk, opened, row, (original.study_uid, series.channel), again=again and out is None)
    progress(0, len(STEPS), STEPS[0])
    there = _there(remote, original.study_uid, uid) if out is None else {}
    wanted = [kind for kind in KINDS if kind in what and not _whole(kind, there, series)]
    kept = tuple(kind for kind in KINDS if kind in what and kind not in wanted)
    if not wanted:
        return Sent(row.volume_key, remote.server.name, (), kept, 0)
    made = _made(desk, opened, row, remote, original, uid, wanted, series.channel, progress)
    progress(4, len(STEPS), STEPS[4])
    left = tuple(kind for kind in wanted if not made[kind])
    fresh = {kind: [one for one in made[kind] if str(one.SOPInstanceUID) not in there.get(kind, ())] for kind in wanted}
    instances = [one for some in fresh.values() for one in some]
    if out is not None:
        _write(instances, out)
    elif instances:
        remote.store(instances)
        names = {uid(kind, "series"): f"{kind}.{uid.revision}" for kind in wanted if made[kind]}
        desk.ledger.note_sent(names, row.study, remote.server.name)
    return Sent(
        row.volume_key, remote.server.name, tuple(kind for kind in wanted if fresh[kind]), kept, len(instances), left
    )


class _Namer:
    """Makes UIDs of what is sent for one study."""

    def __init__(self, make: Callable[[str], str], base: str, revision: int) -> None:
        self._make = make
        self._base = base
        self.revision = revision

    def __call__(self, *parts: object) -> str:
        return self._make("\0".join(("sent", self._base, str(self.revision), *map(str, parts))))


def _namer(desk: Desk, archive: Archive, row: StudyRow, names: tuple[str, ...], *, again: bool) -> _Namer:
    info = archive.store.record(row.volume_key).info
    revisions = [int(kind.rpartition(".")[2]) for kind in desk.ledger.sent(row.study).values()]
    revision = max(revisions, default=1) + (1 if again and revisions else 0)
    base = "\0".join((*names, row.fingerprint, info.input_digest, archive.network.fingerprint))
    return _Namer(desk.vault.pseudonyms.uid, base, revision)


def _there(remote: Remote, study_uid: str, uid: _Namer) -> dict[str, set[str]]:
    """SOPInstanceUIDs of ours that the server has, by kind."""
    listed = {one.uid for one in remote.series(study_uid)}
    found = {kind: uid(kind, "series") for kind in KINDS}
    return {kind: set(remote.instances(study_uid, one)) for kind, one in found.items() if one in listed}


def _whole(kind: str, there: dict[str, set[str]], series: SeriesRecord) -> bool:
    """Whether nothing of a kind is left to send; a twin has an image for each slice, of which some may be missing."""
    return len(there.get(kind, ())) >= (series.shape[2] if kind == "twin" else 1)


def _made(
    desk: Desk,
    archive: Archive,
    row: StudyRow,
    remote: Remote,
    original: Original,
    uid: _Namer,
    wanted: Sequence[str],
    on: str,
    progress: Progress,
) -> dict[str, list[Any]]:
    """The DICOM objects of each kind; none of a kind that there is nothing to say of."""
    progress(1, len(STEPS), STEPS[1])
    findings = find_in_study(archive, row.volume_key, work_folders(desk.archive)[1], on=on)
    progress(2, len(STEPS), STEPS[2])
    series = desk.ledger.series_of(row.study).get(findings.series.key)
    if series is None:
        raise InputError(f"{row.volume_key}: the ledger does not know its series; diptych pacs fetch --again")
    source = sorted_source(remote.headers(original.study_uid, desk.vault.series_uid(series)), findings, uid)
    progress(3, len(STEPS), STEPS[3])
    made: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    segmentation = make_segmentation(findings, source) if {"seg", "sr"} & set(wanted) else None
    if segmentation is not None and "seg" in wanted:
        made["seg"] = [segmentation]
    if "sr" in wanted:
        made["sr"] = [make_report(findings, source, segmentation)]
    if "twin" in wanted:
        made["twin"] = make_twin(findings, source)
    if "capture" in wanted:
        made["capture"] = [make_capture(findings, source)]
    return made


def _write(instances: Sequence[Any], out: Path) -> None:
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number, one in enumerate(instances, start=1):
        with replacing(out / f"{one.Modality}-{number:04d}.dcm", private=True) as part, lenient():
            one.save_as(part, enforce_file_format=True)


def viewer_address(desk: Desk, study: str) -> str | None:
    """Where the hospital's viewer shows a study; None where none is configured."""
    original = desk.vault.original(desk.row(study).study)
    viewer = desk.server(original).viewer
    return None if viewer is None else viewer.replace("{study}", quote(original.study_uid, safe="."))
