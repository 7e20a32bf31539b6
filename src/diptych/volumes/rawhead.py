"""Tells a raw head from a brain whose skull was stripped, which is what every model here expects.

Knows arrays and voxel sizes only. Four signs, any is enough:

- **air is not zero**: nearly the whole frame has signal, where stripping leaves exact zeros around the brain;
- **a bright ring around a dark one**: under the surface of a raw head lies the scalp, then bone, which gives no
  signal. Under the surface of a stripped brain lie liquor and cortex, and the signal changes little.
- **too large for a brain**: a head with its bone and scalp is half as large again, whatever the contrast of its rings.
- **cut off below, with a bright rim**: a head goes on into the neck, so that its lowest plane is nearly as large as its
  largest one, where a brain ends in a point; and scalp outshines what lies under it. A slab of a stripped brain has the
  one, a stripped T2 now and then the other.

Measured on 140 stripped patients of BraTS 2023 (three of them also at full size): signal in 10 to 23 % of the frame;
ring ratio at most 0.9 in T1, 1.0 in FLAIR, 1.1 in T1Gd, 1.3 in T2. With 6 mm of bone and 3, 5 or 8 mm of scalp drawn
around 14 of these brains the largest ratio is 2 to 10. Filled objects of 16 stripped
patients (8 gliomas, 8 strokes) have 1403 to 1775 ml. The four series of one real raw head, air zeroed: 3169 to 3212 ml,
ring 1.2 to 1.5, lowest plane .88 to .93 of the largest (stripped: .01 to .13); two raw-head phantoms: 3164 and 3336 ml,
ring 3.6 to 4.5, lowest plane .61 and .65. How many of many real raw heads are missed is not known yet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FILLED_FRAME = 0.75
"""Share of voxels with signal above which the air around the head was not zeroed; a brain in a tight box has 0.55."""
RING_RATIO = 1.5
"""Scalp over bone; the mean signal of the two shells below."""
OUTER_SHELL, INNER_SHELL = (2.0, 6.0), (8.0, 14.0)
"""Millimetres under the surface."""
CUT_OFF, BRIGHT_RIM = 0.4, 1.1
"""Lowest plane over the largest one, and ring ratio, that together tell a head."""
LARGEST_BRAIN_ML = 2300.0
"""No brain is larger, ventricles and sulci filled; heads of adults are."""
WORKING_SPACING = 3.0
"""Voxels are skipped down to about this many millimetres; the shells need no finer ones."""


def raw_head_warning(array: NDArray[np.float32], spacing: tuple[float, float, float]) -> str | None:
    """One sentence when `array`, `[C, X, Y, Z]`, looks like a raw head; None when it looks stripped."""
    x, y, z = (max(1, round(WORKING_SPACING / size)) for size in spacing)
    coarse = array[:, ::x, ::y, ::z]
    filled = float(np.mean(np.any(coarse > 0, axis=0)))
    if filled > FILLED_FRAME:
        sign = f"{filled:.0%} of the frame has signal"
    else:
        steps = spacing[0] * x, spacing[1] * y, spacing[2] * z
        solid = _solid(coarse)
        ratio, volume = _ring_ratio(coarse, solid, steps), np.count_nonzero(solid) * float(np.prod(steps)) / 1000.0
        if ratio > RING_RATIO:
            sign = f"a bright ring around a dark one, {ratio:.1f} to 1"
        elif volume > LARGEST_BRAIN_ML:
            sign = f"{volume:.0f} ml, no brain has more than {LARGEST_BRAIN_ML:.0f}"
        elif ratio > BRIGHT_RIM and (cut := _cut_off(solid)) > CUT_OFF:
            sign = f"a bright rim, and a lowest plane with {cut:.0%} of the largest, as through a neck"
        else:
            return None
    return f"This looks like a raw head, not a skull-stripped brain ({sign}); strip the skull first."


def _ring_ratio(array: NDArray[np.float32], solid: NDArray[np.bool_], spacing: tuple[float, float, float]) -> float:
    """Outer over inner shell, the largest over channels; 0 where the image is too small to have both."""
    from scipy import ndimage

    depth = ndimage.distance_transform_edt(np.pad(solid, 1), sampling=spacing)[1:-1, 1:-1, 1:-1]
    outer, inner = ((depth > near) & (depth <= far) for near, far in (OUTER_SHELL, INNER_SHELL))
    if not outer.any() or not inner.any():
        return 0.0
    return max(float(channel[outer].mean() / max(channel[inner].mean(), 1e-6)) for channel in array)


def _cut_off(solid: NDArray[np.bool_]) -> float:
    """The lowest plane of the object over its largest."""
    areas = np.count_nonzero(solid, axis=(0, 1))
    there = areas[areas > 0]
    return float(there[0] / there.max()) if there.size else 0.0


def _solid(array: NDArray[np.float32]) -> NDArray[np.bool_]:
    """The largest object with clear signal in any channel, cavities filled, `[X, Y, Z]`."""
    from scipy import ndimage

    signal: NDArray[np.bool_] = np.zeros(array.shape[1:], dtype=np.bool_)
    for channel in array:
        if (positive := channel[channel > 0]).size:
            signal |= channel > 0.1 * np.percentile(positive, 99)
    solid: NDArray[np.bool_] = np.zeros_like(signal)
    for z in range(signal.shape[2]):  # plane by plane: the neck leaves a scalp open from below
        solid[:, :, z] = ndimage.binary_fill_holes(ndimage.binary_closing(signal[:, :, z]))
    objects, count = ndimage.label(solid)
    return objects == np.bincount(objects.reshape(-1))[1:].argmax() + 1 if count else solid
