"""`Guards`: what every request passes on its way in and out: the host it names, where it comes from, its token, its
size; headers that keep browsers strict, and one line in the log.

Knows ASGI and nothing about routes but where they begin. The rules, each with its reason:

- On loopback the Host header must name this machine: a web page whose name was rebound to 127.0.0.1 does not.
- A request that changes something must not come from another origin.
- With a token, the API is closed without it; health, the API's own page and the viewer's files hold no patient data.
- A body is counted while it arrives; what its Content-Length promises is believed only when it is too much.
- The log has method, path, status and time: no query, no body, no name of a file.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections import deque
from hashlib import blake2b
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diptych.server.problems import problem_response
from diptych.server.settings import ServerSettings
from diptych.volumes.layout import one_line

API = "/api/v1"
COOKIE = "diptych_session"
OPEN = (f"{API}/health", f"{API}/session", f"{API}/docs", f"{API}/openapi.json")
"""Parts of the API that need no token."""
SAFE = ("GET", "HEAD", "OPTIONS")
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
TRIES, TRY_SECONDS = 20, 60.0
"""Wrong tokens in a minute before all wrong ones are told to wait."""

CLOSED = "default-src 'none'; frame-ancestors 'none'"
PAGE = (
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' blob: data:; connect-src 'self' blob: data:; worker-src 'self' blob:; font-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The viewer compiles WebAssembly and runs workers from blobs; nothing comes from anywhere else."""
DOCUMENT = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
log = logging.getLogger("diptych.server")


class Guards:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self.settings = settings
        self.tries = Tries()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(scope["path"], MutableHeaders(scope=message))
            await send(message)

        try:
            refusal = self._refuse(scope)
            if refusal is not None:
                await refusal(scope, receive, guarded_send)
            else:
                await self.app(scope, self._counted(scope, receive), guarded_send)
        except Exception:
            log.exception("unexpected failure")
            if status:
                raise
            failed = problem_response(500, "internal", "the service failed unexpectedly; its log tells more")
            await failed(scope, receive, guarded_send)
        finally:
            took = (time.perf_counter() - started) * 1000
            log.info("%s %s %s %.0f ms", scope["method"], one_line(scope["path"])[:200], status, took)

    def _refuse(self, scope: Scope) -> Response | None:
        """The first rule that a request breaks."""
        headers = Headers(scope=scope)
        if self.settings.local and _host_name(headers.get("host", "")) not in LOCAL_NAMES:
            return problem_response(403, "wrong_host", "this service answers to localhost and 127.0.0.1 only")
        if scope["method"] not in SAFE and not _same_origin(headers):
            return problem_response(403, "wrong_origin", "requests that change something must come from this service")
        if self.settings.token is not None and _needs_token(scope["path"]) and not self._knows_token(headers):
            return self._ask_for_token()
        limit = self._limit(scope["path"])
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > limit:
            return problem_response(413, "too_large", f"the request is larger than {limit} bytes")
        return None

    def _knows_token(self, headers: Headers) -> bool:
        assert self.settings.token is not None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return same_secret(given.strip(), self.settings.token)
        return same_secret(_cookie(headers), cookie_value(self.settings.token))

    def _ask_for_token(self) -> Response:
        if not self.tries.allowed():
            return problem_response(429, "too_many", "too many requests without the token; wait a minute")
        self.tries.count()
        return problem_response(
            401, "token_needed", "this service needs its token", headers={"WWW-Authenticate": "Bearer"}
        )

    def _limit(self, path: str) -> int:
        return self.settings.max_upload if path == f"{API}/uploads" else self.settings.max_body

    def _counted(self, scope: Scope, receive: Receive) -> Receive:
        """Stop reading a body that goes on for too long."""
        limit, seen = self._limit(scope["path"]), 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise HTTPException(413, f"the request is larger than {limit} bytes")
            return message

        return counted

    def _add_headers(self, path: str, headers: MutableHeaders) -> None:
        for name, value in HEADERS.items():
            headers[name] = value
        if path == f"{API}/docs":
            headers["Content-Security-Policy"] = DOCUMENT
        elif path.startswith("/api/"):
            headers["Content-Security-Policy"] = CLOSED
            headers.setdefault("Cache-Control", "no-store")
        else:
            headers["Content-Security-Policy"] = PAGE
            headers.setdefault("Cache-Control", "no-cache")


class Tries:
    """Counts wrong tokens, so that guessing is slow."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=TRIES)

    def count(self) -> None:
        self._times.append(time.monotonic())

    def allowed(self) -> bool:
        """Whether one more may be wrong."""
        return len(self._times) < TRIES or time.monotonic() - self._times[0] > TRY_SECONDS


def cookie_value(token: str) -> str:
    """What the browser keeps: proves the token, and does not tell it."""
    return blake2b(b"diptych session", key=token.encode()[:64], digest_size=32).hexdigest()


def same_secret(given: str, wanted: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def _needs_token(path: str) -> bool:
    return path.startswith("/api") and path not in OPEN


def _cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _host_name(host: str) -> str:
    """The name in a Host header, its port left aside.

    >>> _host_name("localhost:8765"), _host_name("[::1]:8765"), _host_name("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _same_origin(headers: Headers) -> bool:
    """Whether a request comes from our own page, or from no page at all."""
    origin = headers.get("origin")
    if origin is not None:
        return urlsplit(origin).netloc == headers.get("host") if origin.isascii() else False
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")
