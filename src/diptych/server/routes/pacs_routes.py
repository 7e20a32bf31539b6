"""A volume's place in the PACS it came from: the hospital's viewer, and results sent back with one button."""

from __future__ import annotations

from fastapi import APIRouter

from diptych.server.routes.case_routes import Key
from diptych.server.schemas import JobResource, PacsResource
from diptych.server.service import TheService

router = APIRouter(prefix="/volumes", tags=["Volumes"])


@router.get("/{key}/pacs", operation_id="getPacsPlace")
def get_place(service: TheService, key: Key) -> PacsResource:
    """Where the study is in the hospital, and which results were sent; older studies are fetched if rules say so."""
    service.case("volumes", key)
    place = service.pacs.place(service.jobs, service.library.current, key)
    return PacsResource(
        known=place.known,
        server=place.server,
        viewer=place.viewer,
        sent=list(place.sent),
        job=None if place.job is None else place.job.id,
    )


@router.post("/{key}/pacs", operation_id="sendResults", status_code=202)
def send_results(service: TheService, key: Key) -> JobResource:
    """Send lesion, matches, healthy twin and figure to the PACS as DICOM; what is there already is not sent again."""
    service.case("volumes", key)
    job = service.pacs.send(service.jobs, service.library.current, key)
    return JobResource.model_validate(job, from_attributes=True)
