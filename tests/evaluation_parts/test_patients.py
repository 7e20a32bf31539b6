"""Overlap in three dimensions over all pairs, against the few lines that it stands for."""

from __future__ import annotations

import numpy as np

from diptych.evaluation.parts.patients import overlap
from diptych.evaluation.retrieval_score import pack_labels


def test_overlap_is_the_dice_of_stacked_labels() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=(9, 12, 10)).astype(np.uint8)
    stacks = [{0: 0, 1: 1, 2: 2}, {1: 3, 2: 4, 3: 5}, {5: 6, 6: 7, 7: 8}]
    found = overlap(pack_labels(labels, classes=2), stacks, np.array([0, 2]))
    for row, one in enumerate((0, 2)):
        for other in range(3):
            dice = []
            for label in (1, 2):
                shared = sum(
                    np.count_nonzero((labels[at] == label) & (labels[stacks[other][height]] == label))
                    for height, at in stacks[one].items()
                    if height in stacks[other]
                )
                sizes = [np.count_nonzero(labels[list(stacks[side].values())] == label) for side in (one, other)]
                dice.append(2 * shared / sum(sizes))
            np.testing.assert_allclose(found[row, other], np.mean(dice))
