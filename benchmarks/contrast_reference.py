"""How well does what 'diptych fit references' keeps beside a model tell images that are something else?

python benchmarks/contrast_reference.py PATIENTS --keys val.txt --model MODEL

Two channels exchanged, one image given twice, all alike, inverted contrast, noise in the shape of a brain, something
like a CT: the score (`Judgement.foreign`) of each against that of the same patients as they are, as area under the
curve, and how many are warned of.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from diptych.fitting.reference_fit import training_patients
from diptych.model import load_model
from diptych.model.shipped import named_model
from diptych.retrieval.model_reference import load_reference
from diptych.volumes import PatientFiles, Volume, read_patient
from diptych.volumes.channel_check import Reference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patients", type=Path)
    parser.add_argument("--keys", type=Path, help="file with the patients to use, one key per line")
    parser.add_argument("--model", type=Path, default=Path("cpu-16x16"), help="folder or name of the model")
    options = parser.parse_args()
    folder = named_model(options.model)
    reference = load_reference(folder, fingerprint=load_model(folder).fingerprint)
    if reference is None:
        raise SystemExit(f"{folder}: has no references; make them with 'diptych fit references'")
    report(training_patients([options.patients], options.keys), reference)


def read(files: PatientFiles, reference: Reference) -> Volume:
    """The reference's channels, in its order."""
    volume = read_patient(replace(files, twin={}, lesion=None, anatomy=None))
    places = [volume.channels.index(name) for name in reference.channels]
    return replace(volume, channels=reference.channels, array=volume.array[places])


def cases(volume: Volume, seed: int) -> Iterator[tuple[str, Volume]]:
    """A patient as it is, first, and as it must not be taken."""
    yield "as they are", volume
    rng, array, brain = np.random.default_rng(seed), volume.array, volume.brain
    channels = list(range(len(volume.channels)))
    for one, other in combinations(channels, 2):
        order = list(channels)
        order[one], order[other] = other, one
        yield f"{volume.channels[one]} and {volume.channels[other]} exchanged", replace(volume, array=array[order])
    if len(channels) > 1:
        yield "last a copy of the first", replace(volume, array=array[[*channels[:-1], 0]])
        yield "all alike", replace(volume, array=array[[0] * len(channels)])
    top = np.percentile(array[:, brain], 99.5, axis=1)[:, None, None, None]
    yield "inverted", replace(volume, array=np.where(array > 0, (top - array).clip(top / 100), 0).astype(np.float32))
    noise = np.where(brain, rng.normal(100, 20, array.shape).clip(1), 0)
    yield "noise", replace(volume, array=noise.astype(np.float32))
    edge = brain & ~np.roll(brain, 1, axis=0)
    ct = np.where(edge, 1000.0, np.where(brain, rng.normal(35, 4, array.shape).clip(1), 0))
    yield "like a CT", replace(volume, array=ct.astype(np.float32))


def report(patients: list[PatientFiles], reference: Reference) -> None:
    """A line for each case."""
    scores: dict[str, list[float]] = {}
    for seed, files in enumerate(patients):
        for name, changed in cases(read(files, reference), seed):
            judged = reference.judge(changed)
            scores.setdefault(name, []).append(np.inf if judged is None else judged.foreign)
    usual = np.array(scores["as they are"])
    for name, found in scores.items():
        values = np.array(found)
        area = float(np.mean(values[:, None] > usual) + 0.5 * np.mean(values[:, None] == usual))
        print(f"{name:26} warned {np.mean(values > 1):4.0%}   AUROC {area:.3f}   median score {np.median(values):.2f}")


if __name__ == "__main__":
    main()
