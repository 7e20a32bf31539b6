"""Bytes to a browser: pictures and files with entity tags, so that nothing is sent twice.

Knows HTTP caching and cases. What is sent is a patient's: only the browser itself may keep it, and a picture without a
version in its address must be asked for again.
"""

from __future__ import annotations

from hashlib import blake2b

from fastapi import Request, Response
from starlette.responses import FileResponse

from diptych.server.cases import Case
from diptych.server.problems import Problem
from diptych.server.service import Service
from diptych.server.slice_pictures import Drawing, Kind, draw

HEIGHT, THUMBNAIL = 384, 96
DECODED = ("reconstruction", "twin", "refined", "difference")
"""Pictures that take a decoder's time."""
KEEP, ASK_AGAIN = "private, max-age=86400", "private, no-cache"


def picture(
    service: Service,
    request: Request,
    case: Case,
    z: int,
    kind: Kind,
    channel: str,
    *,
    window: tuple[float | None, float | None],
    size: int | None,
    version: str | None,
) -> Response:
    """A PNG of a slice, from memory where it was drawn before."""
    low, high = window
    if (low is None) != (high is None) or (low is not None and high is not None and not low < high):
        raise Problem(422, "low and high: give both, low below high, or neither")
    shown = None if low is None or high is None else (low, high)
    drawing = Drawing(kind, channel, size or (THUMBNAIL if kind == "thumbnail" else HEIGHT), shown)
    png = service.pictures.get((case.tag, z, drawing), lambda: draw(service.cases, case, z, drawing))
    if kind in DECODED:
        service.ahead.note(case, z)
    return _tagged(request, png, "image/png", keep=version is not None)


def _tagged(request: Request, body: bytes, media_type: str, *, keep: bool) -> Response:
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": KEEP if keep else ASK_AGAIN}
    if _has(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def send_file(request: Request, case: Case, role: str) -> Response:
    """An image of a case as it lies on disk; ranges are answered."""
    tag = f'"{case.files[role].sha256[:32]}"' if role in case.files else ""
    headers = {"ETag": tag, "Cache-Control": ASK_AGAIN, "Accept-Ranges": "bytes"}
    path = case.path(role)
    if _has(request, tag):
        return Response(status_code=304, headers=headers)
    return FileResponse(path, media_type="application/gzip", headers=headers, filename=f"{role}.nii.gz")


def _has(request: Request, tag: str) -> bool:
    """Whether the browser has this very content."""
    kept = request.headers.get("if-none-match", "")
    return tag in [one.strip().removeprefix("W/") for one in kept.split(",")]
