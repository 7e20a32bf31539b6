"""Write what T1, T1Gd, T2 and FLAIR usually look like, or test it: how often are exchanged channels noticed?

    python benchmarks/contrast_reference.py PATIENTS --keys train.txt --write
    python benchmarks/contrast_reference.py PATIENTS --keys test.txt

Needs real patients, so its result is kept in the package (`volumes/channel_check.json`): means over patients,
nobody's own data.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

import diptych.volumes.channel_check as contrast
from diptych.volumes import CHANNELS, PatientFiles, Volume, find_patients, read_patient

SHRINKAGE = 0.3
"""Share of the covariance's diagonal that replaces the rest of it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patients", type=Path)
    parser.add_argument("--keys", type=Path, help="file with the patients to use, one key per line")
    parser.add_argument("--write", action="store_true", help="fit the reference anew and keep it")
    options = parser.parse_args()
    patients = find_patients(options.patients)
    if options.keys:
        chosen = set(options.keys.read_text().split())
        patients = [patient for patient in patients if patient.patient_key in chosen]
    if options.write:
        write_reference(patients)
    report(patients)


def read(files: PatientFiles) -> Volume:
    return read_patient(replace(files, twin={}, lesion=None, anatomy=None))


def fit_reference(patients: list[contrast.Description]) -> contrast.Reference:
    """Mean and inverse shrunken covariance of patients whose channels are in order."""
    features = np.stack([patient.in_order(tuple(range(len(CHANNELS)))) for patient in patients])
    covariance = np.cov(features.T)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.diag(np.diag(covariance))
    return contrast.Reference(features.mean(axis=0), np.asarray(np.linalg.inv(shrunk), dtype=np.float64))


def write_reference(patients: list[PatientFiles]) -> None:
    described = [found for files in patients if (found := contrast.describe(read(files))) is not None]
    fitted = fit_reference(described)
    values = {
        "patients": len(described),
        "mean": np.round(fitted.mean, 4).tolist(),
        "precision": np.round(fitted.precision, 3).tolist(),
    }
    target = Path(contrast.__file__).with_name("channel_check.json")
    target.write_text(json.dumps(values) + "\n", encoding="utf-8")
    print(f"{target.name}: {len(described)} patients")


def report(patients: list[PatientFiles]) -> None:
    """Warnings on patients as they are, with two channels exchanged, and with one given twice."""
    counts: dict[str, int] = {"as they are": 0, "one twice": 0}
    for files in patients:
        volume = read(files)
        counts["as they are"] += bool(contrast.contrast_warnings(volume))
        doubled = volume.array.copy()
        doubled[3] = doubled[0]
        counts["one twice"] += bool(contrast.contrast_warnings(replace(volume, array=doubled)))
        for one, other in combinations(range(len(CHANNELS)), 2):
            order = list(range(len(CHANNELS)))
            order[one], order[other] = other, one
            name = f"{CHANNELS[one]} and {CHANNELS[other]} exchanged"
            noticed = contrast.contrast_warnings(replace(volume, array=volume.array[order]))
            counts[name] = counts.get(name, 0) + bool(noticed)
    for name, count in counts.items():
        print(f"{name:30} warned {count:3} of {len(patients)}")


if __name__ == "__main__":
    main()
