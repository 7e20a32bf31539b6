"""Predictions as NIfTI in the grid of the patient's own images: the predicted lesion, and the healthy twin.

Knows cases, decoders and geometry. A file is made once, in a job, and kept in a temporary folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.drawing.tile import EDGE
from diptych.model import FeatureDecomposingNetwork
from diptych.progress import Progress
from diptych.retrieval.explanation import decode, decode_lesion
from diptych.server.cases import Case, Cases
from diptych.server.channel_images import Signal
from diptych.server.jobs import Job, Jobs
from diptych.server.problems import Problem
from diptych.slices import FILL
from diptych.volumes import write_nifti

Prediction = Literal["mask", "twin"]
KEPT = 32
"""Files of archived volumes that are kept; those of an upload go with it."""
BATCH = 4


class Exports:
    """Which files there are, and which are being made; safe to use from many threads."""

    def __init__(self) -> None:
        self._jobs: dict[Path, Job] = {}
        self._lock = Lock()

    def file(self, jobs: Jobs, cases: Cases, case: Case, what: Prediction, channel: str) -> Path | Job:
        """The file, or the job that makes it."""
        if not case.channels:
            raise Problem(409, f"{case.info.volume_key}: the archive keeps its codes only, no images", code="no_pixels")
        if what == "twin" and channel not in case.channels:
            raise Problem(404, f"channel {channel}: {case.info.volume_key} has {', '.join(case.channels)}")
        uploaded = case.route.startswith("uploads/")
        folder = (case.folder if uploaded else cases.folder) / "exports"
        path = folder / (f"{case.tag}-twin-{channel}.nii.gz" if what == "twin" else f"{case.tag}-mask.nii.gz")
        with self._lock:
            if path.is_file():
                return path
            job = self._jobs.get(path)
            if job is None or job.over:
                folder.mkdir(mode=0o700, exist_ok=True)
                _tidy(folder)
                job = jobs.submit(
                    "export", f"export {what}", lambda told: _make(cases, case, what, channel, path, told)
                )
                self._jobs = {kept: one for kept, one in self._jobs.items() if not one.over} | {path: job}
            return job


def _make(cases: Cases, case: Case, what: Prediction, channel: str, path: Path, progress: Progress) -> None:
    network = cases.library.current.network
    reference = channel if what == "twin" else case.channels[0]
    signal = cases.signal(case, reference)
    if what == "mask":
        write_nifti(path, lesion_in_source(network, case, signal, progress), signal.affine)
    else:
        place = cases.library.channels.index(channel)
        write_nifti(path, twin_in_source(network, case, signal, place, progress), signal.affine)


def lesion_in_source(
    network: FeatureDecomposingNetwork, case: Case, signal: Signal, progress: Progress
) -> NDArray[np.uint8]:
    """The predicted lesion `[X, Y, Z]`; planes without brain stay empty."""
    out = np.zeros(signal.voxels.shape, dtype=np.uint8)
    for some in _batches(case, progress):
        decoded = decode_lesion(network, case.record.abnormal_ids[some])
        for z, labels in zip(case.record.z_index[some], decoded, strict=True):
            classes = sorted({0, *np.unique(labels).tolist()})
            marks = [(labels == value).astype(np.float32) for value in classes]
            shares = [to_source(mark, case, signal, float(place == 0)) for place, mark in enumerate(marks)]
            out[:, :, z] = np.array(classes, dtype=np.uint8)[np.argmax(shares, axis=0)].T
    return out


def twin_in_source(
    network: FeatureDecomposingNetwork, case: Case, signal: Signal, channel: int, progress: Progress
) -> NDArray[np.float32]:
    """The healthy twin of one channel `[X, Y, Z]` on the patient's own intensity scale, zero outside the brain."""
    out = np.zeros(signal.voxels.shape, dtype=np.float32)
    for some in _batches(case, progress):
        decoded = decode(network, case.record.normal_ids[some], case.record.abnormal_ids[some])
        for z, twin in zip(case.record.z_index[some], decoded.healthy_twin[:, channel], strict=True):
            scores = to_source(twin, case, signal, FILL)
            brain = scores > FILL + EDGE
            out[:, :, z] = np.where(brain, np.maximum(scores * signal.deviation + signal.mean, 0.0), 0.0).T
    return out


def to_source(plane: NDArray[np.float32], case: Case, signal: Signal, fill: float) -> NDArray[np.float32]:
    """A plane of a slice `[H, W]` in the grid of the images, `[Y, X]`; beyond the slice's frame it is `fill`."""
    X, Y, _ = signal.voxels.shape
    to_slice = np.linalg.inv(case.record.slice_affine) @ signal.affine  # voxel → (column, row, z); axes are parallel
    steps = to_slice[[0, 1], [0, 1]]
    x_start, y_start = to_slice[:2, 3] + 0.5 - 0.5 * steps
    turn = (steps[0], 0.0, x_start, 0.0, steps[1], y_start)
    image = Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32))
    drawn = image.transform((X, Y), Image.Transform.AFFINE, turn, Image.Resampling.BILINEAR, fillcolor=fill)
    return np.asarray(drawn, dtype=np.float32)


def _batches(case: Case, progress: Progress) -> Iterator[slice]:
    """Slices some at a time; reports as they are done."""
    slices = case.record.slice_count
    for start in range(0, slices, BATCH):
        progress(start, slices, "decoding slices")
        yield slice(start, start + BATCH)
    progress(slices, slices, "writing the file")


def _tidy(folder: Path) -> None:
    """Let the oldest files go."""
    files = sorted(folder.glob("*.nii.gz"), key=lambda file: file.stat().st_mtime)
    for file in files[: max(0, len(files) - KEPT + 1)]:
        file.unlink(missing_ok=True)
