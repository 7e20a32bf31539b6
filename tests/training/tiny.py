"""A store of a few egg-shaped patients and a network small enough to train in seconds."""

from __future__ import annotations

from pathlib import Path

from diptych.slices import SliceGeometry, SliceStore
from diptych.volumes.volume import CHANNELS
from tests.slices.making import make_store, make_volume

GEOMETRY = SliceGeometry(size=(48, 32), field=(60.0, 48.0))
"""Neither the frame nor the pixels are square."""

SETTINGS = (
    "image_size=48x32",
    "latent_size=6x4",
    "field_mm=60x48",
    "widths=8,8,8,8",
    "code_width=8",
    "codebook_size=16",
    "batch_size=8",
    "codebook_batches=2",
    "warmup_steps=2",
    "critic_steps=2",
)
"""Changes to cpu-8x8 that make it tiny."""


def tiny_store(path: Path, *, first_seed: int = 0, blank: bool = False) -> SliceStore:
    """Seven patients of ten slices, three of them with a lesion."""
    volumes = [make_volume(f"patient-{number}", seed=first_seed + number) for number in range(7)]
    return make_store(path, volumes, GEOMETRY, blank=blank)


def make_empty_store(path: Path) -> Path:
    """A store without any patient."""
    store = SliceStore.create(path, GEOMETRY, CHANNELS)
    store.finish(sources=["somewhere"], failed={})
    return path
