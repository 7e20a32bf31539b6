"""`create_app`: the web application of one archive: routes, guards, errors, the viewer's files.

The table of contents of the service; each part has its own file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI

from diptych.retrieval import Archive
from diptych.server.describing import API
from diptych.server.problems import add_problem_handlers
from diptych.server.routes import archive as archive_routes
from diptych.server.routes import search, volumes
from diptych.server.schemas import ErrorResponse
from diptych.server.service import Service
from diptych.server.settings import ServerSettings

__all__ = ["create_app"]

STATIC = Path(__file__).parent / "static"
DESCRIPTION = """
Reads a medical image as two panels, the anatomy that should be there and what disease has done to it, and searches an
archive by either one. **Research use only, not a medical device.**

Every error has one shape: `{"error": {"code": …, "message": …, "detail": …}}`. Pictures of a slice share one frame
(anterior at the top, the patient's right on the left), so overlays can be laid on top of them.
"""
TAGS = [
    {"name": "Archive", "description": "What is served."},
    {"name": "Volumes", "description": "Archived volumes: slices as PNG, images as NIfTI."},
    {"name": "Uploads", "description": "Patients that are not in the archive; kept for a while, then forgotten."},
    {"name": "Search", "description": "Questions about a slice or a volume."},
    {"name": "Export", "description": "Answers and predictions to keep."},
    {"name": "Jobs", "description": "Long work and how far it has come."},
    {"name": "Session", "description": "Coming in with a token."},
]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse} for status in (401, 403, 404, 409, 413, 422, 429, 503)
}


def create_app(archive: Archive, settings: ServerSettings = ServerSettings()) -> FastAPI:
    """The application; its work begins and ends with it."""
    service = Service(archive, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    app = FastAPI(
        title="Diptych",
        version=version("diptych"),
        description=DESCRIPTION,
        openapi_tags=TAGS,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # FastAPI's own pages load scripts from a third party
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    api = APIRouter(prefix=API, responses=ERRORS)
    for part in (archive_routes, volumes, search):
        api.include_router(part.router)
    app.include_router(api)
    add_problem_handlers(app, private=str(archive.store.path))
    return app
