"""`Compression`: text goes out smaller, images and NIfTI files as they are.

ASGI middleware around the application. Knows content types and gzip; nothing of what is sent. No answer holds a secret
beside what a stranger chose, so that sizes tell nothing.
"""

from __future__ import annotations

import gzip
from functools import lru_cache

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TEXT = ("application/json", "text/", "application/javascript", "image/svg+xml")
SMALLEST = 1000
"""Bytes below which nothing is gained."""
LEVEL = 5


class Compression:
    """Packs whole text answers for browsers that take gzip."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "gzip" not in Headers(scope=scope).get("accept-encoding", ""):
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, _Packer(send).send)


class _Packer:
    """Holds an answer back until it is whole, if it is text; everything else passes."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _packs(Headers(raw=message["headers"]), message["status"]):
            self._start = message
        elif message["type"] == "http.response.body" and self._start is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._finish(self._start)
        else:
            await self._send(message)

    async def _finish(self, start: Message) -> None:
        body = bytes(self._body)
        headers = MutableHeaders(raw=start["headers"])
        headers.add_vary_header("Accept-Encoding")
        if len(body) >= SMALLEST:
            body = _packed_file(body) if "etag" in headers else gzip.compress(body, LEVEL, mtime=0)
            headers["Content-Encoding"] = "gzip"
            headers["Content-Length"] = str(len(body))
        await self._send({**start, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": body})


@lru_cache(maxsize=16)
def _packed_file(body: bytes) -> bytes:
    """The viewer's own files, which are asked for again and again."""
    return gzip.compress(body, 9, mtime=0)


def _packs(headers: Headers, status: int) -> bool:
    kind = headers.get("content-type", "")
    return status == 200 and kind.startswith(TEXT) and "content-encoding" not in headers
