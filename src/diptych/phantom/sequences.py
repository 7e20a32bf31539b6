"""What a scanner makes of tissue: T1, T1Gd, T2 and FLAIR with the contrast, bias and noise of one examination.

`draw_scanner` fixes one examination, `acquire` images tissue with or without a lesion. The same scanner gives a
patient and its healthy twin, so they differ by the lesion alone. Knows nothing about how either came to be.

Signals are in units of the channel's white matter. Order within each channel (tested): T1 white > grey > fluid,
T2 fluid > grey > white, FLAIR grey > white > fluid, T1Gd as T1 with enhancing tissue above all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.phantom.brain import Tissue
from diptych.phantom.fields import Field, as_field, sigmoid, smooth_noise
from diptych.phantom.glioma import Lesion
from diptych.phantom.phantom_config import PhantomConfig
from diptych.volumes.volume import CHANNELS


@dataclass(frozen=True)
class Contrast:
    """Signal of each tissue in one channel, relative to white matter."""

    grey: float
    fluid: float
    oedema: float
    tumour: float
    """Non-enhancing, cellular tumour."""
    necrosis: float
    """Fluid necrosis."""
    enhancing: float
    blood: float
    """Old haemorrhage in the core."""
    sinus: float
    """Venous sinuses and other veins."""
    artery: float
    choroid: float
    rim: float
    """Dura and bone that the skull stripping left at the edge of the mask."""
    texture: float
    """How much of the T1 template's fine contrast shows here."""
    grain: float
    iron: float
    """Share of the signal that iron in the nuclei takes away."""
    caps: float
    """Brightness added where white matter meets the ventricles."""
    noise: float


CONTRASTS = {
    "t1": Contrast(
        grey=0.69, fluid=0.39, oedema=0.76, tumour=0.68, necrosis=0.46, enhancing=0.74, blood=1.15, sinus=0.6,
        artery=0.5, choroid=0.62, rim=0.3, texture=1.0, grain=0.018, iron=-0.03, caps=-0.06, noise=0.014,
    ),
    "t1gd": Contrast(
        grey=0.71, fluid=0.41, oedema=0.72, tumour=0.70, necrosis=0.46, enhancing=1.60, blood=1.1, sinus=2.6,
        artery=2.1, choroid=1.6, rim=0.8, texture=0.9, grain=0.018, iron=-0.03, caps=-0.06, noise=0.015,
    ),
    "t2": Contrast(
        grey=1.33, fluid=3.4, oedema=1.95, tumour=2.1, necrosis=3.0, enhancing=1.8, blood=0.9, sinus=0.6,
        artery=0.5, choroid=2.3, rim=0.2, texture=-0.9, grain=0.05, iron=0.24, caps=0.25, noise=0.034,
    ),
    "flair": Contrast(
        grey=1.14, fluid=0.32, oedema=2.1, tumour=2.0, necrosis=1.4, enhancing=1.9, blood=1.0, sinus=0.5,
        artery=0.45, choroid=0.95, rim=0.2, texture=-0.35, grain=0.05, iron=0.18, caps=0.45, noise=0.036,
    ),
}  # fmt: skip
"""Means over real patients where they could be measured, textbook order elsewhere."""

SPREAD = {
    "grey": 0.06,
    "fluid": 0.25,
    "oedema": 0.12,
    "tumour": 0.10,
    "necrosis": 0.2,
    "enhancing": 0.16,
    "sinus": 0.2,
    "rim": 0.35,
}
"""Spread (log scale) of each signal between patients."""


@dataclass(frozen=True)
class Reception:
    """How one channel was received."""

    contrast: Contrast
    bias: tuple[float, float]
    """Strength of the smooth and of the centre-to-surface shading."""
    slice_blur_mm: float
    """Through-plane blur of thick slices."""
    blur_mm: float
    gain: float
    """Stored value of white matter."""


@dataclass(frozen=True)
class Scanner:
    """One examination: a reception per channel and the seed of its noise."""

    receptions: dict[str, Reception]
    mismatch: bool
    """Low-grade core that FLAIR suppresses (T2–FLAIR mismatch)."""
    blood: bool
    disease: float
    """Small-vessel disease of the white matter, 0–1."""
    seed: int
    rescan: int = 0
    """Number of a later examination of the same head, which has noise of its own."""


def draw_scanner(rng: np.random.Generator, config: PhantomConfig) -> Scanner:
    """Draw the settings of one examination."""
    return Scanner(
        receptions={channel: _draw_reception(rng, channel, config.variation) for channel in CHANNELS},
        mismatch=bool(rng.random() < 0.35),
        blood=bool(rng.random() < 0.2),
        disease=float(rng.beta(1.2, 2.5)),
        seed=int(rng.integers(2**62)),
    )


