"""Runs that are killed, interrupted or cut short go on with the very same bits."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import load_file

from diptych.errors import InputError, StoreError, TrainingError, UsageError
from diptych.files import only_writer
from diptych.model import FeatureDecomposingNetwork, load_model, save_model
from diptych.slices import SliceStore
from diptych.training import Length, TrainingOptions, guard, train, trainer
from tests.training.tiny import SETTINGS, tiny_store

STEPS = 16


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SliceStore:
    return tiny_store(tmp_path_factory.mktemp("resume") / "store")


def request_for(store: SliceStore, out: Path, *, steps: int = STEPS) -> TrainingOptions:
    return TrainingOptions(
        out=out,
        stores=(store.path,),
        preset="cpu-8x8",
        overrides=SETTINGS,
        length=Length(steps=steps),
        threads=1,
    )


@pytest.fixture(scope="module")
def straight(store: SliceStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    out = tmp_path_factory.mktemp("straight") / "run"
    train(request_for(store, out))
    return out


def last_tensors(run: Path) -> bytes:
    return (max(run.glob("checkpoints/step-*")) / "tensors.safetensors").read_bytes()


def start_command(store: SliceStore, out: Path, *, steps: int = STEPS) -> subprocess.Popen[str]:
    changes = [word for setting in SETTINGS for word in ("--set", setting)]
    command = ["train", store.path, "--preset", "cpu-8x8", "--out", out, "--steps", steps, "--threads", 1, *changes]
    return subprocess.Popen(
        [sys.executable, "-m", "diptych", *map(str, command)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not happened() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()


def rows(run: Path, table: str = "log.csv") -> list[dict[str, str]]:
    path = run / table
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def test_killed_and_resumed_gives_the_same_bits(store: SliceStore, straight: Path, tmp_path: Path) -> None:
    out, fatal_step = tmp_path / "run", random.Random(os.getpid()).randint(4, STEPS - 4)
    process = start_command(store, out)
    wait_for(lambda: len(rows(out)) >= fatal_step, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    train(TrainingOptions(out=out, resume=True))
    assert last_tensors(out) == last_tensors(straight)
    assert [row["loss"] for row in rows(out)] == [row["loss"] for row in rows(straight)]


def test_interrupt_saves_after_the_step(store: SliceStore, tmp_path: Path) -> None:
    options = request_for(store, tmp_path / "run")

    def interrupt(done: int, total: int, note: str = "") -> None:
        if done == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(options, progress=interrupt)
    assert max(options.out.glob("checkpoints/step-*")).name == "step-00000003"


@pytest.mark.slow
@pytest.mark.e2e
def test_interrupted_command_exits_with_130(store: SliceStore, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start_command(store, out, steps=100_000)
    wait_for(lambda: len(rows(out)) >= 3, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert max(out.glob("checkpoints/step-*")).name == f"step-{int(rows(out)[-1]['step']):08d}"


def test_failure_while_saving_keeps_the_run(
    store: SliceStore, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = request_for(store, tmp_path / "run")
    replace_in_place = os.replace

    def full_disk(source: Path, target: Path) -> None:
        if Path(target).name == "step-00000010":
            raise OSError(28, "No space left on device")
        replace_in_place(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full_disk)
        with pytest.raises(OSError, match="No space"):
            train(options)
    train(replace(options, resume=True))
    assert last_tensors(options.out) == last_tensors(straight)


def test_resuming_a_finished_run_changes_nothing(straight: Path) -> None:
    before = last_tensors(straight)
    train(TrainingOptions(out=straight, resume=True))
    assert last_tensors(straight) == before


def test_run_leaves_what_it_promises(straight: Path) -> None:
    report = json.loads((straight / "report.json").read_text())
    validations = rows(straight, "validation.csv")
    best = max(validations, key=lambda row: float(row["score"]))
    assert report["best"]["step"] == int(best["step"])
    assert load_model(straight / "model").config.image_size == (48, 32)
    assert len(list((straight / "pictures").glob("*.png"))) == len(validations)


def test_losses_fall(straight: Path) -> None:
    losses = [float(row["reconstruction"]) for row in rows(straight)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_two_writers_are_not_allowed(store: SliceStore, tmp_path: Path) -> None:
    options = replace(request_for(store, tmp_path / "run"), resume=True)
    options.out.mkdir()
    with only_writer(options.out), pytest.raises(InputError, match="another run is writing here"):
        train(options)


def test_broken_numbers_stop_with_advice(store: SliceStore, tmp_path: Path) -> None:
    options = request_for(store, tmp_path / "run", steps=5)
    options = replace(options, overrides=(*SETTINGS, "learning_rate=1e30", "warmup_steps=0", "clip_norm=0"))
    with pytest.raises(TrainingError, match="is not a finite number"):
        train(options)
    tensors = load_file(max(options.out.glob("checkpoints/step-*")) / "tensors.safetensors")
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_a_collapse_stops_with_a_checkpoint(store: SliceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "COLLAPSE_SHARE", 2.0)  # no codebook can use twice its codes
    monkeypatch.setattr(trainer, "Guard", partial(guard.Guard, patience=3))
    options = request_for(store, tmp_path / "run", steps=30)
    with pytest.raises(TrainingError, match="step 4: the normal codebook has collapsed"):
        train(options)
    assert max(options.out.glob("checkpoints/step-*")).name == "step-00000003"


def test_a_paper_run_goes_on_with_unused_codes_and_exports_its_last_weights(tmp_path: Path) -> None:
    """A tiny `paper-8x8` from its first step to its last; it says what batch statistics are taken over."""
    store = tiny_store(tmp_path / "store", blank=True)
    sizes = ("image_size=48x32", "latent_size=6x4", "field_mm=60x48", "widths=8,8,8,8", "code_width=8")
    changes = (*sizes, "codebook_size=64", "batch_size=8", "micro_batch=4", "critic_steps=1")
    out, said = tmp_path / "run", list[str]()
    request = TrainingOptions(out, (store.path,), "paper-8x8", changes, Length(steps=14), threads=1)
    report = train(request, say=said.append)
    assert said[0] == "batch normalisation takes its statistics over 4 slices at a time, not over the batch of 8"
    assert (report["exported"], report["best"]["step"]) == ("last", 14)
    last = load_file(max(out.glob("checkpoints/step-*")) / "tensors.safetensors")
    exported = load_file(out / "model" / "model.safetensors")
    assert all(bool((last[f"network/{name}"] == tensor).all()) for name, tensor in exported.items())


def test_a_paper_preset_wants_the_blank_slices(store: SliceStore, tmp_path: Path) -> None:
    sizes = ("image_size=48x32", "latent_size=6x4", "field_mm=60x48", "widths=8,8,8,8")
    request = TrainingOptions(tmp_path / "run", (store.path,), "paper-8x8", sizes, Length(steps=1))
    with pytest.raises(StoreError, match=r"has no blank slices.*--blank.*--set blank_slices=false"):
        train(request)


def test_minutes_bound_a_run(store: SliceStore, tmp_path: Path) -> None:
    options = replace(request_for(store, tmp_path / "run"), length=Length(minutes=0.05))
    report = train(options)
    assert 0 < report["seconds"] < 30
    saved = load_file(max(options.out.glob("checkpoints/step-*")) / "tensors.safetensors")
    assert "critic_optimizer/0.exp_avg" in saved


def test_a_run_begins_with_the_weights_of_a_model(store: SliceStore, straight: Path, tmp_path: Path) -> None:
    request = replace(request_for(store, tmp_path / "run", steps=1), start_from=straight / "model")
    before = load_model(straight / "model")
    train(replace(request, overrides=(*SETTINGS, "learning_rate=0", "weight_decay=0", "average_decay=0")))
    after = load_model(tmp_path / "run/model")
    assert all(old.equal(new) for old, new in zip(before.parameters(), after.parameters(), strict=True))
    config = json.loads((tmp_path / "run/config.json").read_text(encoding="utf-8"))
    assert config["started_from"] == before.fingerprint


def test_a_run_takes_the_layers_in_common_from_a_model_of_another_shape(
    store: SliceStore, straight: Path, tmp_path: Path
) -> None:
    settings = (*SETTINGS, "learning_rate=0", "weight_decay=0", "average_decay=0", "code_width=12", "codebook_size=9")
    request = replace(request_for(store, tmp_path / "run", steps=1), start_from=straight / "model", overrides=settings)
    train(request)
    before, after = load_model(straight / "model"), load_model(tmp_path / "run/model")
    assert before.config.code_width != 12
    assert after.image_decoder.out.weight.equal(before.image_decoder.out.weight)
    assert after.normal_quantizer.codebook.shape == (9, 12)


def test_a_model_of_other_channels_gives_the_layers_in_common(
    store: SliceStore, straight: Path, tmp_path: Path
) -> None:
    other = FeatureDecomposingNetwork(replace(load_model(straight / "model").config, description=None, channels=3))
    save_model(other, tmp_path / "other")
    settings = (*SETTINGS, "learning_rate=0", "weight_decay=0", "average_decay=0")
    request = replace(request_for(store, tmp_path / "run", steps=1), start_from=tmp_path / "other", overrides=settings)
    train(request)
    after = load_model(tmp_path / "run/model")
    assert after.description.channels == ("t1", "t1gd", "t2", "flair")
    assert after.segmentation_decoder.out.weight.equal(other.segmentation_decoder.out.weight)


def test_a_run_of_constant_steps_can_be_given_a_later_end(store: SliceStore, tmp_path: Path) -> None:
    constant = replace(request_for(store, tmp_path / "run", steps=1), overrides=(*SETTINGS, "schedule=constant"))
    whole = replace(constant, out=tmp_path / "whole", length=Length(steps=2))
    train(constant)
    report = train(replace(constant, length=Length(steps=2), resume=True))
    train(whole)
    assert report["steps"] == 2
    assert last_tensors(constant.out) == last_tensors(whole.out)
    with pytest.raises(UsageError, match=r"length\.steps"):
        train(replace(constant, resume=True))
