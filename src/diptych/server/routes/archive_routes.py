"""What is served: the service's health, the archive, its patients, and jobs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from diptych.drawing.sheet import NOTICE
from diptych.server.resources import archive_resource, fits
from diptych.server.schemas import ArchiveResource, Health, JobResource, PatientResource, Patients
from diptych.server.service import TheService

router = APIRouter()


@router.get("/health", tags=["Archive"], operation_id="getHealth")
def get_health(service: TheService) -> Health:
    """Whether the service is up. Needs no token."""
    status: Literal["ok", "degraded"] = "degraded" if service.problems() else "ok"
    return Health(status=status, version=version("diptych"), notice=f"{NOTICE}.", token_needed=service.sign_in.needed)


@router.get("/archive", tags=["Archive"], operation_id="getArchive")
def get_archive(service: TheService) -> ArchiveResource:
    """The archive: its model, what it holds, how it can be searched."""
    return archive_resource(service)


@router.get("/patients", tags=["Archive"], operation_id="listPatients")
def list_patients(
    service: TheService,
    text: Annotated[str | None, Query(max_length=200, description="Part of a key, source or tag.")] = None,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Patients:
    """Patients with the keys of their volumes, in the order of their keys."""
    found: dict[str, list[str]] = {}
    for info in service.library.current.catalogue.volumes:
        if fits(info, text=text):
            found.setdefault(info.patient_key, []).append(info.volume_key)
    page = sorted(found)[offset : offset + limit]
    return Patients(total=len(found), items=[PatientResource(patient_key=key, volumes=found[key]) for key in page])


@router.get("/jobs/{job_id}", tags=["Jobs"], operation_id="getJob")
def get_job(service: TheService, job_id: str) -> JobResource:
    """How far a job has come. Ask again until its state is done or failed."""
    return JobResource.model_validate(service.jobs.get(job_id), from_attributes=True)
