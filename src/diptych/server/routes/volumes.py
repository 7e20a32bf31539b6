"""Archived volumes: lists, slices as PNG, images as NIfTI."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query

from diptych.server.describing import fits, volume_resource, volume_summary
from diptych.server.routes.cases import Key, add_case_routes
from diptych.server.schemas import VolumeResource, Volumes
from diptych.server.service import TheService

__all__ = ["router"]

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
