"""What a network can take over from one of another shape: every layer that both have at the same resolution.

Networks of other latent grids, widths or heads share most of their work: encoders begin alike at full resolution,
decoders end alike. Layers are therefore counted from the full-resolution end and taken where their weights have the
same shape. Codebooks are not: they belong to an encoder that is no longer the same. Knows networks; nothing of files.
"""

from __future__ import annotations

import re

from torch import Tensor

from diptych.model.network import FeatureDecomposingNetwork

__all__ = ["layers_in_common"]

CLIMB = re.compile(r"(segmentation_decoder\.climb|image_decoder\.(?:upsamples|blocks))\.(\d+)\.(.+)")
"""Lists of layers that climb to full resolution, and are so counted from their end."""
CODEBOOKS = ("normal_quantizer.", "abnormal_quantizer.")


def layers_in_common(source: FeatureDecomposingNetwork, target: FeatureDecomposingNetwork) -> dict[str, Tensor]:
    """The weights of `source` that fit into `target`, by the target's names."""
    theirs = {_from_full_resolution(name, source): tensor for name, tensor in source.state_dict().items()}
    found = {}
    for name, tensor in target.state_dict().items():
        other = theirs.get(_from_full_resolution(name, target))
        if other is not None and other.shape == tensor.shape and not name.startswith(CODEBOOKS):
            found[name] = other
    return found


def _from_full_resolution(name: str, network: FeatureDecomposingNetwork) -> str:
    """The name of a weight with the place in its list of layers counted from full resolution."""
    found = CLIMB.fullmatch(name)
    if found is None:
        return name
    layers, place, rest = found.groups()
    return f"{layers}.{int(place) - len(network.get_submodule(layers))}.{rest}"  # type: ignore[arg-type]
