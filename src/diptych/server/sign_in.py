"""`SignIn`: from what a request carries to who is asking: a token, a session's cookie, or a proxy's word.

Knows secrets, sessions and how often somebody was wrong; nothing about routes. The rules, each with its reason:

- A session is a random number that the browser keeps and the service hashes; signing out or revoking the token ends it.
- A link that `diptych serve` prints works once: whoever sees it later finds it used up.
- Wrong secrets are counted by client. A client that was wrong too often waits, also with a right token that a person
  chose, so that guessing is slow; what we made ourselves has 256 bits, cannot be guessed, and is always let in.
- A proxy's headers are believed only from an address that was declared to be one.
- A Unix socket can be opened by its owner only: whoever comes through it is the owner, unless a proxy passed them on.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from threading import Lock

from starlette.datastructures import Headers

from diptych.server.problems import Problem
from diptych.server.settings import ServerSettings
from diptych.server.users import ANYONE, NAME, ROLES, Identity, Users

COOKIE = "diptych_session"
TRIES, TRY_SECONDS = 20, 60.0
"""Wrong secrets of one client in a minute before it is told to wait."""
CLIENTS = 4096
"""Clients whose wrong secrets are counted."""
SESSIONS = 4096
LINK_SECONDS = 3600.0
TOUCH_SECONDS = 1.0
GROUP = "diptych-"
"""How a proxy's groups that are roles begin, such as `diptych-search`."""

FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-user", "x-forwarded-host", "x-real-ip")
"""Headers of requests that somebody else sent first."""

OWNER = Identity("owner", frozenset(ROLES))
"""Whoever started the service: the link on the terminal is theirs."""
NOBODY = Identity("", frozenset())
"""Who asks before that is known."""
TOKEN_HOLDER = Identity("token", frozenset(ROLES))

WHO: ContextVar[Identity] = ContextVar("who", default=ANYONE)
"""Who asks, in whatever thread works on the request."""


@dataclass(frozen=True)
class Session:
    """A browser that was let in."""

    identity: Identity
    token_id: str | None
    """The user's token it was opened with; once that is revoked, the session is over."""
    used: float


class SignIn:
    """Everything that opens the door; safe to use from many threads."""

    def __init__(
        self, settings: ServerSettings, users: Users | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.settings = settings
        self.users = users
        self.tries = Tries(clock)
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._links: dict[str, float] = {}
        self._lock = Lock()
        self.link_used: Callable[[], None] = lambda: None
        """Told when a link was used, so that the next one can be printed."""

    @property
    def needed(self) -> bool:
        return self.settings.sign_in

    def identify(self, headers: Headers, client: str) -> Identity | None:
        """Who asks; None for a stranger. A client that guesses is a 429."""
        if not self.needed:
            return ANYONE
        if (named := self._proxied(headers, client)) is not None:
            return named
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._admit(given.strip(), self.address(headers, client))[0]
        if self.settings.socket is not None and not any(name in headers for name in FORWARDED):
            return OWNER
        return self._session(session_cookie(headers))

    def open_session(self, secret: str, headers: Headers, client: str) -> tuple[str, Identity]:
        """Exchange a token or a link's key for a session: the cookie's value, and who it is."""
        identity, token_id = self._admit(secret, self.address(headers, client), link=True)
        if identity is None:
            raise Problem(401, "this is not a token of this service, or the link was used before")
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[_hashed(cookie)] = Session(identity, token_id, self._clock())
            while len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
        return cookie, identity

    def close_session(self, headers: Headers) -> None:
        """End the session; its cookie opens nothing any more, whoever kept a copy."""
        with self._lock:
            self._sessions.pop(_hashed(session_cookie(headers)), None)

    def link_key(self) -> str:
        """A key that signs one browser in, once."""
        key = secrets.token_urlsafe(32)
        with self._lock:
            now = self._clock()
            self._links = {known: made for known, made in self._links.items() if now - made < LINK_SECONDS}
            self._links[_hashed(key)] = now
        return key

    def address(self, headers: Headers, client: str) -> str:
        """Who is counted: the client itself, or the one that a declared proxy names."""
        forwarded = headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return forwarded if forwarded and self._is_proxy(client) else client

    def is_secure(self, headers: Headers, client: str, scheme: str) -> bool:
        """Whether the client came by TLS, to us or to a declared proxy."""
        return scheme == "https" or (self._is_proxy(client) and headers.get("x-forwarded-proto") == "https")

    def _admit(self, secret: str, client: str, *, link: bool = False) -> tuple[Identity | None, str | None]:
        """Whose secret this is. Only what a person chose can be guessed, and so is refused to a client that guesses."""
        if link and self._take_link(secret):
            return OWNER, None
        if self.users is not None and (found := self.users.identify(secret)) is not None:
            return found
        if not self.tries.allowed(client):
            raise Problem(429, "too many wrong tokens from your address; wait a minute")
        if self.settings.token is not None and same_secret(secret, self.settings.token):
            return TOKEN_HOLDER, None
        self.tries.count(client)
        return None, None

    def _take_link(self, key: str) -> bool:
        with self._lock:
            made = self._links.pop(_hashed(key), None)
        good = made is not None and self._clock() - made < LINK_SECONDS
        if good:
            self.link_used()
        return good

    def _session(self, cookie: str) -> Identity | None:
        if not cookie:
            return None
        key, now = _hashed(cookie), self._clock()
        with self._lock:
            session = self._sessions.get(key)
            if session is None or now - session.used > self.settings.session_seconds:
                self._sessions.pop(key, None)
                return None
            if now - session.used > TOUCH_SECONDS:
                self._sessions[key] = replace(session, used=now)
                self._sessions.move_to_end(key)
        if session.token_id is None:
            return session.identity
        return None if self.users is None else self.users.holder(session.token_id)

    def _proxied(self, headers: Headers, client: str) -> Identity | None:
        """The user that a declared proxy has checked; its groups are the roles."""
        name = headers.get("x-forwarded-user", "")
        if not name or not self._is_proxy(client):
            return None
        groups = {group.strip() for group in headers.get("x-forwarded-groups", "").split(",")}
        return Identity(_safe_name(name), frozenset(role for role in ROLES if f"{GROUP}{role}" in groups))

    def _is_proxy(self, client: str) -> bool:
        try:
            address = ipaddress.ip_address(client)
            return any(address in ipaddress.ip_network(proxy) for proxy in self.settings.proxies)
        except ValueError:
            return False


class Tries:
    """Counts wrong secrets by client, so that guessing is slow for whoever guesses and for nobody else."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = Lock()

    def count(self, client: str) -> None:
        with self._lock:
            self._times.setdefault(client, deque(maxlen=TRIES)).append(self._clock())
            self._times.move_to_end(client)
            while len(self._times) > CLIENTS:
                self._times.popitem(last=False)

    def allowed(self, client: str) -> bool:
        """Whether this client may be wrong once more."""
        with self._lock:
            times = self._times.get(client)
            return times is None or len(times) < TRIES or self._clock() - times[0] > TRY_SECONDS


def same_secret(given: str, wanted: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def session_cookie(headers: Headers) -> str:
    """The session that a browser names, if any."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _hashed(secret: str) -> str:
    """What is kept of a session or link: a copy of the memory opens nothing."""
    return sha256(secret.encode(errors="replace")).hexdigest()


def _safe_name(name: str) -> str:
    """A proxy's name for a user as it may stand in logs."""
    return name if re.fullmatch(NAME, name) else f"user-{_hashed(name)[:12]}"
