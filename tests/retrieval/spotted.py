"""Patients whose only feature is one lesion in some place, and a network whose abnormal codes see it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.archive import VolumeInfo, VolumeRecord
from diptych.archive.encoding import NetworkEncoder, encode_volume
from diptych.model import FeatureDecomposingNetwork
from diptych.slices import SliceDataset, SliceGeometry, SliceStore
from diptych.volumes import CHANNELS, Volume
from tests.retrieval.making import CONFIG, tiny_network
from tests.slices.making import make_store

GEOMETRY = SliceGeometry(size=CONFIG.image_size, field=CONFIG.field_mm)


def spotted_volume(number: int) -> Volume:
    """Four planes of a brain of 100 x 120 mm, with a lesion of its own size and place in the middle two."""
    rng = np.random.default_rng(number)
    shape = (50, 60, 4)
    x, y, _ = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij")
    brain = x**2 + y**2 < 1
    centre, radius = rng.uniform(-0.55, 0.55, size=2), rng.uniform(0.15, 0.4)
    distance = np.hypot(x - centre[0], y - centre[1])
    lesion = (2 * (distance < radius) + (distance < radius / 2)).astype(np.uint8) * brain
    lesion[:, :, [0, 3]] = 0
    signal = 100 + 5 * rng.standard_normal((4, *shape)) + 80 * lesion
    affine = np.diag([-2.0, -2.0, 5.0, 1.0])
    return Volume(f"spot-{number:03d}", CHANNELS, (signal * brain).astype(np.float32), affine, lesion=lesion)


def spotted_store(path: Path, volumes: list[Volume]) -> SliceStore:
    return make_store(path, volumes, GEOMETRY)


class PoolingEncoder(nn.Module):
    """Both grids are the mean brightness of the four quarters of each cell."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        h, w = CONFIG.latent_size
        quarters = F.pixel_unshuffle(F.adaptive_avg_pool2d(images[:, :1], (2 * h, 2 * w)), 2)  # [B, 4, h, w]
        grid = F.pad(quarters, (0, 0, 0, 0, 0, CONFIG.code_width - 4))
        return grid, grid


def seeing_network(store: SliceStore) -> FeatureDecomposingNetwork:
    """Codes that tell where it is bright, fitted to a store."""
    network = tiny_network(config=replace(CONFIG, codebook_size=64))
    network.encoder = PoolingEncoder()  # type: ignore[assignment]
    network.start_codebooks([batch.image for batch in SliceDataset(store).in_order(32)])
    return network.eval()


def spotted_records(network: FeatureDecomposingNetwork, volumes: list[Volume]) -> list[VolumeRecord]:
    encoder = NetworkEncoder(network)
    return [encode_volume(volume, VolumeInfo(volume.patient_key, volume.patient_key), encoder) for volume in volumes]
