"""Questions: search, comparators, whole volumes, and what a subject looks like."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import BaseModel

from diptych.server.answer_exports import export_answer
from diptych.server.requests import (
    ExplainRequest,
    ExportRequest,
    PatientSearchRequest,
    SearchRequest,
    ViewRequest,
    VolumeSearchRequest,
)
from diptych.server.schemas import Explained, PatientSearchResponse, SearchResponse, SubjectView, VolumeSearchResponse
from diptych.server.searches import Asking, answer_patients, answer_slices, answer_volumes
from diptych.server.service import TheService
from diptych.server.views import explain, look

router = APIRouter(tags=["Search"])


@router.post("/search", operation_id="search", response_model=SearchResponse)
async def search(service: TheService, asked: SearchRequest) -> Response:
    """Slices most like a subject: the best of each patient, nearest first. The subject's own patient is left out."""
    return await service.in_turn(lambda: _json(answer_slices(Asking.now(service), asked)))


@router.post("/comparators", operation_id="findComparators", response_model=SearchResponse)
async def comparators(service: TheService, asked: SearchRequest) -> Response:
    """Real lesion-free slices of other patients, nearest by normal code: what this level looks like in health."""
    return await service.in_turn(lambda: _json(answer_slices(Asking.now(service), asked, comparators=True)))


@router.post("/similar-volumes", operation_id="findSimilarVolumes", response_model=VolumeSearchResponse)
async def similar_volumes(service: TheService, asked: VolumeSearchRequest) -> Response:
    """Volumes most alike over all their slices."""
    return await service.in_turn(lambda: _json(answer_volumes(Asking.now(service), asked)))


@router.post("/similar-patients", operation_id="findSimilarPatients", response_model=PatientSearchResponse)
async def similar_patients(service: TheService, asked: PatientSearchRequest) -> Response:
    """Patients most alike as a whole: decoded labels compared in three dimensions, with the best slice of each."""
    return await service.in_turn(lambda: _json(answer_patients(Asking.now(service), asked)))


@router.post("/subjects/view", operation_id="viewSubject")
def view_subject(service: TheService, asked: ViewRequest) -> SubjectView:
    """What a subject looks like: its pictures, the predicted lesion's areas, and how far answers can be trusted."""
    return look(Asking.now(service), asked)


@router.post("/explain", operation_id="explainMatch")
def explain_match(service: TheService, asked: ExplainRequest) -> Explained:
    """Why a match was found: each cell's part of the distance, query and match decoded side by side."""
    return explain(Asking.now(service), asked)


def _json(answer: BaseModel) -> Response:
    """Written in the searching thread: it is checked already, and the loop that serves all others stays free."""
    return Response(answer.model_dump_json(), media_type="application/json")


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
