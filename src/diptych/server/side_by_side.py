"""`SideBySide`: several archives in one service, each with its own model and so with its own disease.

The first archive is served where a single one would be; every archive, the first one too, at /archives/NAME/, with
the whole page and API below that. Each keeps its own caches, jobs, uploads and audit log. Who was let in to one is let
in to all of them, so users are those of the first archive, and another one that has users of its own is refused. Knows
ASGI and nothing about routes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from fastapi import FastAPI
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from diptych.errors import UsageError
from diptych.retrieval import Archive
from diptych.server.guards import PREFIX
from diptych.server.service import Neighbour, Service
from diptych.server.settings import ServerSettings
from diptych.server.sign_in import SignIn
from diptych.server.users import Users
from diptych.server.web_app import create_app

ROOM = "/archives/"
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


class SideBySide:
    """ASGI application of several archives."""

    def __init__(self, apps: dict[str, FastAPI]) -> None:
        self.apps = apps
        self.first = next(iter(apps.values()))

    @property
    def services(self) -> list[Service]:
        return [app.state.service for app in self.apps.values()]

    @property
    def sign_in(self) -> SignIn:
        return self.services[0].sign_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        name, slash, rest = scope["path"].removeprefix(ROOM).partition("/")
        app = self.apps.get(name) if scope["path"].startswith(ROOM) else None
        if app is None:
            await self.first(scope, receive, send)
            return
        if not slash:  # the page finds its own files relative to where it is
            await RedirectResponse(f"{ROOM}{name}/")(scope, receive, send)
            return
        PREFIX.set(f"{ROOM}{name}")
        await app({**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Begin and end the work of all archives with the server's own."""
        async with AsyncExitStack() as stack:
            await receive()
            for app in self.apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def create_apps(archives: Sequence[Archive], settings: ServerSettings = ServerSettings()) -> ASGIApp:
    """The application of one archive, or of several side by side."""
    if len(archives) == 1:
        return create_app(archives[0], settings)
    names = [room_name(archive) for archive in archives]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{doubled}: two archives have this name; rename a folder, so that each has an address")
    for archive in archives[1:]:
        if Users.of_archive(archive.store.path):
            raise UsageError(
                f"{archive.store.path}: has users of its own, but side by side those of {archives[0].store.path} "
                "decide; serve it alone, or name it first"
            )
    together = replace(settings, cookie_path="/")
    sign_in = SignIn(together, Users.of_archive(archives[0].store.path))
    apps = {name: create_app(archive, together, sign_in=sign_in) for name, archive in zip(names, archives, strict=True)}
    beside = tuple(
        Neighbour(name=archive.store.path.resolve().name, disease=archive.description.disease, path=f"{ROOM}{name}/")
        for name, archive in zip(names, archives, strict=True)
    )
    for app in apps.values():
        app.state.service.beside = beside
    return SideBySide(apps)


def room_name(archive: Archive) -> str:
    """The folder's name as an address can hold it."""
    return _PLAIN.sub("-", archive.store.path.resolve().name).strip("-.") or "archive"
