"""Who is held out by which model: patients dealt into folds so that one person is never in two.

A person is known by the patient key, by time points of one subject, and by equal voxels. Knows no images.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from diptych.errors import UsageError
from diptych.volumes import subject_of

__all__ = ["deal_folds"]


def deal_folds(voxel_hashes: Mapping[str, str], folds: int, *, seed: int) -> list[tuple[str, ...]]:
    """Deal patient keys into `folds` groups of nearly equal size, in an order set by `seed`.

    Args:
        voxel_hashes: Patient key to the hash of the patient's voxels.

    >>> deal_folds({"a": "1", "b": "2", "c": "3", "d": "1"}, 2, seed=0)
    [('a', 'd'), ('b', 'c')]
    """
    if folds < 2:
        raise UsageError(f"--folds {folds}: cross-validation needs at least 2")
    people = _people(voxel_hashes)
    if len(people) < folds:
        raise UsageError(
            f"{len(people)} labelled patients that can be used, but {folds} folds: each fold holds out at least one; "
            "add patients, or ask for fewer --folds"
        )
    order = np.random.default_rng(seed).permutation(len(people)).tolist()
    order.sort(key=lambda number: -len(people[number]))  # stable: equal groups stay shuffled
    dealt: list[list[str]] = [[] for _ in range(folds)]
    for number in order:
        min(dealt, key=len).extend(people[number])
    return [tuple(sorted(keys)) for keys in dealt]


def _people(voxel_hashes: Mapping[str, str]) -> list[list[str]]:
    """Keys that belong to one person, directly or through a third key."""
    groups: list[tuple[set[str], list[str]]] = []
    for key, voxels in sorted(voxel_hashes.items()):
        marks = {f"subject {subject_of(key)}", f"voxels {voxels}"}
        same = [group for group in groups if group[0] & marks]
        merged = (marks.union(*(group[0] for group in same)), [key for group in same for key in group[1]] + [key])
        groups = [group for group in groups if group not in same] + [merged]
    return [keys for _, keys in groups]
