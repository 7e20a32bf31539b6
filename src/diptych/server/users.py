"""Who may ask, and for what: users with roles and tokens, kept in one private file beside the archive.

A token is shown once, when it is made; the file keeps its SHA-256 only. Tokens are 256 random bits, so a fast hash is
enough: nobody guesses one, and nobody finds it from its hash. Knows files and time, nothing about HTTP.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

from diptych.errors import InputError, UsageError
from diptych.files import FolderLock, open_regular, parse_json, write_bytes

Role = Literal["search", "read", "upload", "curate", "send", "administer"]
"""Ask questions; see images; bring patients of one's own; change the archive; send to a PACS; everything."""
ROLES: tuple[Role, ...] = get_args(Role)
USERS = "users.json"
NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
MAX_FILE = 8 << 20
PREFIX = "diptych"


@dataclass(frozen=True)
class Identity:
    """Somebody who is known, for the length of a request."""

    name: str
    roles: frozenset[str]

    def may(self, role: str) -> bool:
        return role in self.roles or "administer" in self.roles


ANYONE = Identity("anyone", frozenset(ROLES))
"""Who asks where nobody has to sign in: tests and programs that hold the application themselves."""


@dataclass(frozen=True)
class TokenEntry:
    """What is kept of a token."""

    id: str
    sha256: str
    created: str
    expires: str | None

    def over(self, now: datetime) -> bool:
        return self.expires is not None and datetime.fromisoformat(self.expires) <= now


@dataclass(frozen=True)
class User:
    name: str
    roles: tuple[str, ...]
    tokens: tuple[TokenEntry, ...] = ()

    @property
    def identity(self) -> Identity:
        return Identity(self.name, frozenset(self.roles))


class Users:
    """The users of an archive. Changes by another process are seen at the next question."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._seen: tuple[int, int, int] | None = None
        self._users: dict[str, User] = {}

    @classmethod
    def of_archive(cls, archive: Path) -> Users:
        return cls(archive / USERS)

    def __len__(self) -> int:
        return len(self.all())

    def all(self) -> dict[str, User]:
        """Users by name; read again when the file has changed."""
        with self._lock:
            state = self._state()
            if state != self._seen:
                self._users = {} if state is None else _parse(self.path)
                self._seen = state
            return self._users

    def identify(self, token: str) -> tuple[Identity, str] | None:
        """Whose token this is, and the token's number; None when it is nobody's, has expired or was revoked."""
        entry_id = token_id(token)
        now, digest = datetime.now(UTC), sha256(token.encode(errors="replace")).hexdigest()
        for user in self.all().values():
            for entry in user.tokens:
                if entry.id == entry_id and hmac.compare_digest(entry.sha256, digest) and not entry.over(now):
                    return user.identity, entry.id
        return None

    def holder(self, entry_id: str) -> Identity | None:
        """Who has the token of this number, as long as it is good."""
        now = datetime.now(UTC)
        for user in self.all().values():
            if any(entry.id == entry_id and not entry.over(now) for entry in user.tokens):
                return user.identity
        return None

    def add(self, name: str, roles: Iterable[str], *, days: int | None) -> str:
        """Make a user, or give one other roles; the new token."""
        chosen = tuple(role for role in ROLES if role in set(roles))
        unknown = set(roles) - set(ROLES)
        if re.fullmatch(NAME, name) is None:
            raise UsageError(f"user {name!r}: a name is 1 to 64 letters, digits, dots, dashes, underscores or @")
        if unknown:
            raise UsageError(f"role {min(unknown)!r}: there are {', '.join(ROLES)}")
        token, entry = _new_token(days)
        with self._changing() as users:
            old = users.get(name, User(name, ()))
            users[name] = replace(old, roles=chosen, tokens=(*_good(old.tokens), entry))
        return token

    def revoke(self, name: str, entry_id: str | None = None) -> None:
        """Take a user out, or one token from a user; both lose at once whatever was open."""
        with self._changing() as users:
            if name not in users:
                raise UsageError(f"user {name!r}: there is none; 'diptych users list' shows all")
            kept = tuple(entry for entry in users[name].tokens if entry.id != entry_id)
            if entry_id is None:
                del users[name]
            elif len(kept) == len(users[name].tokens):
                raise UsageError(f"token {entry_id!r}: {name} has none of that number")
            else:
                users[name] = replace(users[name], tokens=kept)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, User]]:
        lock = FolderLock(self.path.with_name(f".{USERS}.lock"))
        if (holder := lock.acquire()) is not None:
            raise InputError(f"{self.path}: process {holder} is changing the users; try again")
        try:
            users = dict(self.all())
            yield users
            values = {"users": [asdict(users[name]) for name in sorted(users)]}
            write_bytes(self.path, (json.dumps(values, indent=1) + "\n").encode(), private=True)
        finally:
            lock.release()

    def _state(self) -> tuple[int, int, int] | None:
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return None
        return now.st_ino, now.st_size, now.st_mtime_ns


def token_id(token: str) -> str:
    """The number inside a token, by which it is found.

    >>> token_id("diptych_4f2a91c0_secret")
    '4f2a91c0'
    """
    parts = token.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX else ""


def _new_token(days: int | None) -> tuple[str, TokenEntry]:
    now = datetime.now(UTC).replace(microsecond=0)
    number = secrets.token_hex(4)
    token = f"{PREFIX}_{number}_{secrets.token_urlsafe(32)}"
    expires = None if days is None else (now + timedelta(days=days)).isoformat()
    return token, TokenEntry(number, sha256(token.encode()).hexdigest(), now.isoformat(), expires)


def _good(tokens: Iterable[TokenEntry]) -> tuple[TokenEntry, ...]:
    """Those that have not expired: the file does not grow for ever."""
    now = datetime.now(UTC)
    return tuple(entry for entry in tokens if not entry.over(now))


def _parse(path: Path) -> dict[str, User]:
    """Read the file; one that is damaged lets nobody in, and says so."""
    try:
        with open_regular(path) as file:
            values: Any = parse_json(file.read(MAX_FILE))
        users = [_user(one) for one in values["users"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: cannot be read as a list of users ({error}); restore a copy") from None
    return {user.name: user for user in users}


def _user(values: Any) -> User:
    tokens = tuple(TokenEntry(**entry) for entry in values["tokens"])
    for entry in tokens:
        if not all(isinstance(text, str) for text in (entry.id, entry.sha256, entry.created)):
            raise ValueError("a token that is no text")
        if entry.expires is not None and datetime.fromisoformat(entry.expires).tzinfo is None:
            raise ValueError("a time without a zone")
    roles = tuple(values["roles"])
    if re.fullmatch(NAME, values["name"]) is None or not set(roles) <= set(ROLES):
        raise ValueError("a name or a role that cannot be")
    return User(values["name"], roles, tokens)
