"""`Findings`: what Diptych found in a study, on the grid of one of its series as the scanner gave it.

    archive → codes of the study → decoded lesion and healthy twin → the way back → voxels of the scanner
                                 → a search by the slice with the largest lesion → matches and their figure

Volumes are counted on the same voxels that are sent. Knows archives, intake's way back and search; no DICOM.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diptych.archive import VolumeRecord
from diptych.description import Description, LabelClass
from diptych.drawing.tile import EDGE
from diptych.errors import InputError, UsageError
from diptych.intake.intake_record import IntakeRecord, SeriesRecord, read_record
from diptych.intake.way_back import image_back, labels_back
from diptych.retrieval import Archive
from diptych.retrieval.explanation import decode, decode_lesion
from diptych.retrieval.question import Question
from diptych.slices import FILL
from diptych.volumes.layout import NAMES, one_line
from diptych.volumes.nifti import read_nifti

if TYPE_CHECKING:
    from PIL.Image import Image

    from diptych.retrieval import Answer, EncodedSlice

BATCH = 8
ONE_SIDED = 0.9
"""Share of a lesion that must lie in one half for the lesion to be of that side."""


@dataclass(frozen=True)
class MatchFinding:
    """A match as a report names it."""

    rank: int
    volume_key: str
    z_index: int
    level_mm: float
    """Height of the matched slice in the atlas."""
    distance: float
    side: str
    """`left`, `right`, `both` or `none`, of the match's predicted lesion."""
    agreements: tuple[tuple[str, float, float, float], ...]
    """Panel, expected label Dice, and the interval that holds nine in ten."""


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything that is given back for a study."""

    volume_key: str
    series: SeriesRecord
    """The series on whose grid everything lies."""
    classes: tuple[LabelClass, ...]
    """Classes of lesion that were found."""
    lesion: NDArray[np.uint8]
    """`[columns, rows, slices]` of the series."""
    twin: NDArray[np.uint16]
    """The healthy twin of the series' own channel, in the scanner's units."""
    matches: tuple[MatchFinding, ...]
    metric: str
    asked: str
    """The slice that was asked with."""
    figure: Image
    model: str
    """Fingerprint of the model."""
    source: str
    """Digest of what was taken in; another study, another digest."""

    @property
    def millilitres(self) -> dict[int, float]:
        """Volume of each class that was found, by its value."""
        voxel = self.series.grid.voxel_ml
        return {one.value: float((self.lesion == one.value).sum()) * voxel for one in self.classes}


def find_in_study(archive: Archive, volume_key: str, patients: Path, *, on: str = "", top: int = 5) -> Findings:
    """Decode, search and go back to the scanner's grid.

    Args:
        archive: Holds the study.
        volume_key: The study's key there.
        patients: Where intake left what it made.
        on: The channel whose series everything is drawn on; the one that intake registered to where none is given.
        top: Matches at most.

    Raises:
        InputError: what intake made is gone, or the channel was not used.
    """
    record = archive.store.record(volume_key)
    taken = intake_of(patients / volume_key)
    series = taken.find(on or taken.reference)
    lesion = labels_back(_lesion_volume(archive, record), record.slice_affine, series)
    found = set(np.unique(lesion).tolist())
    subject = _asked(archive, volume_key, record)
    answer = archive.query(subject, Question(top=top))
    return Findings(
        volume_key=volume_key,
        series=series,
        classes=tuple(one for one in archive.description.lesion if one.value in found),
        lesion=lesion,
        twin=_twin(archive, record, taken, series),
        matches=_matches(archive, answer),
        metric=answer.question.metric,
        asked=subject.name,
        figure=archive.figure(answer),
        model=archive.network.fingerprint,
        source=taken.inputs or record.info.input_digest,
    )


def intake_of(folder: Path) -> IntakeRecord:
    """What intake noted about a study, with the way back."""
    if not folder.is_dir():
        raise InputError(
            f"{one_line(folder)}: what intake made is gone, and with it the way back to the scanner; "
            "fetch the study again with diptych pacs fetch --again"
        )
    return read_record(folder)


def _asked(archive: Archive, volume_key: str, record: VolumeRecord) -> EncodedSlice:
    """The slice with the largest predicted lesion, or one through the middle where none is predicted."""
    try:
        return archive.stored(volume_key)
    except UsageError:
        return archive.stored(volume_key, z_index=int(record.z_index[record.slice_count // 2]))


def _lesion_volume(archive: Archive, record: VolumeRecord) -> NDArray[np.uint8]:
    """Decoded labels as a volume `[W, H, Z]`, to which `slice_affine` belongs."""
    H, W = archive.encoder.geometry.size
    volume = np.zeros((W, H, int(record.z_index[-1]) + 1), dtype=np.uint8)
    for start in range(0, record.slice_count, BATCH):
        some = slice(start, start + BATCH)
        decoded = decode_lesion(archive.network, record.abnormal_ids[some])
        volume[:, :, record.z_index[some]] = decoded.transpose(2, 1, 0)
    return volume


def _twin(archive: Archive, record: VolumeRecord, taken: IntakeRecord, series: SeriesRecord) -> NDArray[np.uint16]:
    """The healthy twin of the series' channel with the brightness of the series, zero outside the brain."""
    H, W = archive.encoder.geometry.size
    channel = _place(archive.description, series.channel)
    image = read_nifti(taken.folder / f"{taken.patient_key}-{NAMES[series.channel][0]}.nii.gz")
    signal = image.stored[image.stored > 0].astype(np.float64)
    mean, deviation = (float(signal.mean()), float(signal.std())) if signal.size else (0.0, 1.0)
    volume = np.zeros((W, H, int(record.z_index[-1]) + 1), dtype=np.float32)
    for start in range(0, record.slice_count, BATCH):
        some = slice(start, start + BATCH)
        twin = decode(archive.network, record.normal_ids[some], record.abnormal_ids[some]).healthy_twin[:, channel]
        shown = np.where(twin > FILL + EDGE, np.maximum(twin * deviation + mean, 0.0), 0.0) / series.scale
        volume[:, :, record.z_index[some]] = shown.transpose(2, 1, 0)
    back = image_back(volume, record.slice_affine, series)
    top = float(back.max())
    return np.asarray(np.rint(back * (min(1.0, 65535.0 / top) if top > 0 else 1.0)), dtype=np.uint16)


