"""Archived volumes: lists, slices as PNG, images as NIfTI."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response

from diptych.server.delivering import PNG, picture, send_file
from diptych.server.describing import fits, volume_resource, volume_summary
from diptych.server.pictures import Kind
from diptych.server.schemas import VolumeResource, Volumes
from diptych.server.service import TheService

__all__ = ["router"]

Channel = Literal["t1", "t1gd", "t2", "flair"]
LabelMap = Literal["lesion", "anatomy"]
Z = Annotated[int, Path(ge=0, le=65_535, description="Index of the axial plane, from the bottom.")]

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
def get_volume(service: TheService, key: str) -> VolumeResource:
    """One volume with all its slices and addresses."""
    return volume_resource(service, service.case("volumes", key))


@router.get("/{key}/slices/{z}/{kind}.png", operation_id="getVolumeSlice", response_class=Response, responses=PNG)
def get_slice(
    service: TheService,
    request: Request,
    key: str,
    z: Z,
    kind: Kind,
    channel: Annotated[Channel, Query(description="Which channel is shown.")] = "t1gd",
    low: Annotated[float | None, Query(description="Signal shown black.", allow_inf_nan=False)] = None,
    high: Annotated[float | None, Query(description="Signal shown white.", allow_inf_nan=False)] = None,
    size: Annotated[int | None, Query(ge=16, le=1024, description="Height in pixels.")] = None,
    v: Annotated[str | None, Query(max_length=64, description="Version; lets browsers keep the picture.")] = None,
) -> Response:
    """A picture of one slice, in the body's proportions; masks, labels and differences are transparent overlays."""
    case = service.case("volumes", key)
    return picture(service, request, case, z, kind, channel, low=low, high=high, size=size, version=v)


@router.get("/{key}/channels/{channel}.nii.gz", operation_id="getVolumeChannel", response_class=Response)
def get_channel(service: TheService, request: Request, key: str, channel: Channel) -> Response:
    """One channel as a de-identified NIfTI file; range requests are answered."""
    return send_file(request, service.case("volumes", key), channel)


@router.get("/{key}/labels/{label}.nii.gz", operation_id="getVolumeLabels", response_class=Response)
def get_labels(service: TheService, request: Request, key: str, label: LabelMap) -> Response:
    """A known label map as NIfTI."""
    return send_file(request, service.case("volumes", key), label)
