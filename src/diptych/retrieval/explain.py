"""Why a slice was found: query and match side by side, decoded, and where they agree.

Knows answers, the network and the images behind slices. The distances and their parts come with the match itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval.answers import SliceMatch
from diptych.retrieval.decoding import decode
from diptych.retrieval.pixels import SlicePixels
from diptych.retrieval.subjects import EncodedSlice

__all__ = ["Explanation", "SliceView", "explain_match", "view_slices"]


@dataclass(frozen=True, eq=False)
class SliceView:
    """A slice as it was scanned, where that is known, and as its codes have it."""

    pixels: SlicePixels | None
    """Image and true labels; None where only codes are known."""
    reconstruction: NDArray[np.float32]
    """x̂⁺ `[C, H, W]`, decoded from both codes."""
    healthy_twin: NDArray[np.float32]
    """x̂⁻ `[C, H, W]`, decoded from the normal code."""
    predicted_lesion: NDArray[np.uint8]
    """Lesion labels `[H, W]`, decoded from the abnormal code."""
    predicted_anatomy: NDArray[np.uint8] | None
    """Anatomy labels `[H, W]`, decoded from the normal code; None when the model has no anatomy head."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """A match beside its query. Distances and each cell's part of them are in `match`."""

    match: SliceMatch
    query: SliceView
    """In a search anywhere, with the lesion where it was put."""
    found: SliceView
    normal_agreement: NDArray[np.bool_]
    """Cells in which both have the same normal code, `[h, w]`."""
    abnormal_agreement: NDArray[np.bool_]
    """Cells in which both have the same abnormal code, `[h, w]`."""
    lesion_agreement: NDArray[np.bool_]
    """Pixels in which the model sees the same kind of lesion in both, `[H, W]`."""


def explain_match(
    network: FeatureDecomposingNetwork,
    subject: EncodedSlice,
    match: SliceMatch,
    *,
    query_pixels: SlicePixels | None,
    match_pixels: SlicePixels | None,
) -> Explanation:
    """Decode query and match, and compare them."""
    abnormal = subject.abnormal_ids if match.placed is None else match.placed.ids
    query, found = view_slices(
        network,
        np.stack([subject.normal_ids, match.normal_ids]),
        np.stack([abnormal, match.abnormal_ids]),
        [query_pixels, match_pixels],
    )
    return Explanation(
        match=match,
        query=query,
        found=found,
        normal_agreement=subject.normal_ids == match.normal_ids,
        abnormal_agreement=abnormal == match.abnormal_ids,
        lesion_agreement=(query.predicted_lesion == found.predicted_lesion) & (query.predicted_lesion > 0),
    )


def view_slices(
    network: FeatureDecomposingNetwork,
    normal_ids: NDArray[np.integer],
    abnormal_ids: NDArray[np.integer],
    pixels: list[SlicePixels | None],
) -> list[SliceView]:
    """Decode B slices at once from their ids `[B, h, w]`."""
    decoded = decode(network, normal_ids, abnormal_ids)
    return [
        SliceView(
            pixels=one,
            reconstruction=decoded.reconstruction[place],
            healthy_twin=decoded.healthy_twin[place],
            predicted_lesion=decoded.lesion[place],
            predicted_anatomy=None if decoded.anatomy is None else decoded.anatomy[place],
        )
        for place, one in enumerate(pixels)
    ]
