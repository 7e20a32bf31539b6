"""One fold: a network learns from all other patients and is judged on those it never saw.

The loop of a fold. Its last weights are kept: no held-out patient has a say in which weights those are, so their Dice
is an honest one. Everything random is a function of (seed, fold, step); a killed and resumed fold ends with the same
bits, on a CPU with the same number of threads.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from diptych.annotation.lesions.crops import CropSampler
from diptych.annotation.lesions.lesion_cases import Case
from diptych.annotation.lesions.lesion_network import best_device, build_network, dice_focal_loss, probabilities
from diptych.annotation.lesions.lesion_options import LesionRun
from diptych.annotation.lesions.prediction import dice_by_region, lesion_regions, mean_dice
from diptych.errors import TrainingError
from diptych.files import write_json
from diptych.runs.checkpoint import (
    Checkpoint,
    load_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
    with_prefix,
    without_prefix,
)
from diptych.runs.csv_tables import CsvTable, Say, Trend
from diptych.runs.run_length import Plan, cosine_rate

SAVE_EVERY = 120.0
"""Seconds between checkpoints, besides the one after each look."""
LOOKS, LOOKED_AT = 3, 3
"""Looks at held-out patients while training, and how many of them; they steer nothing."""
RESULT = "result.json"

Report = Callable[[int, int, str], None]
"""Steps of this fold done since it began or was resumed, those in all, and a line that shows whether it learns."""


class FoldTrainer:
    """Trains one model; `number` counts from 1."""

    def __init__(self, folder: Path, run: LesionRun, cases: dict[str, Case], number: int, *, say: Say) -> None:
        self.folder = folder
        self.preset = run.preset
        self.number = number
        self.say = say
        held_out = set(run.folds[number - 1])
        self.held_out = [cases[key] for key in sorted(held_out)]
        self.sampler = CropSampler(
            [cases[key] for key in sorted(run.voxels) if key not in held_out], run.preset, fold=number
        )
        self.plan = Plan(run.length, steps_per_epoch=self.sampler.steps_per_epoch)
        self.step = 0

    @property
    def result(self) -> dict[str, Any] | None:
        """What the finished fold found, or None while there is something left to do."""
        path = self.folder / RESULT
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def train(self, stop: Callable[[], bool], report: Report) -> dict[str, Any]:
        """Train to the end of the plan, judge, and return the result; `KeyboardInterrupt` once `stop` says so."""
        self._begin()
        first = self.step
        while not self.plan.done(self.step):
            metrics = self._take_step()
            self.trend.add(metrics["loss"])
            report(self.step - first, self.plan.total(self.step) - first, self._line(metrics))
            asked = stop()
            looks = self._looks()
            if looks:
                self._look()
            if looks or asked or self.plan.seconds - self._saved_at > SAVE_EVERY:
                self._save()
            if asked:
                raise KeyboardInterrupt
        return self._finish()

    def _begin(self) -> None:
        self.device = best_device()
        self.network = build_network(self.preset, fold=self.number).to(self.device)
        self.regions = lesion_regions(self.preset.about)
        self.loss = dice_focal_loss(len(self.preset.about.lesion) + 1)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=self.preset.learning_rate, weight_decay=self.preset.weight_decay
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        if checkpoint := load_checkpoint(self.folder / "checkpoints"):
            self.network.load_state_dict(without_prefix("network", checkpoint.tensors))
            restore_optimizer(self.optimizer, without_prefix("optimizer", checkpoint.tensors))
            self.step = checkpoint.step
            self.plan.restore(checkpoint.state)
            self.say(f"fold {self.number}: resumed after step {self.step}")
        self.log = CsvTable(self.folder / "log.csv", resume_after=self.step)
        self.looks = CsvTable(self.folder / "looks.csv", resume_after=self.step)
        self.trend = Trend()
        self._dice = "–"
        self._saved_at = self.plan.seconds
        self._started_at = time.monotonic() - self.plan.seconds

    def _take_step(self) -> dict[str, float]:
        rate = cosine_rate(
            self.step + 1,
            self.plan.steps,
            peak=self.preset.learning_rate,
            warmup=self.preset.warmup_steps,
            floor=self.preset.final_fraction,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        torch.manual_seed(1000 * self.preset.seed + self.number + (self.step << 20))  # for dropout
        with _named_memory_failure(self.preset.crop, self.preset.batch_size):
            loss, norm = self._gradients()
        if not math.isfinite(loss + norm):
            raise TrainingError(
                f"fold {self.number}, step {self.step + 1}: the loss is not a finite number; "
                "check the images' intensities, and start again with another --seed"
            )
        self.optimizer.step()
        self.step += 1
        self.plan.observe(self.step, time.monotonic() - self._started_at)
        metrics = {"learning_rate": rate, "loss": loss, "gradient_norm": norm}
        timing = {"step": self.step, "seconds": self.plan.seconds, "planned_steps": self.plan.total(self.step)}
        self.log.add({**timing, **metrics})
        return metrics

    def _gradients(self) -> tuple[float, float]:
        """Gradients of the next batch, clipped; returns loss and norm before clipping."""
        crops = self.sampler.draw(self.step)
        images = crops.images.to(self.device, memory_format=torch.channels_last_3d)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.network.train()(images), crops.labels.to(self.device))
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.preset.clip_norm)
        return float(loss.detach()), float(norm)

    def _looks(self) -> bool:
        planned = self.plan.steps
        return planned is not None and 0 < self.step < planned and self.step % -(-planned // LOOKS) == 0

    def _look(self) -> None:
        """Say how the model does on a few held-out patients, and mend the plan if the machine's speed has changed."""
        means = mean_dice(list(self._judge(self.held_out[:LOOKED_AT]).values()))
        figures = {name: values["dice"] for name, values in means.items()}
        self.looks.add({"step": self.step, "seconds": self.plan.seconds, **figures})
        self._dice = " ".join(f"{name} {figures[name]:.2f}" for name in self.regions if name in figures)
        self.say(
            f"fold {self.number}, step {self.step}: Dice {self._dice} on {len(self.held_out[:LOOKED_AT])} held out"
        )
        self.plan.observe(self.step, time.monotonic() - self._started_at)
        if self.plan.renew(self.step):
            self.say(f"fold {self.number}: speed has changed; planning {self.plan.steps} steps in all")

    def _judge(self, cases: Sequence[Case]) -> dict[str, dict[str, float | None]]:
        """Dice of each case on the working grid."""
        figures = {}
        for case in cases:
            shares = probabilities(self.network, case.image(), multiple=self.preset.multiple)
            figures[case.patient_key] = dice_by_region(shares.argmax(axis=0).astype("uint8"), case.labels, self.regions)
        return figures

    def _save(self) -> None:
        self._saved_at = self.plan.seconds
        tensors = {
            **with_prefix("network", self.network.state_dict()),
            **with_prefix("optimizer", optimizer_tensors(self.optimizer)),
        }
        save_checkpoint(self.folder / "checkpoints", Checkpoint(self.step, tensors, self.plan.state()))

    def _finish(self) -> dict[str, Any]:
        self._save()
        patients = self._judge(self.held_out)
        result = {
            "fold": self.number,
            "train_patients": len(self.sampler.cases),
            "steps": self.step,
            "seconds": round(self.plan.seconds, 1),
            "held_out": mean_dice(list(patients.values())),
            "patients": patients,
        }
        write_json(self.folder / RESULT, result)
        return result

    def _line(self, metrics: dict[str, float]) -> str:
        speed = self.step / max(self.plan.seconds, 1e-9)
        return f"fold {self.number} step {self.step} · loss {self.trend} · Dice {self._dice} · {speed:.2f} steps/s"


@contextmanager
def _named_memory_failure(crop: tuple[int, int, int], batch: int) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error).lower():
            raise
        sides = "x".join(map(str, crop))
        raise TrainingError(
            f"out of memory with {batch} crops of {sides} voxels; free some memory, or use --preset 2mm-cpu"
        ) from error
