"""Presets say what the paper says; impossible shapes are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from diptych.config import PRESETS, ModelConfig, get_preset
from diptych.errors import ModelError, UsageError
from tests.model.tiny import TINY

PAPER = [name for name in PRESETS if name.startswith("paper")]


def test_the_paper_has_eight_configurations() -> None:
    assert len(PAPER) == 8


@pytest.mark.parametrize("name", PAPER)
def test_paper_presets_hold_the_hyperparameters_of_section_4_3(name: str) -> None:
    preset = get_preset(name)
    model, losses, training = preset.model, preset.losses, preset.training
    assert (model.image_size, model.field_mm, model.code_width, model.codebook_size) == ((256, 256), None, 64, 512)
    assert (losses.latent_weight, losses.segmentation_weight, losses.reconstruction_weight) == (0.25, 5.0, 5.0)
    assert (losses.critic_steps, losses.gradient_penalty, losses.focal_gamma) == (5, 10.0, 2.0)
    assert (training.batch_size, training.epochs, training.learning_rate, training.weight_decay) == (
        112,
        400,
        1e-4,
        1e-5,
    )


@pytest.mark.parametrize(("side", "weight"), [(4, 1e-4), (8, 1e-4), (16, 5e-4), (32, 5e-4)])
def test_distribution_matching_weighs_as_in_the_paper(side: int, weight: float) -> None:
    losses = get_preset(f"paper-{side}x{side}").losses
    assert (losses.regulariser_weight, losses.critic_weight) == (weight, weight)


def test_nodm_presets_train_no_critic() -> None:
    assert not get_preset("paper-8x8-nodm").losses.distribution_matching


def test_paper_presets_know_nothing_of_our_inventions() -> None:
    model = get_preset("paper-8x8").model
    assert (model.spade_norm, model.codebook_start, model.expire_after, model.anatomy_classes) == (
        "batch",
        "normal",
        0,
        0,
    )


@pytest.mark.parametrize("name", PAPER)
def test_paper_presets_follow_the_text_where_it_speaks(name: str) -> None:
    """The penalty of section 3.1.4, table C.2, plain batches of all slices, the weights after 400 epochs."""
    preset = get_preset(name)
    assert preset.losses.penalised_slope == "squared"
    assert preset.model.decoder_entry == "block"
    training = preset.training
    assert (training.match_position, training.blank_slices, training.exported) == (False, True, "last")
    assert (training.average_decay, training.schedule, training.adam_betas) == (0.0, "constant", (0.9, 0.999))


def test_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"preset 'cpu'.*cpu-8x8, cpu-16x16, adapt-16x16, cpu-8x8-small"):
        get_preset("cpu")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"latent_size": (8, 8)}, "same whole factor"),
        ({"latent_size": (0, 6)}, "same whole factor"),
        ({"image_size": (24, 36)}, "power of two"),
        ({"image_size": (4, 6)}, "power of two and at least 2"),
        ({"widths": (8, 8, 16)}, "3 halvings need 4 widths"),
        ({"widths": (8, 8, 0, 16)}, "positive"),
        ({"codebook_size": 0}, "positive"),
    ],
)
def test_impossible_shapes_are_refused(changes: dict[str, tuple[int, ...]], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        replace(TINY, **changes)  # type: ignore[arg-type]


def test_config_survives_json() -> None:
    assert ModelConfig.from_dict(json.loads(json.dumps(TINY.to_dict()))) == TINY


def test_a_model_of_the_first_release_keeps_its_description() -> None:
    assert "decoder_entry" not in TINY.to_dict()
    other = replace(TINY, decoder_entry="block")
    assert ModelConfig.from_dict(other.to_dict()) == other != TINY


def test_unknown_field_is_named() -> None:
    with pytest.raises(ModelError, match="dropout"):
        ModelConfig.from_dict({**TINY.to_dict(), "dropout": 0.1})


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_read_back_as_it_was_written(name: str) -> None:
    config = PRESETS[name].model
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