def _draw_reception(rng: np.random.Generator, channel: str, spread: float) -> Reception:
    mean = CONTRASTS[channel]
    values = {name: getattr(mean, name) for name in Contrast.__dataclass_fields__}
    for name, width in SPREAD.items():
        values[name] *= math.exp(spread * width * float(np.clip(rng.standard_normal(), -2.0, 2.0)))
    values["noise"] *= math.exp(spread * 0.35 * float(rng.standard_normal()))
    _keep_order(values, channel)
    thick = rng.random() < 0.35 and channel != "t1gd"
    return Reception(
        contrast=Contrast(**values),
        bias=(spread * float(rng.uniform(0.03, 0.13)), spread * float(rng.normal(0.03, 0.07))),
        slice_blur_mm=spread * float(rng.uniform(1.0, 2.0)) if thick else 0.0,
        blur_mm=float(rng.uniform(0.0, 0.8)),
        gain=float(np.round(300.0 * math.exp(spread * 0.3 * rng.standard_normal()))),
    )


def _keep_order(values: dict[str, float], channel: str) -> None:
    """Variation between scanners never turns the order of tissues round."""
    if channel in ("t1", "t1gd"):
        values["grey"] = min(values["grey"], 0.86)
        values["fluid"] = min(values["fluid"], values["grey"] - 0.15)
    elif channel == "t2":
        values["grey"] = max(values["grey"], 1.15)
        values["fluid"] = min(max(values["fluid"], values["grey"] + 0.7), 3.9)
    else:
        values["grey"] = max(values["grey"], 1.09)
        values["fluid"] = min(values["fluid"], 0.7)


def acquire(tissue: Tissue, lesion: Lesion | None, scanner: Scanner, config: PhantomConfig) -> Field:
    """Image tissue in all channels, `[C, X, Y, Z]`: whole numbers, zero outside the brain."""
    mask = tissue.brain > 0.15
    streams = np.random.SeedSequence(scanner.seed).spawn(len(CHANNELS) + 1)
    patches = _Patches.draw(np.random.default_rng(streams[-1]), tissue, scanner, config)
    if scanner.rescan:
        streams = np.random.SeedSequence((scanner.seed, scanner.rescan)).spawn(len(CHANNELS))
    images = np.zeros((len(CHANNELS), *config.shape), dtype=np.float32)
    for index, channel in enumerate(CHANNELS):
        reception = scanner.receptions[channel]
        signal = _healthy_signal(tissue, patches, reception.contrast, channel)
        if lesion is not None:
            signal = _add_lesion(signal, tissue, lesion, reception.contrast, scanner, channel)
        rng = np.random.default_rng(streams[index])
        images[(index, *tissue.box)] = _receive(signal, tissue, reception, rng, config)
    return np.where(mask, np.maximum(np.rint(images), 1.0), 0.0).astype(np.float32)


@dataclass(frozen=True, eq=False)
class _Patches:
    """Small things that appear here and there, in the brain's box."""

    sulcal_veins: Field
    dura: Field
    rim: Field
    spots: Field
    """Bright dots and caps of small-vessel disease."""

    @classmethod
    def draw(cls, rng: np.random.Generator, tissue: Tissue, scanner: Scanner, config: PhantomConfig) -> _Patches:
        box = tissue.box
        shape = tissue.brain[box].shape
        dots, wide = (smooth_noise(rng, shape, mm / config.voxel_mm) for mm in (4.0, 14.0))
        near_surface = np.exp(-np.maximum(tissue.depth[box], 0.0) / 6.0)
        outer = sigmoid(2.0 - tissue.depth[box], 0.7) * tissue.brain[box]
        caps = np.clip((tissue.periventricular[box] - 0.05) * 3.0, 0.0, 1.0)
        spots = sigmoid(dots - 2.4 + 0.8 * scanner.disease + 0.4 * wide, 0.25) * (0.35 + caps)
        return cls(
            sulcal_veins=tissue.fluid[box] * near_surface * sigmoid(dots - 1.2, 0.25),
            dura=outer * sigmoid(wide - 0.4, 0.4),
            rim=np.clip(1.3 * sigmoid(0.8 - tissue.depth[box] + 0.5 * wide, 0.5), 0.0, 1.0) * tissue.brain[box],
            spots=np.clip(caps * (0.25 + scanner.disease) + spots * 2.0 * scanner.disease, 0.0, 1.0),
        )


