"""`Batch`: slices of several patients as tensors, ready for the network. Knows nothing about where they came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """B slices with their labels. Works as a `DataLoader` item: it knows `pin_memory` and `to`."""

    image: Tensor
    """Z-scores, float32 `[B, C, H, W]`, `FILL` outside the brain."""
    lesion: Tensor
    """Lesion labels, int64 `[B, H, W]`."""
    anatomy: Tensor
    """Anatomy labels, int64 `[B, H, W]`; all background where `has_anatomy` is false."""
    has_anatomy: Tensor
    """Whether the slice's patient has anatomy labels, bool `[B]`."""
    diseased: Tensor
    """Whether the slice, as stored, has any lesion pixel, bool `[B]`."""
    position: Tensor
    """0 at the bottom of the brain, 1 at its top, float32 `[B]`."""
    pixel_spacing: Tensor
    """Millimetres between rows and between columns, float32 `[B, 2]`."""
    index: Tensor
    """Index of each slice in its dataset, int64 `[B]`."""
    has_twin: Tensor
    """Whether the slice's healthy twin is known, as a phantom's is, bool `[B]`."""
    clean: Tensor | None = None
    """The slices before anything but a movement was done to them, `[B, C, H, W]`; None unless asked for."""
    twin: Tensor | None = None
    """Healthy twins, float32 `[B, C, H, W]`, the image itself where `has_twin` is false; None unless asked for."""

    def __len__(self) -> int:
        return len(self.image)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same batch on another device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory; `DataLoader(pin_memory=True)` calls this."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {name: change(value) for name, value in tensors.items() if value is not None}
        return Batch(**changed)
