"""What archived and uploaded cases have in common: slices as PNG, images and predictions as NIfTI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.responses import FileResponse

from diptych.server.byte_responses import ASK_AGAIN, KEEP, picture, send_file
from diptych.server.exports import Prediction
from diptych.server.jobs import Job
from diptych.server.resources import fits, volume_resource, volume_summary
from diptych.server.schemas import ChannelSignal, JobResource, SliceLesion, VolumeResource, Volumes
from diptych.server.service import TheService
from diptych.server.slice_pictures import Kind
from diptych.server.views import channel_signal, slice_lesion

Channel = Literal["t1", "t1gd", "t2", "flair"]
LabelMap = Literal["lesion", "anatomy"]
Key = Annotated[str, Path(max_length=256, description="The volume's key, or the upload's id.")]
Z = Annotated[int, Path(ge=0, le=65_535, description="Index of the axial plane, from the bottom.")]
Signal = Annotated[float | None, Query(allow_inf_nan=False, description="Signal shown black or white.")]

Version = Annotated[str | None, Query(max_length=64, description="Version; lets browsers keep it.")]

Answers = dict[int | str, dict[str, Any]]
PNG: Answers = {200: {"content": {"image/png": {}}}, 304: {"description": "The picture has not changed."}}
NIFTI: Answers = {
    200: {"content": {"application/gzip": {}}, "description": "A NIfTI file."},
    206: {"content": {"application/gzip": {}}, "description": "A part of it."},
    304: {"description": "The file has not changed."},
    416: {"description": "There is no such part."},
}
MAKING: Answers = {202: {"model": JobResource, "description": "Being made; ask again when the job is done."}}


def add_case_routes(router: APIRouter, home: Literal["volumes", "uploads"]) -> None:
    """Add the routes of a case below `/{key}`; `home` says whose key it is."""
    name = home.capitalize().removesuffix("s")

    @router.get(
        "/{key}/slices/{z}/{kind}.png",
        operation_id=f"get{name}Slice",
        response_class=Response,
        responses=PNG,
    )
    def get_slice(
        service: TheService,
        request: Request,
        key: Key,
        z: Z,
        kind: Kind,
        channel: Annotated[Channel, Query(description="Which channel is shown.")] = "t1gd",
        low: Signal = None,
        high: Signal = None,
        size: Annotated[int | None, Query(ge=16, le=1024, description="Height in pixels.")] = None,
        v: Version = None,
    ) -> Response:
        """A picture of one slice, in the body's proportions; masks, labels and differences are transparent overlays."""
        case = service.case(home, key)
        return picture(service, request, case, z, kind, channel, window=(low, high), size=size, version=v)

    @router.get("/{key}/slices/{z}/lesion", operation_id=f"get{name}Lesion")
    def get_lesion(service: TheService, response: Response, key: Key, z: Z, v: Version = None) -> SliceLesion:
        """The lesion of one slice: areas by kind, side and centre, as known and as predicted."""
        response.headers["Cache-Control"] = KEEP if v is not None else ASK_AGAIN
        return slice_lesion(service, service.case(home, key), z)

    @router.get("/{key}/signals/{channel}", operation_id=f"get{name}Signal")
    def get_signal(
        service: TheService, response: Response, key: Key, channel: Channel, v: Version = None
    ) -> ChannelSignal:
        """One image in numbers: its usual window, its signal, its voxels."""
        response.headers["Cache-Control"] = KEEP if v is not None else ASK_AGAIN
        return channel_signal(service, service.case(home, key), channel)

    @router.get(
        "/{key}/channels/{channel}.nii.gz", operation_id=f"get{name}Channel", response_class=Response, responses=NIFTI
    )
    def get_channel(service: TheService, request: Request, key: Key, channel: Channel) -> Response:
        """One channel as a de-identified NIfTI file; range requests are answered."""
        return send_file(request, service.case(home, key), channel)

    @router.get(
        "/{key}/labels/{label}.nii.gz", operation_id=f"get{name}Labels", response_class=Response, responses=NIFTI
    )
    def get_labels(service: TheService, request: Request, key: Key, label: LabelMap) -> Response:
        """A known label map as NIfTI."""
        return send_file(request, service.case(home, key), label)

    @router.get(
        "/{key}/export/{prediction}.nii.gz",
        tags=["Export"],
        operation_id=f"export{name}Prediction",
        response_class=Response,
        responses={**NIFTI, **MAKING},
    )
    def export_prediction(service: TheService, key: Key, prediction: Prediction, channel: Channel = "t1gd") -> Response:
        """The predicted lesion, or the healthy twin of a channel, as NIfTI in the grid of the patient's own images."""
        case = service.case(home, key)
        made = service.exports.file(service.jobs, service.cases, case, prediction, channel)
        if isinstance(made, Job):
            job = JobResource.model_validate(made, from_attributes=True)
            return JSONResponse(job.model_dump(), 202, headers={"Retry-After": "2"})
        what = f"twin-{channel}" if prediction == "twin" else "mask"
        return FileResponse(made, media_type="application/gzip", filename=f"{what}_research-use-only.nii.gz")


router = APIRouter(prefix="/volumes", tags=["Volumes"])


@router.get("", operation_id="listVolumes")
def list_volumes(
    service: TheService,
    text: Annotated[str | None, Query(max_length=200, description="Part of a key, source or tag.")] = None,
    source: Annotated[str | None, Query(max_length=200)] = None,
    tag: Annotated[list[str] | None, Query(max_length=20, description="Tags that all must be there.")] = None,
    has_lesion: Annotated[bool | None, Query(description="Whether a lesion is known in any slice.")] = None,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Volumes:
    """Volumes in the order of their keys, page by page."""
    archive = service.library.current
    places = [
        place
        for place, info in enumerate(archive.catalogue.volumes)
        if fits(info, text=text, source=source, tags=tag or ())
    ]
    if has_lesion is not None:
        index = archive.catalogue.index
        area = np.nan_to_num(archive.catalogue.lesion_area)
        largest = np.maximum.reduceat(area, index.volume_starts[:-1])
        places = [place for place in places if bool(largest[place] > 0) == has_lesion]
    page = [volume_summary(archive, place) for place in places[offset : offset + limit]]
    return Volumes(total=len(places), items=page)


@router.get("/{key}", operation_id="getVolume")
def get_volume(service: TheService, key: Key) -> VolumeResource:
    """One volume with all its slices and addresses."""
    return volume_resource(service, service.case("volumes", key))


add_case_routes(router, "volumes")
