"""How often are exchanged channels noticed by what 'diptych fit references' keeps beside a model?

python benchmarks/contrast_reference.py PATIENTS --keys test.txt
python benchmarks/contrast_reference.py PATIENTS --keys val.txt --model MODEL
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import combinations
from pathlib import Path

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


def report(patients: list[PatientFiles], reference: Reference) -> None:
    """Warnings on patients as they are, with two channels exchanged, and with the last one a copy of the first."""
    channels = range(len(reference.channels))
    counts: dict[str, int] = {}
    for files in patients:
        volume = read(files, reference)
        cases = {"as they are": list(channels)}
        if len(channels) > 1:
            cases["one twice"] = [*channels[:-1], 0]
        for one, other in combinations(channels, 2):
            order = list(channels)
            order[one], order[other] = other, one
            cases[f"{reference.channels[one]} and {reference.channels[other]} exchanged"] = order
        for name, order in cases.items():
            noticed = reference.warnings(replace(volume, array=volume.array[order]))
            counts[name] = counts.get(name, 0) + bool(noticed)
    for name, count in counts.items():
        print(f"{name:30} warned {count:3} of {len(patients)}")


if __name__ == "__main__":
    main()
