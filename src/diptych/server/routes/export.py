"""Answers to keep."""

from __future__ import annotations

from fastapi import APIRouter, Response

from diptych.server.answers_to_keep import export_answer
from diptych.server.asked import ExportRequest
from diptych.server.asking import Asking
from diptych.server.service import TheService

__all__ = ["router"]

router = APIRouter(tags=["Export"])
FILES = {
    200: {
        "description": "The answer as a file.",
        "content": {"application/json": {}, "text/csv": {}, "image/png": {}},
    }
}


@router.post("/export", operation_id="exportAnswer", response_class=Response, responses=FILES)  # type: ignore[arg-type]
def export(service: TheService, asked: ExportRequest) -> Response:
    """Ask once more and get the answer as JSON, as a table, or as a figure."""
    kept = export_answer(Asking.now(service), asked)
    headers = {"Content-Disposition": f'attachment; filename="{kept.name}"'}
    return Response(kept.content, media_type=kept.media_type, headers=headers)
