"""Training and test patients: chosen by seed or given as lists, and never one person on both sides.

A person is on both sides when a patient key is, when two keys name time points of one subject, or when two keys have
the same voxels. Works on patient records alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from diptych.errors import StoreError, UsageError
from diptych.slices.store_record import PatientRecord
from diptych.volumes.people import group_people, subject_of


@dataclass(frozen=True)
class Split:
    """Patient keys for training and for testing."""

    train: tuple[str, ...]
    test: tuple[str, ...]

    def save(self, path: Path | str) -> None:
        """Write as JSON, so that `Split.load` reads it back."""
        Path(path).write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str) -> Split:
        """Read what `save` wrote."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls(tuple(map(str, data["train"])), tuple(map(str, data["test"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path}: not a split ({error}); make one with 'diptych split'") from error


def seeded_split(patients: Mapping[str, PatientRecord], *, train: float, seed: int) -> Split:
    """Shuffle by `seed` and take about the fraction `train` of the patients for training.

    Keys that belong to one person stay together, so the fraction is met as nearly as they allow.
    """
    if not 0 < train < 1:
        raise UsageError(f"training fraction {train}: must lie between 0 and 1, such as 0.8")
    people = group_people(sorted(patients), *_identities(patients).values())
    order = np.random.default_rng(seed).permutation(len(people))
    sides: tuple[list[str], list[str]] = ([], [])
    for number in order:
        full = len(sides[0]) + len(people[number]) / 2 > train * len(patients)
        sides[full].extend(people[number])
    if not all(sides):
        raise UsageError(f"{len(patients)} patients at a training fraction of {train}: one side is empty; add patients")
    split = Split(tuple(sorted(sides[0])), tuple(sorted(sides[1])))
    check_split(split, patients)
    return split


def given_split(patients: Mapping[str, PatientRecord], train: Iterable[str], test: Iterable[str]) -> Split:
    """Take the lists as they are, after checking them."""
    split = Split(tuple(train), tuple(test))
    check_split(split, patients)
    return split


def check_split(split: Split, patients: Mapping[str, PatientRecord]) -> None:
    """Raise `StoreError` when a key is unknown or a person is on both sides, naming both keys."""
    for key in (*split.train, *split.test):
        if key not in patients:
            raise StoreError(f"patient {key}: in the split but not in the store; prepare it or take it off the list")
    both = sorted(set(split.train) & set(split.test))
    if both:
        raise StoreError(f"patient {both[0]}: listed for training and for testing; keep it in one list")
    for what, identity in _identities(patients).items():
        in_training = {identity[key]: key for key in split.train}
        for key in split.test:
            if identity[key] in in_training:
                other = in_training[identity[key]]
                raise StoreError(f"patients {other} (training) and {key} (testing) {what}; put both on one side")


def read_keys(path: Path | str) -> tuple[str, ...]:
    """Patient keys from a text file, one to a line; empty lines and lines that begin with # do not count."""
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read as a list of patient keys ({error})") from error
    return tuple(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


def _identities(patients: Mapping[str, PatientRecord]) -> dict[str, dict[str, str]]:
    """Ways in which two keys can mean one person, each as key → identity."""
    return {
        "are time points of one subject": {key: subject_of(key) for key in patients},
        "have the same voxels": {key: record.voxel_hash for key, record in patients.items()},
    }
