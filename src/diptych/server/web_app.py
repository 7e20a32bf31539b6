"""`create_app`: the web application of one archive: routes, guards, errors, the viewer's files.

The table of contents of the service; each part has its own file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.staticfiles import StaticFiles

from diptych.processes import cores
from diptych.retrieval import Archive
from diptych.server.compression import Compression
from diptych.server.guards import API, Guards
from diptych.server.pages import NOT_BUILT, api_page
from diptych.server.problems import add_problem_handlers, not_found
from diptych.server.roles import check_role
from diptych.server.routes import archive_routes, change_routes, health_routes, pacs_routes
from diptych.server.routes import case_routes as volumes
from diptych.server.routes import search_routes as search
from diptych.server.routes import session_routes as session
from diptych.server.routes import upload_routes as uploads
from diptych.server.schemas import ErrorResponse
from diptych.server.service import Service
from diptych.server.settings import ServerSettings
from diptych.server.sign_in import SignIn

THREADS = 4 + 4 * cores()
"""Requests that are worked on at a time; each may hold a whole image."""
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


def create_app(
    archive: Archive, settings: ServerSettings = ServerSettings(), *, sign_in: SignIn | None = None
) -> FastAPI:
    """The application; its work begins and ends with it. Several of them may share one `sign_in`."""
    service = Service(archive, settings, sign_in=sign_in)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        to_thread.current_default_thread_limiter().total_tokens = THREADS
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
    api = APIRouter(prefix=API, responses=ERRORS, dependencies=[Depends(check_role)])
    for part in (archive_routes, volumes, change_routes, pacs_routes, uploads, search, session):
        api.include_router(part.router)
    app.include_router(api)
    app.include_router(health_routes.router)
    add_pages(app)
    add_problem_handlers(app, private=str(archive.store.path))
    app.add_middleware(Compression)
    app.add_middleware(Guards, settings=settings, sign_in=service.sign_in, observation=service.observation)
    return app


def add_pages(app: FastAPI) -> None:
    """The API's own page, and the viewer wherever nothing else is."""

    @app.get(f"{API}/docs", include_in_schema=False)
    def get_docs() -> HTMLResponse:
        return HTMLResponse(api_page(app.openapi()))

    @app.get("/", include_in_schema=False)
    def get_viewer() -> Response:
        index = STATIC / "index.html"
        return FileResponse(index) if index.is_file() else HTMLResponse(NOT_BUILT)

    files = StaticFiles(directory=STATIC, check_dir=False)

    @app.get("/assets/{path:path}", include_in_schema=False)
    @app.get("/{path}", include_in_schema=False)
    async def get_file(request: Request) -> Response:
        if not STATIC.is_dir():
            raise not_found("the viewer is not built")
        return await files.get_response(request.url.path.lstrip("/"), request.scope)