def _place(about: Description, channel: str) -> int:
    if channel not in about.channels:
        raise InputError(f"channel {channel}: the archive's model does not read it; give one of {about.channels}")
    return about.channels.index(channel)


def _matches(archive: Archive, answer: Answer) -> tuple[MatchFinding, ...]:
    if not answer.matches:
        return ()
    lesions = decode_lesion(archive.network, np.stack([match.abnormal_ids for match in answer.matches]))
    return tuple(
        MatchFinding(
            rank=rank,
            volume_key=match.volume.volume_key,
            z_index=match.z_index,
            level_mm=match.z_mm,
            distance=match.distance,
            side=lesion_side(lesion),
            agreements=tuple(
                (panel, agreement.expected, agreement.low, agreement.high)
                for panel in ("anatomy", "lesion")
                if match.worth is not None and (agreement := getattr(match.worth, panel)) is not None
            ),
        )
        for rank, (match, lesion) in enumerate(zip(answer.matches, lesions, strict=True), start=1)
    )


def lesion_side(lesion: NDArray[np.integer]) -> str:
    """Which half of the slice `[H, W]` a lesion lies in; the patient's right is on the left of it.

    >>> lesion_side(np.array([[1, 0, 0, 0]])), lesion_side(np.array([[1, 0, 0, 1]])), lesion_side(np.zeros((2, 4)))
    ('right', 'both', 'none')
    """
    columns = (lesion > 0).sum(axis=0)
    if not columns.any():
        return "none"
    right = columns[: len(columns) // 2].sum() / columns.sum()
    return "right" if right >= ONE_SIDED else ("left" if right <= 1 - ONE_SIDED else "both")
