"""How fast a training step and an encoding are, against a straightforward reading of the paper.

    python benchmarks/training.py                  64, 128 and 256 pixels; about four minutes on two quiet cores
    python benchmarks/training.py --sizes 64       one size
    python benchmarks/training.py --cold           an untrained segmentation decoder, which sees lesions everywhere

(a) One step of Algorithm 1 (five critic steps included) at equal batch and equal widths, the paper's. The baseline is
`naive_network.py`. Contenders take turns, and the fastest round of each counts, so that other work on the machine
disturbs both alike. Half of each batch is healthy; both segmentation decoders are made to predict the true lesion, as
trained ones nearly do, because ours saves work where nothing is lesion. Peak memory is measured in fresh processes.

(b) `encode` against a full forward pass, the baseline's and our own `decompose`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
import torch.nn.functional as F
from naive_network import NaiveNetwork, naive_critic_loss, naive_losses
from torch import Tensor

from diptych.config import LossConfig, ModelConfig
from diptych.model import Critic, FeatureDecomposingNetwork
from diptych.model.losses import critic_loss, network_losses, regulariser_loss

BATCH = {64: 32, 128: 16, 256: 8}
ROUNDS = {64: 5, 128: 4, 256: 3}
LOSSES = LossConfig()


def main() -> None:
    options = parse_options()
    if options.peak:
        print(peak_megabytes(options.peak, options.sizes[0], cold=options.cold))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    for size in options.sizes:
        report(size, cold=options.cold)


def report(size: int, *, cold: bool) -> None:
    """Print the ratios of one input size."""
    naive, ours = NaiveContender(size, cold=cold), OurContender(size, cold=cold)
    steps = fastest([naive.step, ours.step], rounds=ROUNDS[size])
    peaks = [peak_in_fresh_process(name, size, cold=cold) for name in ("naive", "ours")]
    passes = fastest([naive.full_forward, ours.full_forward, ours.encode], rounds=ROUNDS[size])
    batch = BATCH[size]
    print(f"\n{size}x{size}, batch {batch:<4}       straightforward       ours      ratio")
    print(row("train, images/s", batch / steps[0], batch / steps[1], steps[0] / steps[1]))
    print(row("train, peak memory MB", peaks[0], peaks[1], peaks[0] / peaks[1]))
    print(row("full forward, images/s", batch / passes[0], batch / passes[1], passes[0] / passes[1]))
    print(f"{'encode, images/s':<28}{'':>15}{batch / passes[2]:>11.2f}")
    print(f"  against the straightforward full forward            {passes[0] / passes[2]:>9.2f}")
    print(f"  against our own full forward                        {passes[1] / passes[2]:>9.2f}")


def row(title: str, baseline: float, ours: float, ratio: float) -> str:
    return f"{title:<28}{baseline:>15.2f}{ours:>11.2f}{ratio:>11.2f}"


def fastest(contenders: list[Callable[[], None]], *, rounds: int) -> list[float]:
    """Seconds of each contender's fastest round, taking turns, after one round to warm up.

    With one thread they are processor time, which other work on the machine lengthens less.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds + 1):
        for contender, taken in zip(contenders, seconds, strict=True):
            start = clock()
            contender()
            taken.append(clock() - start)
    return [min(taken[1:]) for taken in seconds]


