"""What a subject looks like, and why a match was found: pictures, areas, trust.

Knows asking, cases and pictures. Pictures of a slice that has an address are given by it; those of a composed, painted
or moved lesion exist nowhere else and come along as data: addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.drawing.html import png_address
from diptych.drawing.tile import tile_size
from diptych.retrieval import EncodedSlice
from diptych.retrieval.explanation import SliceView, view_slices
from diptych.retrieval.question import touched_cells
from diptych.server.byte_responses import HEIGHT
from diptych.server.cases import Case
from diptych.server.problems import not_found
from diptych.server.requests import ArchivedSubject, ExplainRequest, UploadedSubject, ViewRequest
from diptych.server.resources import case_pictures
from diptych.server.schemas import (
    ChannelSignal,
    Explained,
    LesionPart,
    Pictures,
    SliceLesion,
    SubjectView,
    TrustResource,
)
from diptych.server.searches import Asking, describe_matches
from diptych.server.service import Service
from diptych.server.slice_pictures import Drawing, Kind, channel_place, draw_decoded


def look(asking: Asking, asked: ViewRequest) -> SubjectView:
    """A subject as it is seen, with what the model makes of it."""
    subject = asking.subject(asked.subject, pixels=isinstance(asked.subject, UploadedSubject))
    plain = asked.subject if isinstance(asked.subject, ArchivedSubject | UploadedSubject) else None
    case = None if plain is None else asking.case(plain)
    channel_place(asking.service.cases, asked.channel)
    if case is not None and subject.z_index is not None:
        view = asking.service.cases.view(case, subject.z_index)
        pictures = case_pictures(asking.service, case, subject.z_index, asked.channel)
    else:
        view = _decoded(asking, subject)
        pictures = _inline(asking, subject, view, asked.channel)
    row, column = subject.pixel_spacing
    counts = {
        name: np.count_nonzero(view.predicted_lesion == value)
        for value, name in asking.archive.description.lesion_names.items()
    }
    cells = touched_cells(view.predicted_lesion > 0, asking.archive.catalogue.index.grid)
    return SubjectView(
        name=subject.name,
        z=subject.z_index,
        position=subject.position,
        z_mm=subject.z_mm,
        z_indices=[] if case is None else case.record.z_index.tolist(),
        pictures=pictures,
        areas_mm2={name: round(count * row * column, 1) for name, count in counts.items()},
        lesion_cells=cells.tolist(),
        trust=_trust(asking, subject),
    )


SIDE_SHARE = 0.25
"""A lesion lies on both sides when the lesser side has at least this share of it."""


def slice_lesion(service: Service, case: Case, z: int) -> SliceLesion:
    """The lesion of one slice in numbers, known and predicted apart."""
    case.place(z)
    spacing, names = case.pixel_spacing, service.library.current.description.lesion_names
    known = None
    if "lesion" in case.files:
        H, W = service.library.image_size
        labels = service.cases.signal(case, "lesion").labels(case.record.slice_affine, z, shape=(H, W), size=(W, H))
        known = _lesion_part(labels, spacing, names)
    return SliceLesion(z=z, known=known, predicted=_lesion_part(service.cases.lesion(case, z), spacing, names))


def _lesion_part(labels: NDArray[np.uint8], spacing: tuple[float, float], names: Mapping[int, str]) -> LesionPart:
    (H, W), (row, column) = labels.shape, spacing
    areas = {name: round(float(np.count_nonzero(labels == value) * row * column), 1) for value, name in names.items()}
    rows, columns = np.nonzero(labels)
    if not len(rows):
        return LesionPart(areas_mm2=areas, whole_mm2=0.0, side=None, centre_mm=None)
    right, front = ((W - 1) / 2 - columns) * column, ((H - 1) / 2 - rows) * row
    share = float(np.mean(right > 0))
    side: Literal["left", "right", "both"] = (
        "both" if SIDE_SHARE <= share <= 1 - SIDE_SHARE else "right" if share > 0.5 else "left"
    )
    return LesionPart(
        areas_mm2=areas,
        whole_mm2=round(len(rows) * row * column, 1),
        side=side,
        centre_mm=(round(float(right.mean()), 1), round(float(front.mean()), 1)),
    )


def channel_signal(service: Service, case: Case, channel: str) -> ChannelSignal:
    """One image of a case in numbers."""
    signal = service.cases.signal(case, channel)
    brain = signal.voxels[signal.voxels > 0]
    x, y, z = signal.voxels.shape
    return ChannelSignal(
        channel=channel,
        window=signal.window,
        range=(float(brain.min()), float(brain.max())) if brain.size else (0.0, 0.0),
        mean=signal.mean,
        deviation=signal.deviation,
        shape=(x, y, z),
        voxel_mm=tuple(np.linalg.norm(signal.affine[:3, :3], axis=0).round(4).tolist()),
    )


def explain(asking: Asking, asked: ExplainRequest) -> Explained:
    """Query and match beside one another; in a search anywhere, the query's lesion lies where it was put."""
    answer = asking.ask(asked.search)
    if asked.rank > len(answer.matches):
        raise not_found(f"rank {asked.rank}: the answer has {len(answer.matches)} matches")
    match = answer.matches[asked.rank - 1]
    subject, plain = answer.subject, asked.search.subject
    channel_place(asking.service.cases, asked.channel)
    found_case = asking.service.case("volumes", match.volume.volume_key)
    found = asking.service.cases.lesion(found_case, match.z_index)
    if match.placed is None and isinstance(plain, ArchivedSubject | UploadedSubject) and subject.z_index is not None:
        case = asking.case(plain)
        lesion = asking.service.cases.lesion(case, subject.z_index)
        query = case_pictures(asking.service, case, subject.z_index, asked.channel)
    else:
        view = _decoded(asking, subject, None if match.placed is None else match.placed.ids)
        lesion, query = view.predicted_lesion, _inline(asking, subject, view, asked.channel)
    both = np.count_nonzero(lesion) + np.count_nonzero(found)
    shared = np.count_nonzero((lesion > 0) & (found > 0))
    return Explained(
        match=describe_matches(answer)[asked.rank - 1],
        query=query,
        found=case_pictures(asking.service, found_case, match.z_index, asked.channel),
        lesion_agreement=round(2 * shared / both, 4) if both else 1.0,
    )


def _decoded(asking: Asking, subject: EncodedSlice, abnormal: np.ndarray | None = None) -> SliceView:
    ids = subject.abnormal_ids if abnormal is None else abnormal
    return view_slices(asking.archive.network, subject.normal_ids[None], ids[None], [None])[0]


def _inline(asking: Asking, subject: EncodedSlice, view: SliceView, channel: str) -> Pictures:
    """Pictures of something that exists in this answer only."""
    size = tile_size(asking.service.library.image_size, subject.pixel_spacing, height=HEIGHT)
    place = channel_place(asking.service.cases, channel)

    def picture(kind: Kind) -> str:
        png = draw_decoded(view, Drawing(kind, channel, HEIGHT), place, about=asking.archive.description, size=size)
        return png_address(png)

    return Pictures(
        image=None,
        label=None,
        reconstruction=picture("reconstruction"),
        twin=picture("twin"),
        refined=None,
        mask=picture("mask"),
        difference=picture("difference"),
        anatomy=None if view.predicted_anatomy is None else picture("anatomy"),
    )


def _trust(asking: Asking, subject: EncodedSlice) -> TrustResource:
    trust = asking.archive.trust(subject)
    return TrustResource(level="caution" if trust.warnings else "good", **trust.to_json())
