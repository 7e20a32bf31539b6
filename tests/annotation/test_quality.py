"""Verdicts on anatomy labels: what is unusual is said, what cannot be right is not used."""

from __future__ import annotations

import numpy as np

from diptych.annotation.quality import Quality, judge
from diptych.annotation.registration import Placed, Registered

VOXEL_ML = 1.0
SIZES = {1: 500, 2: 490, 3: 60, 4: 62, 5: 9, 6: 8}


def verdict_on(sizes: dict[int, int], *, noise: float = 0.1, missing: float = 0.0) -> Quality:
    """Judge labels of these sizes on a brain that resembles the template up to `noise`."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.array(list(sizes), dtype=np.uint8), list(sizes.values())).reshape(-1, 1, 1)
    model = rng.uniform(1, 2, (4000, 1, 1)).astype(np.float32)
    signal = (model + noise * rng.standard_normal(model.shape)).clip(0.1).astype(np.float32)
    model[: round(missing * len(model))] = 0
    registered = Registered(labels, (Placed(signal, np.eye(4)),), model, np.ones(model.shape, dtype=np.bool_))
    return judge(registered, labels, VOXEL_ML)


def test_usual_labels_are_good() -> None:
    quality = verdict_on(SIZES)
    assert (quality.verdict, quality.remarks) == ("good", ())
    assert quality.volumes_ml["left cerebrum"] == 500
    assert quality.similarity > 0.8


def test_an_unusual_volume_is_to_be_checked() -> None:
    quality = verdict_on(SIZES | {5: 60, 6: 58})
    assert quality.verdict == "check"
    assert quality.remarks[0] == "The left lateral ventricle has 60.0 ml; 3 to 40 are usual."


def test_unequal_sides_are_to_be_checked() -> None:
    quality = verdict_on(SIZES | {1: 600, 2: 400})
    assert quality.verdict == "check"
    assert quality.remarks == ("The left cerebrum is much larger than the other (20% of both).",)


def test_a_label_that_is_missing_has_failed() -> None:
    sizes = {value: size for value, size in SIZES.items() if value not in (3, 4)}
    assert verdict_on(sizes).verdict == "failed"


def test_a_registration_that_explains_nothing_has_failed() -> None:
    assert verdict_on(SIZES, noise=50.0).verdict == "failed"


def test_an_outline_that_does_not_fit_has_failed() -> None:
    assert verdict_on(SIZES, missing=0.5).verdict == "failed"