class Problem:
    """A batch with round lesions in its first half, and what a trained segmentation decoder would add to its logits."""

    def __init__(self, size: int, *, cold: bool) -> None:
        torch.manual_seed(0)
        self.halvings = (size // 8).bit_length() - 1
        self.config = ModelConfig(
            image_size=(size, size), widths=(32, 64, *[128] * (self.halvings - 1)), codebook_size=512, anatomy_classes=0
        )
        self.batch = BATCH[size]
        self.half = self.batch // 2
        self.images = torch.randn(self.batch, 4, size, size)
        self.lesion = self._round_lesions(size)
        truth = F.one_hot(self.lesion, 4).permute(0, 3, 1, 2).float()
        self.known = torch.zeros_like(truth) if cold else 30 * truth

    def _round_lesions(self, size: int) -> Tensor:
        """Radius 6 to 18 % of the side, 4 % of a slice on average, like whole tumours in BraTS frames."""
        lesion = torch.zeros(self.batch, size, size, dtype=torch.int64)
        rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        for image in range(self.half):
            row, column = size * (0.3 + 0.4 * torch.rand(2))
            distance = ((rows - row).square() + (columns - column).square()).sqrt()
            radius = size * (0.06 + 0.12 * torch.rand(()))
            lesion[image][distance < radius] = 2
            lesion[image][distance < radius / 2] = 3
        return lesion


class OurContender(Problem):
    def __init__(self, size: int, *, cold: bool) -> None:
        super().__init__(size, cold=cold)
        self.network, self.critic = FeatureDecomposingNetwork(self.config), Critic(self.config)
        self.network.segmentation_decoder.register_forward_hook(lambda _module, _inputs, out: out + self.known)
        self.optimizer = torch.optim.Adam(self.network.parameters(), 1e-4)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), 1e-4)

    def step(self) -> None:
        self.network.train()
        result = self.network(self.images)
        loss = network_losses(result, self.images, self.lesion, config=LOSSES).total(LOSSES)
        diseased, healthy = result.normal.code[: self.half], result.normal.code[self.half :]
        for _ in range(LOSSES.critic_steps):
            self.critic_optimizer.zero_grad()
            mixing = torch.rand(self.half)
            torch.autograd.backward(critic_loss(self.critic, healthy, diseased, mixing, config=LOSSES))
            self.critic_optimizer.step()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss + LOSSES.regulariser_weight * regulariser_loss(self.critic, diseased))
        self.optimizer.step()
        self.network.update_codebooks()

    def full_forward(self) -> None:
        self.network.eval().decompose(self.images)

    def encode(self) -> None:
        self.network.eval().encode(self.images)


class NaiveContender(Problem):
    def __init__(self, size: int, *, cold: bool) -> None:
        super().__init__(size, cold=cold)
        self.network, self.critic = NaiveNetwork(self.config), Critic(self.config)
        self.network.lesion_out.register_forward_hook(lambda _module, _inputs, out: out + self.known)
        self.optimizer = torch.optim.Adam(self.network.parameters(), 1e-4)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), 1e-4)

    def step(self) -> None:
        self.network.train()
        code, latent, logits, reconstruction, twin = self.network(self.images)
        loss = naive_losses(latent, logits, reconstruction, twin, self.images, self.lesion)
        diseased, healthy = code[: self.half], code[self.half :]
        for _ in range(LOSSES.critic_steps):
            self.critic_optimizer.zero_grad()
            torch.autograd.backward(naive_critic_loss(self.critic, healthy.detach(), diseased.detach()))
            self.critic_optimizer.step()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss - LOSSES.regulariser_weight * self.critic(diseased).mean())
        self.optimizer.step()

    @torch.no_grad()
    def full_forward(self) -> None:
        self.network.eval()(self.images)


def peak_megabytes(name: str, size: int, *, cold: bool) -> float:
    """How much one training step adds to this process at its peak.

    Read from /proc (Linux): `ru_maxrss` would be wrong here, a child inherits the peak of the process that started it.
    """
    contender = OurContender(size, cold=cold) if name == "ours" else NaiveContender(size, cold=cold)
    before: int = psutil.Process().memory_info().rss
    contender.step()
    status = Path("/proc/self/status").read_text()
    high_water = 1024 * int(status.split("VmHWM:")[1].split()[0])
    return (high_water - before) / 1e6


def peak_in_fresh_process(name: str, size: int, *, cold: bool) -> float:
    command = [sys.executable, str(Path(__file__)), "--peak", name, "--sizes", str(size), *["--cold"] * cold]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", choices=sorted(BATCH), default=sorted(BATCH))
    parser.add_argument(
        "--cold", action="store_true", help="let untrained segmentation decoders see lesions everywhere"
    )
    parser.add_argument("--peak", choices=["ours", "naive"], help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
