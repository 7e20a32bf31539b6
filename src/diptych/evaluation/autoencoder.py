"""A plain continuous autoencoder with the network's own encoder: what retrieval is without two panels and codes.

One branch of the encoder, no quantisation, no labels; a decoder of the same build paints the image back; L2 loss.
Trained briefly, with a fixed seed and number of steps, and kept in the evaluation's cache. Knows images, not what is
searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from diptych.config import ModelConfig
from diptych.evaluation.context import Context
from diptych.evaluation.images import evenly
from diptych.model.blocks import he_init_
from diptych.model.decoders import SegmentationDecoder
from diptych.model.encoder import Encoder
from diptych.progress import Progress, silent
from diptych.search import load_arrays, save_arrays

__all__ = ["BATCH", "STEPS", "Autoencoder", "fitted_autoencoder"]

STEPS, BATCH, RATE = 100, 8, 1e-3
READ_BATCH = 16


class Autoencoder(nn.Module):
    """`[B, C, H, W]` to the same, through one continuous grid `[B, D, h, w]`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        encoder = Encoder(config)
        self.encoder = nn.Sequential(encoder.trunk, encoder.normal)
        self.decoder = SegmentationDecoder(replace(config, lesion_classes=config.channels))
        self.apply(he_init_)

    def forward(self, images: Tensor) -> Tensor:
        painted: Tensor = self.decoder(self.encoder(images))
        return painted

    @torch.no_grad()
    def read(self, images: NDArray[np.float16]) -> NDArray[np.float32]:
        """Codes of `[n, C, H, W]`, flat, `[n, D * h * w]`."""
        parts = [
            self.encoder(torch.from_numpy(images[at : at + READ_BATCH].astype(np.float32))).flatten(1)
            for at in range(0, len(images), READ_BATCH)
        ]
        return np.asarray(torch.cat(parts).numpy())


def fitted_autoencoder(context: Context, keys: Sequence[str], *, progress: Progress = silent) -> Autoencoder:
    """Train on slices of these patients, or take what an earlier run has trained on the same."""
    content = [context.network.config, *(context.homes[key].patients[key].voxel_hash for key in keys)]
    settings = f"{STEPS} {BATCH} {RATE} seed {context.seed}"
    key = f"autoencoder 1 {settings} of {sha256(repr(content).encode()).hexdigest()}"
    path = context.cache / "autoencoder.arrays"
    with torch.random.fork_rng():
        torch.manual_seed(context.seed)
        coder = Autoencoder(context.network.config)
        kept = load_arrays(path, key=key)
        if kept is None:
            _train(coder, evenly(context.homes, keys, STEPS * BATCH, seed=context.seed), context.seed, progress)
            context.cache.mkdir(parents=True, exist_ok=True)
            save_arrays(path, {name: value.numpy() for name, value in coder.state_dict().items()}, key=key)
        else:
            coder.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in kept.items()})
    return coder.eval()


def _train(coder: Autoencoder, images: NDArray[np.float16], seed: int, progress: Progress) -> None:
    optimiser = torch.optim.Adam(coder.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for step, rows in enumerate(_batches(len(images), seed), start=1):
        batch = torch.from_numpy(images[rows].astype(np.float32))
        optimiser.zero_grad()
        F.mse_loss(coder(batch), batch).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        progress(step, STEPS, "training the autoencoder")


def _batches(count: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """`STEPS` batches, every image as often as any other."""
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(count) for _ in range(-(-STEPS * BATCH // count))])
    for step in range(STEPS):
        yield order[step * BATCH : (step + 1) * BATCH]
