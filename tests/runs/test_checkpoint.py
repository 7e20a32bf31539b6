"""Checkpoints come back as they were, and no failure while writing one takes the last one away."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from diptych.errors import InputError
from diptych.runs.checkpoint import Checkpoint, load_checkpoint, optimizer_tensors, restore_optimizer, save_checkpoint


def make_checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step=step, tensors={"a/b": torch.full((2, 3), float(step))}, state={"planned_steps": 9})


def test_comes_back_as_it_was(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, make_checkpoint(4))
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert (loaded.step, loaded.state, loaded.tensors["a/b"].tolist()) == (4, {"planned_steps": 9}, [[4.0] * 3] * 2)


def test_two_newest_stay(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, make_checkpoint(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]


def test_nothing_there_is_a_fresh_start(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "missing") is None


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the program catches it."""


@pytest.mark.parametrize("fatal_call", range(7))
def test_failure_at_any_point_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fatal_call: int
) -> None:
    save_checkpoint(tmp_path, make_checkpoint(1))
    calls = iter(range(100))

    def dying(function: object) -> object:
        def call(*args: object, **options: object) -> object:
            if next(calls) == fatal_call:
                raise Killed
            return function(*args, **options)  # type: ignore[operator]

        return call

    monkeypatch.setattr("diptych.runs.checkpoint.save_file", dying(save_file))
    monkeypatch.setattr(os, "fsync", dying(os.fsync))
    monkeypatch.setattr(os, "replace", dying(os.replace))
    with suppress(Killed):
        save_checkpoint(tmp_path, make_checkpoint(2))
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded.tensors["a/b"][0, 0] == loaded.step


def test_damaged_newest_falls_back_and_is_named(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, make_checkpoint(1))
    newest = save_checkpoint(tmp_path, make_checkpoint(2)) / "tensors.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x01")
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert (loaded.step, loaded.damaged) == (1, ("step-00000002",))


def test_all_damaged_is_refused(tmp_path: Path) -> None:
    (save_checkpoint(tmp_path, make_checkpoint(1)) / "state.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        load_checkpoint(tmp_path)


def test_optimizer_returns_with_the_layout_of_its_parameters() -> None:
    torch.manual_seed(0)
    network = nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    first = torch.optim.Adam(network.parameters())
    network(torch.randn(2, 4, 5, 7)).sum().backward()
    first.step()
    contiguous = {name: tensor.contiguous() for name, tensor in optimizer_tensors(first).items()}
    second = torch.optim.Adam(network.parameters())
    restore_optimizer(second, contiguous)
    moments = second.state[network.weight]["exp_avg"]
    assert moments.equal(first.state[network.weight]["exp_avg"])
    assert moments.stride() == network.weight.stride()
