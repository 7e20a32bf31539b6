"""Channels that look exchanged, doubled or like something else are said; phantoms as they are pass."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from diptych.errors import ModelError, UsageError
from diptych.phantom import PhantomConfig, make_phantom
from diptych.retrieval.model_reference import load_reference, save_reference, shipped_reference
from diptych.volumes import CHANNELS, Volume, find_patients, read_patient
from diptych.volumes.channel_check import ContrastFeatures, describe, fit_reference


@pytest.fixture(scope="module")
def volume() -> Volume:
    return make_phantom(11, config=PhantomConfig(voxel_mm=4.0, samples=1)).volume


def contrast_warnings(volume: Volume) -> list[str]:
    reference = shipped_reference()
    assert reference is not None
    return reference.warnings(volume)


def with_channels(volume: Volume, order: list[int]) -> Volume:
    return replace(volume, array=volume.array[order])


def test_a_patient_in_order_passes(volume: Volume) -> None:
    assert contrast_warnings(volume) == []


@pytest.mark.parametrize(("one", "other"), list(combinations(range(4), 2)))
def test_two_exchanged_channels_are_named(volume: Volume, one: int, other: int) -> None:
    order = [0, 1, 2, 3]
    order[one], order[other] = other, one
    (warning,) = contrast_warnings(with_channels(volume, order))
    assert f"{CHANNELS[one]} and {CHANNELS[other]} look exchanged" in warning


def test_one_image_for_all_channels_is_not_what_the_model_knows(volume: Volume) -> None:
    (warning,) = contrast_warnings(with_channels(volume, [0, 0, 0, 0]))
    assert "do not look like t1, t1gd, t2, flair" in warning


def test_a_ct_is_not_what_the_model_knows(volume: Volume) -> None:
    """Bone ten times as bright as a brain that hardly varies, given as all four channels."""
    rng = np.random.default_rng(0)
    brain = volume.brain
    edge = brain & ~np.roll(brain, 1, axis=0)
    ct = np.where(edge, 1000.0, np.where(brain, rng.normal(35, 4, brain.shape).clip(1), 0)).astype(np.float32)
    noisy = np.stack([np.where(ct > 0, ct + rng.uniform(0, 2, ct.shape), 0) for _ in CHANNELS]).astype(np.float32)
    assert "not CT" in contrast_warnings(replace(volume, array=noisy))[0]


def another(volume: Volume, seed: int, channel: int = 0) -> Volume:
    """One channel of a patient a little unlike the others: another gamma, another noise."""
    rng = np.random.default_rng(seed)
    signal = volume.array[[channel]] / volume.array[channel].max()
    changed = signal ** rng.uniform(0.85, 1.15) * rng.normal(1, 0.03, signal.shape)
    return replace(volume, channels=("t1",), array=np.where(signal > 0, changed.clip(1e-3), 0).astype(np.float32))


def test_a_model_of_one_channel_has_a_reference_of_its_own(volume: Volume, tmp_path: Path) -> None:
    known = [describe(another(volume, seed), ["t1"]) for seed in range(12)]
    fitted = fit_reference(["t1"], [found for found in known if found is not None])
    save_reference(fitted, tmp_path, fingerprint="abc")
    reference = load_reference(tmp_path, fingerprint="abc")
    assert reference is not None
    assert reference.patients == 12
    assert reference.warnings(another(volume, 12)) == []
    assert (
        "do not look like t1 of a skull-stripped brain that the model knows ("
        in reference.warnings(another(volume, 12, channel=2))[0]
    )
    with pytest.raises(ModelError, match="made for model abc"):
        load_reference(tmp_path, fingerprint="def")


def test_too_few_patients_say_nothing_about_what_is_usual() -> None:
    with pytest.raises(UsageError, match="at least 12"):
        fit_reference(["t1"], [])


def test_fewer_channels_are_judged_by_what_is_known_of_them(volume: Volume) -> None:
    def some(*places: int, named: tuple[str, ...]) -> Volume:
        return replace(volume, channels=named, array=volume.array[list(places)])

    assert contrast_warnings(some(0, named=("t1",))) == []
    assert contrast_warnings(some(0, 3, named=("t1", "flair"))) == []
    assert "t1 and t2 look exchanged" in contrast_warnings(some(2, 0, named=("t1", "t2")))[0]
    assert contrast_warnings(some(0, named=("ct",))) == []


def test_a_twentieth_of_known_patients_may_be_called_strange() -> None:
    rng = np.random.default_rng(3)

    def person() -> ContrastFeatures:
        return ContrastFeatures(rng.normal(size=(2, 5)), np.array([[0, 1], [1, 0]]) * rng.normal())

    reference = fit_reference(["t1", "t2"], [person() for _ in range(300)])
    strange = np.array([reference.strangeness(person(), (0, 1)) for _ in range(300)])
    assert 0.01 < float(np.mean(strange > reference.limit)) < 0.12


@pytest.mark.data
def test_real_patients_pass_and_exchanged_t1_and_t2_do_not(brats: Path) -> None:
    chosen = set((brats / "test.txt").read_text().split()[:6])
    for files in find_patients(brats / "patients"):
        if files.patient_key in chosen:
            volume = read_patient(replace(files, lesion=None, anatomy=None))
            assert contrast_warnings(volume) == []
            assert contrast_warnings(with_channels(volume, [2, 1, 0, 3])) != []
