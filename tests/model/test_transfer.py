"""A network of another shape gives the layers that both have at the same resolution."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from diptych.config import ModelConfig
from diptych.model import FeatureDecomposingNetwork
from diptych.model.model_folder import layers_in_common

COARSE = ModelConfig(image_size=(32, 32), latent_size=(4, 4), widths=(4, 6, 8, 10), code_width=5, codebook_size=7)
FINE = replace(COARSE, latent_size=(8, 8), widths=(4, 6, 8))


@pytest.fixture(scope="module")
def coarse() -> FeatureDecomposingNetwork:
    torch.manual_seed(0)
    return FeatureDecomposingNetwork(COARSE)


def test_layers_at_full_resolution_are_taken_from_the_far_end_of_a_longer_decoder(
    coarse: FeatureDecomposingNetwork,
) -> None:
    fine = FeatureDecomposingNetwork(FINE)
    fine.load_state_dict(layers_in_common(coarse, fine), strict=False)
    for decoder in ("segmentation_decoder.climb", "image_decoder.blocks"):
        last, theirs = fine.get_submodule(f"{decoder}")[-1], coarse.get_submodule(f"{decoder}")[-1]  # type: ignore[index]
        for one, other in zip(last.parameters(), theirs.parameters(), strict=True):
            assert one.equal(other)
    for one, other in zip(fine.encoder.trunk.parameters(), coarse.encoder.trunk.parameters(), strict=True):
        assert one.equal(other)


def test_codebooks_and_layers_of_other_widths_are_left(coarse: FeatureDecomposingNetwork) -> None:
    wide = FeatureDecomposingNetwork(replace(COARSE, widths=(4, 6, 8, 11)))
    taken = layers_in_common(coarse, wide)
    assert taken
    assert not [name for name in taken if "quantizer" in name]
    assert not [name for name, weight in taken.items() if 11 in weight.shape]


def test_the_same_shape_gives_every_weight(coarse: FeatureDecomposingNetwork) -> None:
    taken = layers_in_common(coarse, FeatureDecomposingNetwork(COARSE))
    assert taken.keys() == dict(coarse.named_parameters()).keys()
