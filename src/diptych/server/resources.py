"""From what retrieval knows to what the API says: volumes, cases, the archive itself.

Knows catalogues, cases and schemas; no HTTP beyond the addresses it writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from urllib.parse import quote, urlencode

import numpy as np

from diptych.archive import VolumeInfo
from diptych.description import LabelClass as Named
from diptych.drawing.sheet import NOTICE
from diptych.retrieval import Archive
from diptych.retrieval.question import LEVEL_MM
from diptych.retrieval.sketch import SKETCH_FILE
from diptych.search import PANELS
from diptych.server.cases import Case, representative
from diptych.server.guards import API, PREFIX
from diptych.server.schemas import (
    ArchiveLink,
    ArchiveResource,
    Geometry,
    LabelClass,
    Metric,
    ModelResource,
    Pictures,
    VolumeResource,
    VolumeSummary,
)
from diptych.server.service import Service
from diptych.server.slice_pictures import Drawing, Kind, window_for
from diptych.volumes import CHANNELS

DEFAULT_CHANNEL = "t1gd"
VERSION_LENGTH = 12


def archive_resource(service: Service) -> ArchiveResource:
    """The archive in numbers, with everything a viewer needs to know before it asks."""
    library, archive = service.library, service.library.current
    catalogue = archive.catalogue
    return ArchiveResource(
        name=archive.store.path.resolve().name,
        version=catalogue.version,
        notice=f"{NOTICE}.",
        model=_model(archive),
        patients=len(catalogue.patients),
        volumes=len(catalogue.volumes),
        slices=len(catalogue.index),
        channels=list(library.channels),
        metrics=_metrics(service, archive),
        default_metric=archive.searcher.default,
        default_level_mm=LEVEL_MM,
        can_find_patients=archive.patient_search.labels.keys() >= set(PANELS),
        lesion_classes=_classes(archive.description.lesion),
        anatomy_classes=_classes(archive.description.anatomy),
        sources=sorted({info.source for info in catalogue.volumes if info.source}),
        tags=sorted({tag for info in catalogue.volumes for tag in info.tags}),
        problems=list(catalogue.problems),
        disease=archive.description.disease,
        beside=[ArchiveLink(name=one.name, disease=one.disease, path=one.path) for one in service.beside],
    )


def _metrics(service: Service, archive: Archive) -> list[Metric]:
    searcher, job = archive.searcher, service.label_job_known(archive)
    waiting = None if job is None else job.id
    return [
        Metric(name=name, ready=ready, job=None if ready else waiting)
        for name in searcher.offered()
        for ready in [searcher.ready(name)]
    ]


def _model(archive: Archive) -> ModelResource:
    geometry = archive.encoder.geometry
    spacing = None
    if geometry.field is not None:
        spacing = (geometry.field[0] / geometry.size[0], geometry.field[1] / geometry.size[1])
    return ModelResource(
        fingerprint=archive.store.model.fingerprint,
        image_size=geometry.size,
        grid=archive.store.model.grid,
        pixel_spacing_mm=spacing,
        can_sketch=archive.model_folder is not None and (archive.model_folder / SKETCH_FILE).is_file(),
        can_refine=archive.refiner is not None,
    )


def _classes(classes: Iterable[Named]) -> list[LabelClass]:
    return [
        LabelClass(id=one.value, name=one.abbreviation, colour="#{:02x}{:02x}{:02x}".format(*one.colour))
        for one in classes
    ]


def fits(info: VolumeInfo, *, text: str | None = None, source: str | None = None, tags: Iterable[str] = ()) -> bool:
    """Whether a volume has a text in any of its words, and the source and all the tags."""
    words = (info.volume_key, info.patient_key, info.source or "", *info.tags)
    return (
        (not text or any(text.casefold() in word.casefold() for word in words))
        and (source is None or info.source == source)
        and set(tags) <= set(info.tags)
    )


def volume_summary(archive: Archive, place: int) -> VolumeSummary:
    """One volume of the catalogue, without reading anything."""
    catalogue = archive.catalogue
    info = catalogue.volumes[place]
    start, stop = (int(edge) for edge in catalogue.index.volume_starts[place : place + 2])
    z_index, area = catalogue.z_index[start:stop], catalogue.lesion_area[start:stop]
    z = representative(z_index, area)
    channels = [file.role for file in info.files if file.role in CHANNELS]
    route = f"volumes/{quote(info.volume_key, safe='')}"
    return VolumeSummary(
        volume_key=info.volume_key,
        patient_key=info.patient_key,
        slices=stop - start,
        z_first=int(z_index[0]),
        z_last=int(z_index[-1]),
        representative_z=z,
        largest_lesion_mm2=None if np.isnan(area).all() else float(np.nanmax(area)),
        lesion_source=info.lesion_source,
        sex=info.sex,
        age=info.age,
        study_date=info.study_date,
        source=info.source,
        tags=list(info.tags),
        has_pixels=bool(channels),
        thumbnail_url=_url(f"{route}/slices/{z}/thumbnail.png", channel=shown_first(channels), v=content_version(info))
        if channels
        else None,
    )


def shown_first(channels: Sequence[str]) -> str:
    """Enhancement where there is such a channel."""
    return DEFAULT_CHANNEL if DEFAULT_CHANNEL in channels else channels[0]


def volume_resource(service: Service, case: Case) -> VolumeResource:
    """One case in full, archived or uploaded."""
    record, info = case.record, case.info
    known = np.isfinite(record.lesion_area)
    channels = [name for name in case.channels if name in service.library.channels]
    z = case.representative_z
    exports = {"mask": _url(f"{case.route}/export/mask.nii.gz")} if channels else {}
    exports |= {f"twin-{name}": _url(f"{case.route}/export/twin.nii.gz", channel=name) for name in channels}
    return VolumeResource(
        volume_key=info.volume_key,
        patient_key=info.patient_key,
        slices=record.slice_count,
        z_first=int(record.z_index[0]),
        z_last=int(record.z_index[-1]),
        representative_z=z,
        largest_lesion_mm2=float(record.lesion_area[known].max()) if known.any() else None,
        lesion_source=info.lesion_source,
        sex=info.sex,
        age=info.age,
        study_date=info.study_date,
        source=info.source,
        tags=list(info.tags),
        has_pixels=bool(channels),
        thumbnail_url=picture_url(case, z, "thumbnail", shown_first(channels)) if channels else None,
        geometry=_geometry(service, case),
        z_indices=record.z_index.tolist(),
        positions=[round(value, 4) for value in record.position.tolist()],
        z_mm=[round(value, 2) for value in record.z_mm.tolist()],
        lesion_area=[None if math.isnan(area) else round(area, 1) for area in record.lesion_area.tolist()],
        channel_urls={
            name: _url(f"{case.route}/channels/{name}.nii.gz", v=content_version(case.info)) for name in channels
        },
        label_urls={
            name: _url(f"{case.route}/labels/{name}.nii.gz", v=content_version(case.info))
            for name in ("lesion", "anatomy")
            if name in case.files
        },
        export_urls=exports,
        windows={name: window_for(service.cases, case, Drawing("image", name, 1)) for name in channels},
        warnings=list(case.warnings),
    )


def _geometry(service: Service, case: Case) -> Geometry:
    (H, W), (row, column) = service.library.image_size, case.pixel_spacing
    return Geometry(slice_affine=case.record.slice_affine.tolist(), image_size=(H, W), field_mm=(H * row, W * column))


def case_pictures(service: Service, case: Case, z: int, channel: str) -> Pictures:
    """Addresses of all pictures of one slice."""
    has_anatomy = service.library.current.network.anatomy_head is not None

    def url(kind: Kind) -> str:
        return picture_url(case, z, kind, channel)

    return Pictures(
        image=url("image") if channel in case.files else None,
        label=url("label") if "lesion" in case.files else None,
        reconstruction=url("reconstruction"),
        twin=url("twin"),
        refined=url("refined") if _can_be_refined(service, case) else None,
        mask=url("mask"),
        difference=url("difference"),
        anatomy=url("anatomy") if has_anatomy else None,
    )


def _can_be_refined(service: Service, case: Case) -> bool:
    archive = service.library.current
    return archive.refiner is not None and all(name in case.files for name in archive.description.channels)


def picture_url(case: Case, z: int, kind: Kind, channel: str = DEFAULT_CHANNEL) -> str:
    """Where a picture of a case is; `v` changes with the content, so that browsers may keep it."""
    return _url(f"{case.route}/slices/{z}/{kind}.png", channel=channel, v=content_version(case.info))


def volume_url(info: VolumeInfo, z: int, kind: Kind, channel: str = DEFAULT_CHANNEL) -> str:
    """The same for a volume of which only the catalogue's entry is known."""
    route = f"volumes/{quote(info.volume_key, safe='')}"
    return _url(f"{route}/slices/{z}/{kind}.png", channel=channel, v=content_version(info))


def content_version(info: VolumeInfo) -> str:
    """Changes whenever a volume is indexed from other files or with other options."""
    return info.input_digest[:VERSION_LENGTH] or "0"


def _url(path: str, **query: str) -> str:
    whole = f"{PREFIX.get()}{API}/{path}"
    return f"{whole}?{urlencode(query)}" if query else whole
