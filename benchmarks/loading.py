"""How fast slices are prepared and loaded, beside how fast the network can use them.

    python benchmarks/loading.py                                made-up brains of 120x120x78 voxels at 2 mm
    python benchmarks/loading.py --source FOLDER                patients of yours
    python benchmarks/loading.py --json                         for a machine

Prints patients per minute for `diptych prepare` (files read, sliced, written, hashed), slices per second for batches
of 32 with contrast augmentation, both with 1 and 2 processes, and images per second of a training step with the
cpu-8x8 preset. Loading must outrun training at least 5 times.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from diptych.config import get_preset
from diptych.slices import ROBUST_AUGMENTATION, MatchedSampler, SliceDataset, SliceStore, load_batches
from diptych.slices.preparation import prepare
from diptych.training.distributed import Workers
from diptych.training.step import Learner
from diptych.volumes import write_nifti

BATCH = 32
NEEDED = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of preparing and loading slices.")
    parser.add_argument("--source", type=Path, help="folder with patients; default: made-up brains")
    parser.add_argument("--patients", type=int, default=12, help="how many brains to make up")
    parser.add_argument("--batches", type=int, default=60, help="batches to load for each figure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = arguments.source or make_up(Path(folder) / "patients", arguments.patients)
        figures = measure(source, Path(folder), arguments.batches)
    if arguments.json:
        print(json.dumps(figures, indent=1))
    else:
        for name, value in figures.items():
            print(f"{name:<42}{value:10.1f}")
    if figures["loading / training (1 process)"] < NEEDED:
        raise SystemExit(f"loading must outrun training {NEEDED:g} times")


def measure(source: Path, folder: Path, batches: int) -> dict[str, float]:
    figures = {}
    for workers in (1, 2):
        report = prepare([source], folder / f"store-{workers}", workers=workers)
        figures[f"patients per minute ({_processes(workers)})"] = len(report.written) / report.seconds * 60
    dataset = SliceDataset(SliceStore.open(folder / "store-1"), augmentation=ROBUST_AUGMENTATION)
    for workers in (1, 2):
        figures[f"slices per second ({_processes(workers)})"] = loading_rate(dataset, batches, workers)
    figures["training images per second (cpu-8x8)"] = training_rate(dataset)
    loading = figures["slices per second (1 process)"]
    figures["loading / training (1 process)"] = loading / figures["training images per second (cpu-8x8)"]
    return figures


def loading_rate(dataset: SliceDataset, batches: int, workers: int) -> float:
    """Slices per second once the first batches are there; the start of the processes is not counted."""
    sampler = MatchedSampler(dataset.table, batch_size=BATCH, seed=0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    loader = load_batches(dataset, sampler, range(batches + 8), workers=workers if workers > 1 else 0)
    for _ in range(8):  # what two processes have loaded ahead while they were started
        next(loader)
    started = time.perf_counter()
    loaded = sum(len(batch) for batch in loader)
    torch.set_num_threads(threads)
    return loaded / (time.perf_counter() - started)


def training_rate(dataset: SliceDataset, steps: int = 3) -> float:
    """Images per second of whole training steps on all cores."""
    learner = Learner(get_preset("cpu-8x8"), Workers(0, 1, torch.device("cpu")))
    sampler = MatchedSampler(dataset.table, batch_size=BATCH, seed=0)
    batches = list(load_batches(dataset, sampler, range(steps + 1)))
    learner.start_codebooks(batches[:1])
    for step, batch in enumerate(batches):
        if step == 1:
            started = time.perf_counter()
        learner.gradients(batch, step)
        learner.update(1e-3, step + 1)
    return steps * BATCH / (time.perf_counter() - started)


def make_up(folder: Path, count: int) -> Path:
    """Noisy egg-shaped brains with a lesion, as large as a 2-mm BraTS volume and as hard to compress."""
    X, Y, Z = 120, 120, 78
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, n) for n in (X, Y, Z)), indexing="ij")
    brain = (x / 0.6) ** 2 + (y / 0.78) ** 2 + (z / 0.9) ** 2 < 1
    lesion = ((x - 0.2) ** 2 + (y - 0.1) ** 2 + (z - 0.2) ** 2 < 0.04).astype(np.uint8)
    for number in range(count):
        rng = np.random.default_rng(number)
        patient = folder / f"made-up-{number:03d}"
        patient.mkdir(parents=True)
        for channel in ("t1n", "t1c", "t2w", "t2f"):
            signal = (rng.uniform(60, 220, (X, Y, Z)) * brain).astype(np.uint8)
            write_nifti(patient / f"{patient.name}-{channel}.nii.gz", signal, np.diag([-2.0, -2.0, 2.0, 1.0]))
        write_nifti(patient / f"{patient.name}-seg.nii.gz", lesion, np.diag([-2.0, -2.0, 2.0, 1.0]))
    return folder


def _processes(workers: int) -> str:
    return "1 process" if workers == 1 else f"{workers} processes"


if __name__ == "__main__":
    main()
