"""What a lesion network is and how it is trained, as plain values with two named choices.

`1mm-gpu` follows Myronenko (2018) and the paper's appendix B as far as one GPU allows; `2mm-cpu` is the same idea small
enough for one CPU core. Knows nothing about torch or files.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from diptych.errors import UsageError

__all__ = ["PAPER_DICE", "PRESETS", "LesionPreset", "get_preset"]

PAPER_DICE = {"ET": 0.68, "ED": 0.74, "TC": 0.79}
"""Held-out Dice of the paper's five folds (appendix B): 355 patients of BraTS 2019 at 1 mm, 300 epochs."""


@dataclass(frozen=True)
class LesionPreset:
    """A named, complete choice."""

    name: str
    spacing_mm: float
    """Voxel size of the working grid, the same along all axes."""
    crop: tuple[int, int, int]
    """Voxels of a training crop along x, y, z; multiples of what the network halves."""
    filters: int
    """Channels at full resolution; each halving doubles them."""
    blocks_down: tuple[int, ...] = (1, 2, 2, 4)
    """Residual blocks at each resolution of the encoder."""
    blocks_up: tuple[int, ...] = (1, 1, 1)
    """Residual blocks at each resolution of the decoder."""
    dropout: float = 0.0
    """Share of channels dropped before the encoder's first block."""
    batch_size: int = 2
    """Crops per update. Two, because one makes torch take a far slower convolution on CPUs."""
    epochs: float = 60.0
    """Crops per training patient, when no other length is asked for."""
    learning_rate: float = 2e-3
    """AdamW's step size at its peak."""
    weight_decay: float = 1e-4
    """AdamW's weight decay."""
    warmup_steps: int = 40
    """Updates over which the step size rises from zero."""
    final_fraction: float = 0.01
    """Share of the peak step size left at the end of the cosine."""
    clip_norm: float = 5.0
    """Largest norm of the gradient."""
    lesion_share: float = 0.5
    """Share of crops that are centred on a lesion voxel; the others lie anywhere in the brain's box."""
    seed: int = 0
    """Start of every random draw."""

    @property
    def multiple(self) -> int:
        """Image sides must be multiples of this."""
        halvings: int = 2 ** (len(self.blocks_down) - 1)
        return halvings

    def __post_init__(self) -> None:
        if any(side < self.multiple or side % self.multiple for side in self.crop):
            raise UsageError(f"crop {self.crop}: each side must be a multiple of {self.multiple}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values that survive JSON; `from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LesionPreset:
        """Read what `to_dict` wrote."""
        tuples = {name: tuple(values[name]) for name in ("crop", "blocks_down", "blocks_up")}
        return cls(**{**values, **tuples})


PRESETS = {
    preset.name: preset
    for preset in (
        LesionPreset(name="2mm-cpu", spacing_mm=2.0, crop=(40, 40, 40), filters=8),
        LesionPreset(
            name="1mm-gpu",
            spacing_mm=1.0,
            crop=(128, 160, 128),
            filters=32,
            dropout=0.2,
            epochs=300.0,
            learning_rate=2e-4,
            weight_decay=1e-5,
            warmup_steps=200,
        ),
    )
}


def get_preset(name: str, *, seed: int | None = None) -> LesionPreset:
    """The preset of that name, with another seed if one is given."""
    if name not in PRESETS:
        raise UsageError(f"--preset {name}: not known; presets are {', '.join(PRESETS)}")
    return PRESETS[name] if seed is None else replace(PRESETS[name], seed=seed)