def _healthy_signal(tissue: Tissue, patches: _Patches, contrast: Contrast, channel: str) -> Field:
    """Mix tissue signals by their share of each voxel, in the brain's box."""
    box = tissue.box
    white, grey, fluid = tissue.white[box], tissue.grey[box], tissue.fluid[box]
    solid = white + grey
    signal = white + contrast.grey * grey + contrast.fluid * fluid
    signal = signal + contrast.texture * tissue.texture[box] + contrast.grain * tissue.grain[box] * solid
    signal = signal * (1.0 - contrast.iron * tissue.iron[box])
    signal = signal + contrast.caps * patches.spots * white
    signal = _replace(signal, patches.rim, contrast.rim)
    signal = _replace(signal, tissue.choroid[box] * fluid, contrast.choroid)
    signal = _replace(signal, tissue.arteries[box] * (0.6 + 0.4 * fluid), contrast.artery)
    signal = _replace(signal, tissue.veins[box] * (0.5 + 0.5 * fluid), contrast.sinus)
    if channel == "t1gd":
        signal = _replace(signal, patches.sulcal_veins * 0.8, contrast.sinus)
        signal = _replace(signal, patches.dura * 0.2, contrast.sinus)
    return signal.astype(np.float32)


def _replace(signal: Field, share: Field, level: Field | float) -> Field:
    return signal + np.clip(share, 0.0, 1.0) * (level - signal)


def _add_lesion(
    signal: Field, tissue: Tissue, lesion: Lesion, contrast: Contrast, scanner: Scanner, channel: str
) -> Field:
    """Replace or soak tissue by what the tumour, or an old stroke, put there."""
    box = tissue.box
    core, rim, mottle = lesion.core[box], lesion.rim[box], lesion.mottle[box]
    brain = tissue.brain[box]
    signal = _replace(signal, lesion.oedema[box] * 0.85, contrast.oedema * (1.0 + 0.05 * mottle) * brain)
    wet = lesion.necrosis
    if lesion.cavity:
        return _replace(signal, core, contrast.fluid * (1.0 + 0.06 * mottle) * brain).astype(np.float32)
    if not lesion.low_grade:
        inner = contrast.tumour + (contrast.necrosis - contrast.tumour) * np.clip(wet + 0.35 * mottle, 0.0, 1.0)
    elif scanner.mismatch and channel == "flair":
        inner = contrast.tumour * (0.62 + 0.06 * mottle)
    else:
        inner = contrast.tumour * (1.0 + 0.10 * mottle)
    if scanner.blood and not lesion.low_grade:
        inner = _replace(inner, sigmoid(mottle - 0.9, 0.15), contrast.blood)
    signal = _replace(signal, core, inner * brain)
    return _replace(signal, rim, contrast.enhancing * (1.0 + 0.12 * mottle) * brain).astype(np.float32)


def _receive(
    signal: Field, tissue: Tissue, reception: Reception, rng: np.random.Generator, config: PhantomConfig
) -> Field:
    """Blur, shading and Rician noise, then the scanner's own scale."""
    voxel = config.voxel_mm
    brain = tissue.brain[tissue.box]
    through = math.hypot(reception.blur_mm, reception.slice_blur_mm)
    blurred = ndimage.gaussian_filter(signal, np.array([reception.blur_mm] * 2 + [through]) / voxel, mode="nearest")
    shading = _shading(reception.bias, brain.shape, rng, voxel)
    noise = [_noise(rng, brain.shape) * (config.noise * reception.contrast.noise) for _ in range(2)]
    received = np.sqrt((np.maximum(blurred, 0.0) * shading + noise[0]) ** 2 + noise[1] ** 2)
    return as_field(received * reception.gain)


def _noise(rng: np.random.Generator, shape: tuple[int, ...]) -> Field:
    """Unit noise, slightly correlated as resampling to a common frame leaves it."""
    white = rng.standard_normal(shape, dtype=np.float32)
    smooth = ndimage.gaussian_filter(white, 0.5)
    return (smooth / max(float(smooth.std()), 1e-6)).astype(np.float32)


def _shading(
    bias: tuple[float, float], shape: tuple[int, ...], rng: np.random.Generator, voxel_mm: float
) -> NDArray[np.float32]:
    smooth = smooth_noise(rng, shape, 90.0 / voxel_mm)
    x, y, z = (np.linspace(-1.0, 1.0, edge, dtype=np.float32) ** 2 for edge in shape)
    radius = x[:, None, None] + y[None, :, None] + z[None, None, :]
    return as_field(np.exp(bias[0] * smooth + bias[1] * (radius - 0.6)))
