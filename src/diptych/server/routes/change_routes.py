"""Over time: what has changed between two studies of one patient."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import JSONResponse
from starlette.responses import FileResponse

from diptych.server.byte_responses import ASK_AGAIN
from diptych.server.guards import API, PREFIX
from diptych.server.problems import Problem, not_found
from diptych.server.routes.case_routes import MAKING, Channel, Key, Z
from diptych.server.schemas import ChangeResource, Geometry, JobResource
from diptych.server.service import Service, TheService
from diptych.server.study_changes import Compared, MapKind

router = APIRouter(prefix="/volumes", tags=["Volumes"])
Old = Annotated[str, Path(max_length=256, description="Key of the earlier study.")]


@router.get("/{key}/changes/{old}", operation_id="getChange", response_model=ChangeResource, responses=MAKING)
def get_change(service: TheService, key: Key, old: Old) -> Response:
    """What has changed since an earlier study: volumes by kind, slices, and where the maps are. Made when asked for."""
    new_case, old_case = service.case("volumes", key), service.case("volumes", old)
    if new_case.info.patient_key != old_case.info.patient_key:
        raise Problem(422, f"{old}, {key}: are of different patients; compare studies of one")
    made = service.changes.get(service.jobs, service.cases, old_case, new_case)
    if not isinstance(made, Compared):
        job = JobResource.model_validate(made, from_attributes=True)
        return JSONResponse(job.model_dump(), 202, headers={"Retry-After": "2"})
    change = made.change
    (H, W), (row, column) = change.new.images.shape[2:], change.new.pixel_spacing
    resource = ChangeResource(
        **change.to_json(),
        geometry=Geometry(slice_affine=change.new.affine.tolist(), image_size=(H, W), field_mm=(H * row, W * column)),
        channel_urls={
            name: f"{PREFIX.get()}{API}/volumes/{key}/changes/{old}/channels/{name}.nii.gz"
            for name in change.new.channels
        },
    )
    return JSONResponse(resource.model_dump())


@router.get("/{key}/changes/{old}/slices/{z}/{kind}.png", operation_id="getChangeSlice", response_class=Response)
def get_map(service: TheService, key: Key, old: Old, z: Z, kind: MapKind, channel: Channel = "t1gd") -> Response:
    """One slice: the old study itself, or an overlay of a predicted lesion, of changed cells, or the subtraction."""
    png = _made(service, key, old).picture(z, kind, channel)
    return Response(png, media_type="image/png", headers={"Cache-Control": ASK_AGAIN})


@router.get("/{key}/changes/{old}/channels/{channel}.nii.gz", operation_id="getMovedChannel", response_class=Response)
def get_moved(service: TheService, key: Key, old: Old, channel: Channel) -> Response:
    """A channel of the earlier study on the grid of the later one, as NIfTI."""
    path = _made(service, key, old).folder / f"{channel}.nii.gz"
    if not path.is_file():
        raise not_found(f"channel {channel}: the earlier study has none")
    return FileResponse(path, media_type="application/gzip", headers={"Cache-Control": ASK_AGAIN})


def _made(service: Service, key: str, old: str) -> Compared:
    made = service.changes.get(service.jobs, service.cases, service.case("volumes", old), service.case("volumes", key))
    if not isinstance(made, Compared):
        raise Problem(409, "the studies are being compared; ask again when the job is done", code="not_ready")
    return made
