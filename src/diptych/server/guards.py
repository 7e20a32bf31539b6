"""`Guards`: what every request passes on its way in and out: the host it names, where it comes from, its token, its
size; headers that keep browsers strict, and one line in the log.

Knows ASGI and nothing about routes but where they begin. The rules, each with its reason:

- On loopback the Host header must name this machine: a web page whose name was rebound to 127.0.0.1 does not.
- A request that changes something must not come from another origin.
- The API is closed to strangers (`sign_in.py`); health, the API's own page and the viewer's files hold no patient data.
- A body is counted while it arrives; what its Content-Length promises is believed only when it is too much.
- A body has a time limit that grows with what has come, so that slow senders hold nothing for long.
- What was answered goes to `observation.py`: the log has method, route, status and time, no key, query, body or name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import ContextVar
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diptych.server.observation import TOUCHED, Observation
from diptych.server.problems import Problem, problem_response
from diptych.server.settings import ServerSettings
from diptych.server.sign_in import NOBODY, WHO, SignIn

API = "/api/v1"
PREFIX: ContextVar[str] = ContextVar("prefix", default="")
"""What stands before the API in the addresses of one of several archives (`side_by_side.py`)."""
OPEN = (f"{API}/health", f"{API}/docs", f"{API}/openapi.json")
"""Parts of the API for everybody."""
SESSION = f"{API}/session"
"""Everybody may come here to sign in or out; only who is in may ask who they are."""
WATCHED = ("/health", "/ready", "/metrics")
SAFE = ("GET", "HEAD", "OPTIONS")
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
HSTS = "max-age=31536000; includeSubDomains"

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

    def __init__(self, app: ASGIApp, settings: ServerSettings, sign_in: SignIn, observation: Observation) -> None:
        self.app = app
        self.settings = settings
        self.sign_in = sign_in
        self.observation = observation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        TOUCHED.set(set())
        WHO.set(NOBODY)

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(scope, MutableHeaders(scope=message))
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
            took = time.perf_counter() - started
            client = self.sign_in.address(Headers(scope=scope), (scope.get("client") or ("", 0))[0])
            who = scope.get("state", {}).get("who") or WHO.get().name
            self.observation.finished(scope, status=status, seconds=took, who=who, client=client)

    def _refuse(self, scope: Scope) -> Response | None:
        """The first rule that a request breaks."""
        headers = Headers(scope=scope)
        if self.settings.local and _host_name(headers.get("host", "")) not in LOCAL_NAMES:
            return problem_response(403, "wrong_host", "this service answers to localhost and 127.0.0.1 only")
        if scope["method"] not in SAFE and not _same_origin(headers):
            return problem_response(403, "wrong_origin", "requests that change something must come from this service")
        if (stranger := self._stranger(scope, headers)) is not None:
            return stranger
        limit = self._limit(scope["path"])
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > limit:
            return problem_response(413, "too_large", f"the request is larger than {limit} bytes")
        return None

    def _stranger(self, scope: Scope, headers: Headers) -> Response | None:
        """Find out who asks, for everything behind; refuse who is unknown where only users may come."""
        closed = _is_closed(scope["method"], scope["path"])
        try:
            who = self.sign_in.identify(headers, (scope.get("client") or ("", 0))[0]) if closed else None
        except Problem as problem:
            return problem_response(problem.status, problem.code, str(problem), headers={"Retry-After": "60"})
        if who is not None:
            WHO.set(who)
        elif closed:
            words = "this service needs to know who asks: sign in, or send a token"
            return problem_response(401, "token_needed", words, headers={"WWW-Authenticate": "Bearer"})
        return None

    def _limit(self, path: str) -> int:
        uploading = path == f"{API}/uploads" or (path.startswith(f"{API}/uploads/") and path.endswith("/files"))
        return self.settings.max_upload if uploading else self.settings.max_body

    def _counted(self, scope: Scope, receive: Receive) -> Receive:
        """Stop reading a body that is too large, or takes too long."""
        limit, seen, whole = self._limit(scope["path"]), 0, False
        loop = asyncio.get_running_loop()
        started = loop.time()

        async def counted() -> Message:
            nonlocal seen, whole
            if whole:  # now it is only asked whether the client is still there
                return await receive()
            try:
                due = started + self.settings.body_seconds + seen / self.settings.body_rate
                async with asyncio.timeout_at(due):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "the request's body came too slowly; send it again") from None
            seen += len(message.get("body", b""))
            whole = message["type"] != "http.request" or not message.get("more_body", False)
            if seen > limit:
                raise HTTPException(413, f"the request is larger than {limit} bytes")
            return message

        return counted

    def _add_headers(self, scope: Scope, headers: MutableHeaders) -> None:
        path = scope["path"]
        for name, value in HEADERS.items():
            headers[name] = value
        if scope["scheme"] == "https":
            headers["Strict-Transport-Security"] = HSTS
        if path == f"{API}/docs":
            headers["Content-Security-Policy"] = DOCUMENT
        elif path.startswith("/api/") or path in WATCHED:
            headers["Content-Security-Policy"] = CLOSED
            headers.setdefault("Cache-Control", "no-store")
        else:
            headers["Content-Security-Policy"] = PAGE
            headers.setdefault("Cache-Control", "no-cache")


def _is_closed(method: str, path: str) -> bool:
    """Whether only somebody who is known may come here."""
    if path == "/metrics":
        return True
    return path.startswith("/api") and path not in OPEN and not (path == SESSION and method in ("POST", "DELETE"))


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
        try:
            return origin.isascii() and urlsplit(origin).netloc == headers.get("host")
        except ValueError:  # such as an open bracket
            return False
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")
