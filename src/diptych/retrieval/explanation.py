"""Why a slice was found: query and match side by side, decoded, and where they agree.

Also what that needs: pictures from id grids, and the images behind archived slices as the network sees them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diptych.archive import ArchiveStore, VolumeInfo
from diptych.archive.copies import patient_files
from diptych.archive.encoding import Encoder, cut_slices
from diptych.errors import ArchiveError
from diptych.retrieval.answer import SliceMatch
from diptych.retrieval.encoded_slice import EncodedSlice
from diptych.volumes import read_patient

if TYPE_CHECKING:
    import torch

    from diptych.model import FeatureDecomposingNetwork
    from diptych.retrieval.refined_twin import TwinRefiner


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
    refined_twin: NDArray[np.float32] | None = None
    """The image with generated healthy tissue in place of the predicted lesion `[C, H, W]`; None without an image or a
    refiner."""


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
    *,
    refiner: TwinRefiner | None = None,
) -> list[SliceView]:
    """Decode B slices at once from their ids `[B, h, w]`; a refiner adds the refined twins of those with pixels."""
    decoded = decode(network, normal_ids, abnormal_ids)
    return [
        SliceView(
            pixels=one,
            reconstruction=decoded.reconstruction[place],
            healthy_twin=decoded.healthy_twin[place],
            predicted_lesion=decoded.lesion[place],
            predicted_anatomy=None if decoded.anatomy is None else decoded.anatomy[place],
            refined_twin=None if refiner is None or one is None else refiner(one.image, decoded.lesion[place]),
        )
        for place, one in enumerate(pixels)
    ]


@dataclass(frozen=True, eq=False)
class Decoded:
    """Everything that can be decoded from the two codes of B slices."""

    reconstruction: NDArray[np.float32]
    """x̂⁺ `[B, C, H, W]`, from both codes."""
    healthy_twin: NDArray[np.float32]
    """x̂⁻ `[B, C, H, W]`, from the normal code alone."""
    lesion: NDArray[np.uint8]
    """Lesion labels `[B, H, W]`, from the abnormal code alone."""
    anatomy: NDArray[np.uint8] | None
    """Anatomy labels `[B, H, W]`, from the normal code alone; None without an anatomy head."""


def decode(
    network: FeatureDecomposingNetwork, normal_ids: NDArray[np.integer], abnormal_ids: NDArray[np.integer]
) -> Decoded:
    """Decode grids `[B, h, w]` of both panels; they need not stem from the same image."""
    import torch

    from diptych.model import CodeIds

    with torch.no_grad():
        found = network.decode(CodeIds(_tensor(network, normal_ids), _tensor(network, abnormal_ids)))
    return Decoded(
        reconstruction=found.reconstruction.cpu().numpy(),
        healthy_twin=found.healthy_twin.cpu().numpy(),
        lesion=_labels(found.lesion_probabilities),
        anatomy=None if found.anatomy_probabilities is None else _labels(found.anatomy_probabilities),
    )


def decode_lesion(network: FeatureDecomposingNetwork, abnormal_ids: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Lesion labels `[B, H, W]` that abnormal ids `[B, h, w]` stand for."""
    import torch

    with torch.no_grad():
        return _labels(network.decode_lesion(_tensor(network, abnormal_ids)))


def _tensor(network: FeatureDecomposingNetwork, ids: NDArray[np.integer]) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(ids, dtype=np.int64)).to(network.normal_quantizer.codebook.device)


def _labels(scores: torch.Tensor) -> NDArray[np.uint8]:
    return np.asarray(scores.argmax(dim=1).cpu().numpy(), dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class SlicePixels:
    """One slice as it was scanned and labelled."""

    image: NDArray[np.float32]
    """Z-scores `[C, H, W]`."""
    lesion: NDArray[np.uint8] | None
    """`[H, W]`; None where the volume has no label map."""
    anatomy: NDArray[np.uint8] | None
    """`[H, W]`; None where the volume has no label map."""


def stored_pixels(store: ArchiveStore, info: VolumeInfo, z_index: int, encoder: Encoder) -> SlicePixels | None:
    """Read a slice of an archived volume; None when the archive keeps no images of it."""
    if not info.files:
        return None
    files = patient_files(store.path, info)
    labels = {file.role: store.path / file.path for file in info.files if file.role in ("lesion", "anatomy")}
    files = replace(files, lesion=labels.get("lesion"), anatomy=labels.get("anatomy"))
    stack = cut_slices(read_patient(files), encoder)
    found = np.flatnonzero(stack.z_index == z_index)
    if not len(found):
        raise ArchiveError(f"{info.volume_key}: its images show no brain in slice {z_index}; index this volume again")
    place = int(found[0])
    return SlicePixels(
        stack.images[place],
        None if stack.lesion is None else stack.lesion[place],
        None if stack.anatomy is None else stack.anatomy[place],
    )
