"""Trouble in training is noticed, named, and comes with advice."""

from __future__ import annotations

import math
from types import SimpleNamespace

import psutil
import pytest
import torch

from diptych.errors import TrainingError
from diptych.training.guard import WORKSPACE, Guard, name_memory_failure, require_memory
from diptych.training.trainer import doubts_about


def repeat(guard: Guard, metrics: dict[str, float]) -> None:
    for step in range(100):
        guard.check(step, metrics)


def test_healthy_metrics_pass() -> None:
    metrics = {"loss": 3.0, "critic": -4.0, "normal_perplexity": 120.0, "abnormal_perplexity": 9.0}
    repeat(Guard(256, patience=20), metrics)


def test_a_quiet_abnormal_panel_is_no_collapse() -> None:
    repeat(Guard(256, patience=20, quiet=True), {"normal_perplexity": 120.0, "abnormal_perplexity": 1.6})
    with pytest.raises(TrainingError, match="the normal codebook has collapsed"):
        repeat(Guard(256, patience=20, quiet=True), {"normal_perplexity": 1.6})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_not_a_number_is_named_at_once(value: float) -> None:
    with pytest.raises(
        TrainingError, match=r"step 7: segmentation is not a finite number.*learning_rate.* --precision float32$"
    ):
        Guard(256).check(7, {"reconstruction": 1.0, "segmentation": value})


def test_runaway_critic_is_named() -> None:
    guard = Guard(256, patience=20)
    with pytest.raises(TrainingError, match=r"step 2: the critic's loss has run away to -3e\+05.*critic_learning_rate"):
        repeat(guard, {"critic": -3e5})


def test_one_bad_step_of_the_critic_is_forgiven() -> None:
    guard = Guard(256, patience=20)
    for step in range(20):
        guard.check(step, {"critic": 3e5 if step % 3 == 0 else 1.0})


def test_collapse_is_named_after_patience() -> None:
    guard = Guard(512, patience=20)
    with pytest.raises(TrainingError, match=r"step 20: the normal codebook has collapsed to about 3\.0 codes"):
        repeat(guard, {"normal_perplexity": 3.0, "abnormal_perplexity": 100.0})


def test_a_validation_without_perplexity_is_no_reprieve() -> None:
    guard = Guard(512, patience=20)
    for step in range(20):
        guard.check(step, {"abnormal_perplexity": 3.0})
        guard.check(step, {"score": 0.1})
    with pytest.raises(TrainingError, match="the abnormal codebook has collapsed"):
        guard.check(20, {"abnormal_perplexity": 3.0})


def test_a_collapse_that_is_expected_is_told_once() -> None:
    said: list[str] = []
    guard = Guard(512, patience=20, expects_unused=True, say=said.append)
    repeat(guard, {"normal_perplexity": 3.0, "abnormal_perplexity": 100.0})
    assert len(said) == 1
    assert said[0].startswith("step 20: the normal codebook has collapsed to about 3.0 codes")


def test_out_of_memory_names_the_size_to_try() -> None:
    message = r"out of memory with 16 images of 96x64 at a time \(batch 112\); try --set micro_batch=8"
    with pytest.raises(TrainingError, match=message), name_memory_failure(112, 16, (96, 64)):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: not enough memory: you tried …")


def test_other_failures_pass_through() -> None:
    with pytest.raises(RuntimeError, match="shape mismatch"), name_memory_failure(112, 16, (96, 64)):
        raise RuntimeError("shape mismatch")


def test_part_that_cannot_fit_is_refused_with_one_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    per_image = 100 * 2**20
    free = SimpleNamespace(available=int(11 * per_image * WORKSPACE))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    require_memory(per_image, 10, 112, (96, 64), torch.device("cpu"))
    with pytest.raises(TrainingError, match=r"12 images of 96x64 at a time need .*try --set micro_batch=10"):
        require_memory(per_image, 12, 112, (96, 64), torch.device("cpu"))


def test_a_network_that_finds_nothing_is_not_handed_over_without_a_word() -> None:
    sound = {"dice_whole": 0.4, "normal_usage": 0.7, "abnormal_usage": 0.3}
    assert doubts_about(sound) == []
    first, second = doubts_about({**sound, "dice_whole": 0.0, "abnormal_usage": 1 / 256})
    assert "finds no lesion" in first
    assert "abnormal codebook has collapsed" in second
