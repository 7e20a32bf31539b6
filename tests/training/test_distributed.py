"""Several processes train as one, and a killed worker does not end the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from diptych.slices import SliceStore
from diptych.training.distributed import Workers
from tests.training.tiny import SETTINGS, tiny_store

LAUNCHER = ("-m", "torch.distributed.run", "--nproc-per-node=2")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SliceStore:
    return tiny_store(tmp_path_factory.mktemp("distributed") / "store")


def start(store: SliceStore, out: Path, *, launcher: tuple[str, ...], steps: int) -> subprocess.Popen[bytes]:
    # k-means sees the same codes in another order when they come from two processes; everything else is the same.
    settings = (*SETTINGS, "codebook_start=normal", "micro_batch=4")
    changes = [word for setting in settings for word in ("--set", setting)]
    command = ["train", store.path, "--preset", "cpu-8x8", "--out", out, "--steps", steps, "--threads", 1, *changes]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "diptych", *map(str, command), "--resume"], env=environment
    )


def tensors(run: Path) -> dict[str, torch.Tensor]:
    return load_file(max(run.glob("checkpoints/step-*")) / "tensors.safetensors")


def test_one_process_needs_no_messages() -> None:
    alone = Workers(rank=0, count=1, device=torch.device("cpu"))
    values = torch.arange(3.0)
    alone.average([values])
    assert alone.is_main
    assert alone.gather(values).equal(torch.arange(3.0))
    assert (alone.any(False), alone.same(2.5)) == (False, 2.5)


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "rtol", "atol"), [(1, 1e-4, 1e-6), (4, 1e-2, 2e-3)])
def test_two_processes_match_one(store: SliceStore, tmp_path: Path, steps: int, rtol: float, atol: float) -> None:
    """After one step the moments, which are the gradients, agree to rounding; Adam then amplifies the rounding."""
    for name, launcher in (("one", ()), ("two", LAUNCHER)):
        assert start(store, tmp_path / name, launcher=launcher, steps=steps).wait(timeout=200) == 0
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    compared = [name for name in one if steps > 1 or "optimizer/" in name]
    for name in compared:
        torch.testing.assert_close(two[name], one[name], rtol=rtol, atol=atol, msg=lambda text: f"{name}: {text}")  # noqa: B023


@pytest.mark.slow
def test_killed_worker_is_restarted_and_the_run_ends(store: SliceStore, tmp_path: Path) -> None:
    out = tmp_path / "run"
    launcher = start(store, out, launcher=(*LAUNCHER, "--max-restarts=1"), steps=60)
    deadline = time.monotonic() + 150
    while not list(out.glob("checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    victim = next(child for child in psutil.Process(launcher.pid).children() if child.environ().get("RANK") == "1")
    os.kill(victim.pid, signal.SIGKILL)
    assert launcher.wait(timeout=250) == 0
    assert max(out.glob("checkpoints/step-*")).name == "step-00000060"
    assert start(store, tmp_path / "calm", launcher=LAUNCHER, steps=60).wait(timeout=250) == 0
    killed, calm = tensors(out), tensors(tmp_path / "calm")
    assert [name for name in calm if not killed[name].equal(calm[name])] == []
