"""Training from the top: `train` is the table of contents, `Trainer.run` the loop.

    diptych train STORE --preset cpu-8x8 --out RUN --minutes 60

Algorithm 1 itself is in `step.py`; how fast, in `schedule.py`; how long and what is kept, in `diptych.runs` and
`run.py`. Everything random is a function of (seed, step), so a run that was killed and resumed ends with the same
bits as one that was not, on a CPU with the same number of threads.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from diptych.errors import TrainingError
from diptych.files import only_writer, write_json
from diptych.metrics.label_decoders import LabelDecoders
from diptych.model.model_folder import load_model
from diptych.model.shipped import named_model
from diptych.progress import Progress, silent
from diptych.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from diptych.runs.csv_tables import Say
from diptych.runs.run_length import Interruption, Plan, repeatable
from diptych.slices import Batch, MatchedSampler, load_batches
from diptych.training.distributed import Workers, start_workers
from diptych.training.guard import COLLAPSE_SHARE, Guard, name_memory_failure, require_memory
from diptych.training.journal import Journal
from diptych.training.pictures import choose_examples, draw_examples, make_examples, save_picture
from diptych.training.run_folder import begin_report, export_model, model_notes
from diptych.training.step import Learner, learning_rate
from diptych.training.training_data import RunData, open_data, resolve
from diptych.training.training_options import RunConfig, TrainingOptions
from diptych.training.validation import validate

SAVE_EVERY = 300.0
"""Seconds between checkpoints, besides the one after each validation."""
QUIET_BATCHES = 24
"""Batches that tell which codes of a finished model lesions use."""
NO_END = 2**31
SHOWN_CHANNELS = ("t1gd", "flair")
"""Channels in the picture grid: one shows enhancement, the other oedema."""


def train(options: TrainingOptions, *, progress: Progress = silent, say: Say = lambda line: None) -> dict[str, Any]:
    """Train a network as `options` ask, into `options.out`; returns the report that is also written there.

    Raises:
        UsageError, InputError: options or stores that cannot be; nothing has been written then.
        TrainingError: training that cannot go on; a checkpoint stays.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when the state has been saved.
    """
    with start_workers() as workers:
        if not workers.is_main:
            workers.wait()  # until the main process has checked the request and written the config
            options, progress, say = replace(options, resume=True, tensorboard=False), silent, lambda line: None
        config, stores = resolve(options)
        options.out.mkdir(parents=True, exist_ok=True)
        with repeatable(config.threads), only_writer(options.out) if workers.is_main else nullcontext():
            if workers.is_main:
                write_json(options.out / "config.json", config.to_dict())
                workers.wait()
            checkpoint = load_checkpoint(options.out / "checkpoints")
            journal = Journal(
                options.out,
                resume_after=checkpoint.step if checkpoint else 0,
                tensorboard=options.tensorboard,
                progress=progress,
                say=say,
            )
            trainer = Trainer(options.out, config, open_data(config, stores), workers, journal)
            try:
                return trainer.run(checkpoint, start_from=options.start_from)
            finally:
                journal.close()


class Trainer:
    """One run in one process: the loop, and what surrounds each step."""

    def __init__(self, run: Path, config: RunConfig, data: RunData, workers: Workers, journal: Journal) -> None:
        self.folder = run
        self.config = config
        self.data = data
        self.workers = workers
        self.journal = journal
        training = config.preset.training
        self.sampler = MatchedSampler(
            data.train.table,
            batch_size=training.batch_size,
            seed=training.seed,
            rank=workers.rank,
            world_size=workers.count,
            match_position=training.match_position,
        )
        self.learner = Learner(config.preset, workers, precision=config.precision, compiled=config.compiled)
        self.plan = Plan(config.length, steps_per_epoch=self.sampler.steps_per_epoch)
        model = config.preset.model
        self.guard = Guard(
            model.codebook_size,
            quiet=config.preset.model.quiet_code,
            expects_unused=model.codebook_start == "normal" and not model.expire_after,
            say=journal.say,
        )
        self.step = 0
        self.best: dict[str, Any] = {}
        self.report = begin_report(config)

    def run(self, checkpoint: Checkpoint | None, *, start_from: Path | None = None) -> dict[str, Any]:
        """Train to the end of the plan, or until interrupted."""
        self._begin(checkpoint, start_from)
        batches = load_batches(
            self.data.train,
            self.sampler,
            range(self.step, NO_END),
            workers=4 if self.workers.device.type == "cuda" else 0,
            pin_memory=self.workers.device.type == "cuda",
        )
        with Interruption() as interruption:
            while not self.plan.done(self.step):
                try:
                    self._take_step(next(batches))
                except TrainingError:
                    self._save_if_sound()
                    raise
                if self.plan.validates(self.step, self.config.preset.training.validate_every):
                    self._validate()
                stop = self.workers.any(interruption.asked)
                if stop or self.plan.seconds - self._saved_at > SAVE_EVERY:
                    self._save()
                if stop:
                    raise KeyboardInterrupt
        return self._finish()

    def _begin(self, checkpoint: Checkpoint | None, start_from: Path | None) -> None:
        """Go on from a checkpoint, or start from a model or from new codebooks and look at the memory."""
        if checkpoint:
            for name in checkpoint.damaged:
                self.journal.say(f"{self.folder / 'checkpoints' / name}: damaged; going on from the one before it")
            self.learner.restore(checkpoint.tensors)
            self.step, self.best = checkpoint.step, checkpoint.state["best"]
            self.plan.restore(checkpoint.state)
            self.journal.say(f"{self.folder}: resumed after step {self.step}")
        else:
            share = 0.0
            if start_from:
                start = load_model(start_from)
                share = self.learner.start_from(start, LabelDecoders.open(named_model(start_from), start))
                self.journal.say(f"{start_from}: gave {share:.0%} of the weights")
            self._start_codebooks(share, start_from)
            self._require_memory()
            self._save()  # a run that stops in its first steps leaves something, too
        self._say_what_norms_see()
        if self.workers.is_main:
            self.examples = choose_examples(self.data.validation)
            write_json(self.folder / "report.json", self.report)
        self._saved_at = self.plan.seconds
        self._stepped_at = self._started_at = time.monotonic() - self.plan.seconds

    def _start_codebooks(self, share: float, start_from: Path | None) -> None:
        """Fit codebooks to the first batches, unless a model gave them; give them a quiet code if that had none."""
        preset = self.config.preset
        if share < 1:
            self.learner.start_codebooks(self._batch(step) for step in range(preset.training.codebook_batches))
        given = share == 1 and start_from is not None and load_model(start_from).config.quiet_code
        if preset.model.quiet_code and not given:
            self.learner.fall_quiet(self._batch(step) for step in range(QUIET_BATCHES))

    def _take_step(self, batch: Batch) -> None:
        preset = self.config.preset
        with name_memory_failure(preset.training.batch_size, self.learner.part_size, preset.model.image_size):
            metrics = self.learner.gradients(batch, self.step)
        self.guard.check(self.step + 1, metrics)  # before the update: a broken gradient never reaches the weights
        rate = learning_rate(self.step + 1, self.plan.steps, preset.training)
        self.step += 1
        self.learner.update(rate, self.step)
        self.plan.observe(self.step, self.workers.same(time.monotonic() - self._started_at))
        self.journal.observe(metrics)
        if self.workers.is_main:
            self._log(metrics, rate)

    def _log(self, metrics: dict[str, float], rate: float) -> None:
        now = time.monotonic()
        speed = self.config.preset.training.batch_size / max(now - self._stepped_at, 1e-9)
        self._stepped_at = now
        total = self.plan.total(self.step)
        timing = {"step": self.step, "seconds": self.plan.seconds, "planned_steps": total}
        row = {**timing, "learning_rate": rate, "images_per_second": speed, **metrics}
        self.journal.log_step(row, total=total)

    def _validate(self) -> None:
        """Look at the validation patients, draw the examples, keep the network if it is the best so far, save."""
        self.learner.agree_on_statistics()
        if self.plan.renew(self.step):
            self.journal.say(f"step {self.step}: speed has changed; planning {self.plan.steps} steps in all")
        if self.workers.is_main:
            network = self.learner.judged
            figures = validate(network, self.data.validation, device=self.workers.device)
            self.guard.check(self.step, {"score": figures["score"]})
            self.journal.log_validation({"step": self.step, "seconds": self.plan.seconds, **figures})
            self._draw()
            is_better = not self.best or figures["score"] > self.best["figures"]["score"]
            if is_better or self.exports_last:
                notes = model_notes(self.config, self.step, figures)
                fingerprint = export_model(network, self.folder, notes=notes, readers=self.learner.judged_readers)
                self.best = {"step": self.step, "fingerprint": fingerprint, "figures": figures}
            self.journal.say(_sentence(self.step, figures, is_best=is_better and not self.exports_last))
            self._stepped_at = time.monotonic()
        self._save()

    def _draw(self) -> None:
        dataset = self.data.validation
        examples = make_examples(self.learner.judged, dataset, self.examples, device=self.workers.device)
        names = [name for name in SHOWN_CHANNELS if name in dataset.channels] or list(dataset.channels[:1])
        spacing = dataset.batch(self.examples[:1]).pixel_spacing[0].tolist()
        picture = draw_examples(
            examples,
            shown={name: dataset.channels.index(name) for name in names},
            classes=self.learner.judged.description.lesion,
            pixel_spacing=(spacing[0], spacing[1]),
            title=f"step {self.step} · generated images are not scans · research use only",
        )
        save_picture(self.folder / "pictures" / f"step-{self.step:08d}.png", picture)
        self.journal.log_picture(picture, self.step)

    @property
    def exports_last(self) -> bool:
        """Whether the last network is exported, as the paper does, not the one that scores best."""
        return self.config.preset.training.exported == "last"

    def _say_what_norms_see(self) -> None:
        """Tell that batch statistics are those of a part where a batch is cut into parts."""
        part, batch = self.learner.part_size, self.config.preset.training.batch_size
        if self.config.preset.model.spade_norm == "batch" and part < batch:
            self.journal.say(
                f"batch normalisation takes its statistics over {part} slices at a time, not over the batch of {batch}"
            )

    def _save_if_sound(self) -> None:
        """Keep the state in which training stopped, unless numbers in it are broken: then an earlier one is better."""
        if all(bool(t.isfinite().all()) for t in self.learner.tensors().values() if t.is_floating_point()):
            self._save()

    def _save(self) -> None:
        self._saved_at = self.plan.seconds
        if self.workers.is_main:
            state = {**self.plan.state(), "best": self.best}
            save_checkpoint(self.folder / "checkpoints", Checkpoint(self.step, self.learner.tensors(), state))

    def _finish(self) -> dict[str, Any]:
        """Judge the exported network on all validation patients and write the report."""
        if not self.workers.is_main:
            return self.report
        figures = self.best["figures"]
        if self.data.all_validation.keys != self.data.validation.keys:
            network = load_model(self.folder / "model").to(self.workers.device)
            figures = validate(network, self.data.all_validation, device=self.workers.device)
        doubts = doubts_about(figures)
        for line in doubts:
            self.journal.say(f"warning: {line}")
        self.report |= {
            "warnings": doubts,
            "steps": self.step,
            "images": self.step * self.config.preset.training.batch_size,
            "seconds": round(self.plan.seconds, 1),
            "best": self.best,
            "exported": self.config.preset.training.exported,
            "all_validation_patients": figures,
        }
        write_json(self.folder / "report.json", self.report)
        return self.report

    def _batch(self, step: int) -> Batch:
        draw = self.sampler.draw(step)
        return self.data.train.batch(draw.indices, draw.seeds.tolist())

    def _require_memory(self) -> None:
        training, model = self.config.preset.training, self.config.preset.model
        per_image = self.learner.bytes_per_image(self._batch(0))
        require_memory(per_image, self.learner.part_size, training.batch_size, model.image_size, self.workers.device)


def doubts_about(figures: dict[str, float]) -> list[str]:
    """What a user must know before using the exported network: it finds nothing, or its codes tell nothing."""
    doubts = []
    if figures["dice_whole"] < 0.01:
        doubts.append("the exported network finds no lesion in the validation patients; train longer before you use it")
    doubts += [
        f"the {panel} codebook has collapsed to {figures[f'{panel}_usage']:.1%} of its codes; train longer, or anew"
        for panel in ("normal", "abnormal")
        if figures[f"{panel}_usage"] < COLLAPSE_SHARE
    ]
    return doubts


def _sentence(step: int, figures: dict[str, float], *, is_best: bool) -> str:
    """A validation in one line."""
    dice = {name.removeprefix("dice_"): value for name, value in figures.items() if name.startswith("dice_")}
    classes = ", ".join(f"{name} {value:.2f}" for name, value in dice.items() if name != "whole")
    twin = ""
    if "twin_error" in figures:
        twin = f", twin off by {figures['twin_error']:.2f} in the lesion (input {figures['twin_error_of_input']:.2f})"
    return (
        f"step {step}: Dice whole {figures['dice_whole']:.2f}{f' ({classes})' if classes else ''}, "
        f"reconstruction off by {figures['reconstruction_error']:.2f}{twin}, "
        f"codes used {figures['normal_usage']:.0%}/{figures['abnormal_usage']:.0%}"
        + ("; best so far" if is_best else "")
    )
