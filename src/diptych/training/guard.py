"""What goes wrong in training, noticed early and named with a way out, instead of hours of useless steps.

Knows metrics by name, nothing about networks. A metric that is not given is not judged. Four troubles: a value that is
not a number, a critic whose loss runs away, a codebook that collapses to a few codes, and memory that does not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import psutil
import torch

from diptych.errors import TrainingError

CRITIC_LIMIT = 1e4
"""A critic loss beyond this, either way, has lost touch; sound runs on real patients were seen to reach 263."""
COLLAPSE_SHARE = 0.01
"""A codebook whose perplexity is below this share of its size (and never less than two codes) has collapsed."""

WORKSPACE = 1.5
"""Memory of a step relative to what the backward pass keeps: gradients, scratch space, fragmentation."""


class Guard:
    """Judges the metrics of every step; raises `TrainingError` when going on would be pointless.

    Args:
        codebook_size: K, the number of codes in each codebook.
        patience: steps for which a critic or a codebook may misbehave before training stops.
        quiet: whether most abnormal cells are meant to hold one code, so that few codes in use mean nothing.
        expects_unused: whether codebooks of mostly unused codes are what the preset is known for (`paper-*`: no
            k-means start, no expiry); a collapse is then told to `say`, once for each codebook, and training goes on.
        say: where that one line goes.
    """

    def __init__(
        self,
        codebook_size: int,
        *,
        patience: int = 200,
        quiet: bool = False,
        expects_unused: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.least_perplexity = max(2.0, COLLAPSE_SHARE * codebook_size)
        self.patience = patience
        self.panels = ("normal",) if quiet else ("normal", "abnormal")
        self.expects_unused = expects_unused
        self.say = say
        self._warned: set[str] = set()
        self._bad_steps: dict[str, int] = {}

    def check(self, step: int, metrics: Mapping[str, float]) -> None:
        """Look at one step's metrics, before its update is applied."""
        self._check_finite(step, metrics)
        self._check_critic(step, metrics)
        self._check_codebooks(step, metrics)

    def _check_finite(self, step: int, metrics: Mapping[str, float]) -> None:
        broken = [name for name, value in metrics.items() if not math.isfinite(value)]
        if broken:
            raise TrainingError(
                f"step {step}: {', '.join(broken)} is not a finite number; start again with a lower "
                "--set learning_rate=…, or with --precision float32"
            )

    def _check_critic(self, step: int, metrics: Mapping[str, float]) -> None:
        if "critic" not in metrics:
            return
        value = metrics["critic"]
        if self._persists("critic", abs(value) > CRITIC_LIMIT, limit=self.patience // 10):
            raise TrainingError(
                f"step {step}: the critic's loss has run away to {value:.3g} (limit {CRITIC_LIMIT:.0e} for "
                f"{self.patience // 10} steps); start again with a lower --set critic_learning_rate=…"
            )

    def _check_codebooks(self, step: int, metrics: Mapping[str, float]) -> None:
        for panel in self.panels:
            if f"{panel}_perplexity" not in metrics:
                continue
            perplexity = metrics[f"{panel}_perplexity"]
            if not self._persists(panel, perplexity < self.least_perplexity, limit=self.patience):
                continue
            found = f"step {step}: the {panel} codebook has collapsed to about {perplexity:.1f} codes"
            if not self.expects_unused:
                raise TrainingError(
                    f"{found} (at least {self.least_perplexity:.0f} expected) for {self.patience} steps; use a preset "
                    "with a k-means start and code expiry, or a smaller --set regulariser_weight=…"
                )
            if panel not in self._warned:
                self._warned.add(panel)
                self.say(f"{found}; codebooks that start as N(0, 1) without expiry do that, and the run goes on")

    def _persists(self, name: str, bad: bool, *, limit: int) -> bool:
        self._bad_steps[name] = self._bad_steps.get(name, 0) + 1 if bad else 0
        return self._bad_steps[name] > limit


def require_memory(bytes_per_image: int, part: int, batch: int, size: tuple[int, int], device: torch.device) -> None:
    """Refuse a part that cannot fit before the system kills the process without a word."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    fitting = int(free / (bytes_per_image * WORKSPACE)) // 2 * 2
    if fitting < part:
        height, width = size
        need = part * bytes_per_image * WORKSPACE / 2**30
        advice = f"try --set micro_batch={fitting}" if fitting >= 2 else "try a smaller preset"
        raise TrainingError(
            f"{part} images of {height}x{width} at a time need about {need:.1f} GiB, {free / 2**30:.1f} GiB are free; "
            f"{advice}: gradients are accumulated, so the batch stays {batch}"
        )


@contextmanager
def name_memory_failure(batch: int, microbatch: int, size: tuple[int, int]) -> Iterator[None]:
    """Turn the many ways in which memory runs out into one sentence that names the batch size to try."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _is_memory_failure(error):
            raise
        height, width = size
        advice = f"try --set micro_batch={microbatch // 2}" if microbatch > 2 else "try a smaller preset"
        raise TrainingError(
            f"out of memory with {microbatch} images of {height}x{width} at a time (batch {batch}); {advice}: "
            "gradients are accumulated, so the batch stays the same"
        ) from error


def _is_memory_failure(error: BaseException) -> bool:
    text = str(error).lower()
    named = isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError))
    return named or any(words in text for words in ("not enough memory", "out of memory", "can't allocate memory"))
