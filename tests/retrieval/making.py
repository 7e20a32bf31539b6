"""A network that has learnt nothing and archives of made-up codes: all that exactness needs. Nothing here is square."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from diptych.archive import ArchiveWriter, VolumeInfo, VolumeRecord
from diptych.archive.encoding import NetworkEncoder
from diptych.config import ModelConfig
from diptych.model import FeatureDecomposingNetwork

CONFIG = ModelConfig(
    image_size=(32, 64),
    field_mm=(120.0, 100.0),
    latent_size=(4, 8),
    widths=(8, 8, 16, 16),
    codebook_size=20,
    code_width=6,
)


def tiny_network(*, seed: int = 0, config: ModelConfig = CONFIG) -> FeatureDecomposingNetwork:
    torch.manual_seed(seed)
    return FeatureDecomposingNetwork(config).eval()


def make_record(
    number: int, *, slices: int = 7, lesion_source: str = "labels", config: ModelConfig = CONFIG
) -> VolumeRecord:
    """Volume number `number` of patient `number // 2`; one slice in three is free of lesions."""
    rng = np.random.default_rng(number)
    info = VolumeInfo(f"V{number:02d}", f"P{number // 2:02d}", sex="FM"[number % 2], age=30.0 + number)
    ids = rng.integers(config.codebook_size, size=(2, slices, *config.latent_size), dtype=np.uint8)
    area = np.where(np.arange(slices) % 3, 100.0, 0.0) if lesion_source == "labels" else np.full(slices, np.nan)
    return VolumeRecord(
        info=replace(info, lesion_source=lesion_source),  # type: ignore[arg-type]
        normal_ids=ids[0],
        abnormal_ids=ids[1],
        z_index=np.arange(slices, dtype=np.uint16) + 3,
        position=np.linspace(0, 1, slices, dtype=np.float32),
        z_mm=np.linspace(-40, 50, slices, dtype=np.float32),
        lesion_area=area.astype(np.float32),
        slice_affine=np.diag([-1.5625, -3.75, 2.0, 1.0]),
    )


def write_archive(path: Path, network: FeatureDecomposingNetwork, records: list[VolumeRecord]) -> Path:
    with ArchiveWriter.open(path, model=NetworkEncoder(network).identity) as writer:
        for record in records:
            writer.add(record)
    return path
