"""How close `diptych index` comes to the network alone: slices per second of both, in turns, on the same cores.

    python benchmarks/indexing.py                        six phantoms of 1 mm voxels, made first (about five minutes)
    python benchmarks/indexing.py --patients FOLDER      patients of your own
    python benchmarks/indexing.py --voxel-mm 2 --threads 1

`encode` is the encoder over slices that were read and cut before. `index` is all there is, as the command does it:
hashing, reading, cutting, encoding, label maps, de-identified copies, and one transaction per patient. Ratios are what
counts; the goal is 80 %. The share by processor time says how far it could come if both cores were always busy.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from diptych.archive import ArchiveWriter
from diptych.archive.encoding import BATCH_SIZE, NetworkEncoder, cut_slices
from diptych.archive.indexing import index_patients
from diptych.metrics.label_indexing import VolumeDecoder, volume_decoder
from diptych.model import load_model
from diptych.model.shipped import shipped_model
from diptych.phantom import PhantomConfig, write_phantoms
from diptych.processes import cores
from diptych.slices import SliceStack
from diptych.volumes import PatientFiles, read_patient
from diptych.volumes.sources import find_sources

ROUNDS = 3
GOAL = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=Path)
    parser.add_argument("--count", type=int, default=6, help="how many patients to take, or to make")
    parser.add_argument("--voxel-mm", type=float, default=1.0, help="of the phantoms")
    parser.add_argument("--threads", type=int, default=cores())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        source = options.patients or make_patients(Path(folder) / "patients", options.count, options.voxel_mm)
        report(find_sources([source])[: options.count], Path(folder), options.threads)


def make_patients(folder: Path, count: int, voxel_mm: float) -> Path:
    write_phantoms(folder, patients=count, seed=0, config=PhantomConfig(voxel_mm=voxel_mm, samples=1), workers=cores())
    return folder


def report(patients: list[PatientFiles], folder: Path, threads: int) -> None:
    """Take turns, and let the fastest round of each count: other work on the machine disturbs both alike."""
    network = load_model(shipped_model())
    encoder, decode = NetworkEncoder(network), volume_decoder(network, shipped_model())
    stacks = [cut_slices(read_patient(replace(files, twin={})), encoder) for files in patients]
    slices = sum(len(stack.images) for stack in stacks)
    encoded, indexed = [], []
    for turn in range(ROUNDS):
        before = time.process_time()
        encoded.append(slices / seconds_to_encode(encoder, stacks))
        between = time.process_time()
        indexed.append(slices / seconds_to_index(encoder, decode, patients, folder / f"archive-{turn}"))
        busy = (between - before) / (time.process_time() - between)
        rates = f"encode {encoded[-1]:6.1f} slices/s, index {indexed[-1]:6.1f}"
        print(f"round {turn + 1}: {rates}; by processor time {busy:.0%}", flush=True)
    share = max(indexed) / max(encoded)
    print(f"{len(patients)} patients, {slices} slices, {threads} threads: index reaches {share:.0%} of encode", end=" ")
    print(f"(goal {GOAL:.0%})")


def seconds_to_encode(encoder: NetworkEncoder, stacks: list[SliceStack]) -> float:
    started = time.perf_counter()
    for stack in stacks:
        for start in range(0, len(stack.images), BATCH_SIZE):
            encoder.encode(stack.images[start : start + BATCH_SIZE])
    return time.perf_counter() - started


def seconds_to_index(
    encoder: NetworkEncoder, decode: VolumeDecoder, patients: list[PatientFiles], archive: Path
) -> float:
    started = time.perf_counter()
    with ArchiveWriter.open(archive, model=encoder.identity) as writer:
        index_patients(writer, encoder, patients, decode=decode)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
