"""Uploads: a patient's files come in, are decomposed in a job, and are forgotten after a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from diptych.files import parse_json
from diptych.server.problems import Problem
from diptych.server.requests import ArchiveUploadRequest, ChannelChoice
from diptych.server.resources import volume_resource
from diptych.server.routes.case_routes import Key, add_case_routes
from diptych.server.schemas import JobResource, UploadedFileResource, UploadResource
from diptych.server.service import Service, TheService
from diptych.server.sign_in import WHO
from diptych.server.upload_cases import add_to_archive, begin_decomposing, missing_channels, place_the_rest
from diptych.server.uploads import Upload, assign, shown_name

router = APIRouter(prefix="/uploads", tags=["Uploads"])

Files = Sequence[tuple[str, BinaryIO]]
Roles = Mapping[str, str | None]
MAX_FIELDS = 4
MAX_FIELD = 1 << 16
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "format": "binary"},
                            "description": "The patient's NIfTI files, one per channel; label maps may come along. "
                            "Or one ZIP of a DICOM study or of raw NIfTI files, or all files of a DICOM folder: "
                            "these go through intake.",
                        },
                        "channels": {
                            "type": "string",
                            "description": "JSON object: file name to channel, where the name does not tell.",
                        },
                    },
                }
            }
        },
    }
}


@router.post("", operation_id="uploadPatient", status_code=202, openapi_extra=BODY)
async def upload_patient(request: Request, service: TheService) -> UploadResource:
    """Upload a patient's NIfTI files, or a DICOM study. Channels are guessed from names; the decomposition is a job."""
    upload = await _receive(request, service, lambda files, roles: service.uploads.receive(files, roles=roles))
    try:
        begin_decomposing(service, upload)
    except Problem:  # a full queue: a refused upload leaves nothing behind
        service.uploads.delete(upload.id)
        raise
    return upload_resource(service, upload)


@router.post("/{key}/files", operation_id="addFiles", status_code=202, openapi_extra=BODY)
async def add_files(request: Request, service: TheService, key: Key) -> UploadResource:
    """Give an upload the files that it lacks; the patient is decomposed once every channel is there."""
    upload = service.uploads.get(key)

    def add(files: Files, roles: Roles) -> Upload:
        service.uploads.add(upload, files)
        assign(upload, roles)
        place_the_rest(service, upload)
        return upload

    await _receive(request, service, add)
    begin_decomposing(service, upload)
    return upload_resource(service, upload)


async def _receive(request: Request, service: Service, take: Callable[[Files, Roles], Upload]) -> Upload:
    """Read the files of a request, and hand them on with what is said of them."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Problem(422, "send multipart/form-data with the field 'files'")
    with service.receive(WHO.get().name):
        async with request.form(
            max_files=service.settings.max_study_files, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD
        ) as form:
            choice = _choice(form.get("channels"))
            chosen = {} if choice is None else {shown_name(name): role for name, role in choice.channels.items()}
            parts = [part for part in form.getlist("files") if isinstance(part, UploadFile)]
            files = [(part.filename or "file", part.file) for part in parts]
            return await run_in_threadpool(take, files, chosen)


@router.get("/{key}", operation_id="getUpload")
def get_upload(service: TheService, key: Key) -> UploadResource:
    """An upload, how far it is, and the decomposed volume once it is ready."""
    return upload_resource(service, service.uploads.get(key))


@router.patch("/{key}", operation_id="correctUpload", status_code=202)
def correct_upload(service: TheService, key: Key, asked: ChannelChoice) -> UploadResource:
    """Correct which file is which channel; the patient is decomposed again."""
    upload = service.uploads.get(key)
    assign(upload, asked.channels)
    begin_decomposing(service, upload)
    return upload_resource(service, upload)


@router.delete("/{key}", operation_id="deleteUpload", status_code=204, response_class=Response)
def delete_upload(service: TheService, key: Key) -> Response:
    """Forget an upload and its files at once."""
    service.uploads.delete(key)
    return Response(status_code=204)


@router.post("/{key}/archive", operation_id="archiveUpload", status_code=202)
def archive_upload(service: TheService, key: Key, asked: ArchiveUploadRequest) -> JobResource:
    """Store an upload in the archive, codes and de-identified images."""
    upload = service.uploads.get(key)
    service.case("uploads", key)
    volume_key = asked.volume_key or ArchiveUploadRequest.checked(service.library.current.key_of(upload.patient_key))
    if not asked.replace and volume_key in service.library.current.catalogue.places_of_keys:
        raise Problem(409, f"volume {volume_key}: the archive has one of that key; choose another, or replace it")
    job = service.jobs.submit(
        "decompose",
        "archive upload",
        lambda progress: add_to_archive(service, upload, volume_key, progress, replacing=asked.replace),
    )
    return JobResource.model_validate(job, from_attributes=True)


add_case_routes(router, "uploads")


def upload_resource(service: Service, upload: Upload) -> UploadResource:
    """An upload as the API shows it."""
    job, case = upload.job, upload.case
    return UploadResource(
        id=upload.id,
        state="ready" if case else "needs_channels" if job is None else "queued" if job.state == "done" else job.state,
        job=None if job is None else job.id,
        files=[
            UploadedFileResource(name=file.name, bytes=file.size, channel=upload.roles.get(file.name))
            for file in upload.files
        ],
        channels=dict(upload.roles),
        missing=missing_channels(service, upload),
        patient_key=service.library.current.key_of(upload.patient_key),
        expires_in=round(service.uploads.expires_in(upload), 1),
        error=None if job is None else job.error,
        volume=None if case is None else volume_resource(service, case),
    )


def _choice(field: object) -> ChannelChoice | None:
    if field is None or field == "":
        return None
    try:
        return ChannelChoice(channels=parse_json(field if isinstance(field, str) else ""))
    except (ValueError, ValidationError):
        raise Problem(422, 'channels: give a JSON object such as {"scan.nii.gz": "flair"}') from None
