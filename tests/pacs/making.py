"""Small DICOM studies, and an intake that takes a moment instead of a minute."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from diptych.intake.atlas_space import SRI24
from diptych.intake.dicom_files import opened
from diptych.intake.intake_record import IntakeRecord, SeriesRecord, matrix_rows, write_record
from diptych.intake.pipeline import read_source
from diptych.intake.resampling import Grid, Placed, even_grid, resample
from diptych.intake.series_typing import choose_series
from diptych.pacs.incoming import series_folders
from diptych.phantom.phantom_dicom import DicomStyle, Person, write_series
from diptych.phantom.raw_head import Acquisition, RawSeries
from diptych.progress import Progress, silent
from diptych.volumes import write_nifti
from diptych.volumes.layout import NAMES

AXES = {"t1": (2, 0, 1), "t1gd": (0, 1, 2), "t2": (0, 1, 2), "flair": (0, 2, 1)}
"""Which world axes columns, rows and slices run along: one sagittal, two axial, one coronal."""


@lru_cache
def series_of(seed: int = 5) -> dict[str, RawSeries]:
    """Four series of one ball with a brighter spot, ten slices each."""
    return {channel: ball(channel, axes, seed) for channel, axes in AXES.items()}


def ball(channel: str, axes: tuple[int, int, int], seed: int) -> RawSeries:
    """24 x 20 pixels of 8 mm, slices of 16 mm."""
    rng = np.random.default_rng([seed, *map(ord, channel)])
    affine = np.eye(4)
    affine[:3, :3] = 0.0
    for column, (axis, step) in enumerate(zip(axes, (-8.0, -8.0, 16.0), strict=True)):
        affine[axis, column] = step
    shape = np.array([24, 20, 10])
    affine[:3, 3] = -affine[:3, :3] @ ((shape - 1) / 2)
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1) @ affine[:3, :3].T + affine[:3, 3]
    head = np.linalg.norm(places, axis=-1) < 75
    spot = np.linalg.norm(places - (20, -10, 10 + seed), axis=-1) < 25
    array = (rng.integers(100, 600, shape) * head + 400 * spot).astype(np.int16)
    acquisition = Acquisition(channel, in_plane_mm=8, thickness_mm=16)
    return RawSeries(acquisition, array, affine, np.eye(4), head, spot.astype(np.uint8))


def write_small_study(folder: Path, *, person: Person = Person(), seed: int = 5, **styles: DicomStyle) -> Path:
    """Forty small slices of four series."""
    for number, (channel, series) in enumerate(series_of(seed).items(), start=2):
        style = styles.get(channel, DicomStyle(number=number))
        write_series(series, folder / channel, style=style, person=person)
    return folder


def quick_intake(source: Path, out: Path, key: str, progress: Progress = silent) -> tuple[Path, dict[str, str]]:
    """Series read and typed as ever; put into the middle of a coarse atlas, without stripping or registration."""
    with opened(source) as files:
        (reading,) = read_source(files, source)
    choices = choose_series(reading.series).choices
    grid = even_grid(SRI24, 12.0)
    folder = out / key
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for channel, choice in choices.items():
        series = choice.series
        image = Placed(np.maximum(series.load(), 0), series.affine)
        shift = np.eye(4)
        shift[:3, 3] = middle(image.grid) - middle(SRI24)
        values = np.rint(resample(image, grid, shift)).clip(0, 32000).astype(np.int16)
        write_nifti(folder / f"{key}-{NAMES[channel][0]}.nii.gz", values, grid.affine)
        records.append(
            SeriesRecord(
                series.key, channel, choice.reasons, series.shape, matrix_rows(series.affine), matrix_rows(shift)
            )
        )
    record = IntakeRecord(key, folder, tuple(records), (), "t1gd", {"name": "SRI24"}, 1200.0)
    write_record(record, folder)
    return folder, series_folders(reading)


def middle(grid: Grid) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    point = grid.affine @ np.array([*(np.array(grid.shape) / 2), 1.0])
    return np.asarray(point[:3], dtype=np.float64)
