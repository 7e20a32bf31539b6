"""Evaluations ask as users are answered, and for every set of channels that a model can do without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from diptych.evaluation.context import Context
from diptych.evaluation.worth_trial import costs_of_missing
from diptych.metrics.label_decoders import LabelDecoders
from diptych.model.label_networks import LabelDecoder
from tests.evaluation_parts.making import CONFIG, tiny_context


def test_every_set_of_channels_that_is_enough_is_asked_for(tmp_path: Path) -> None:
    context = tiny_context(tmp_path, config=replace(CONFIG, sufficient_channels=(1, 3)))
    costs = costs_of_missing(context, context.trial())
    assert len(costs) == 11, "subsets of four channels with the second or the fourth, but for all four"
    assert {"flair", "t1,t1gd,t2"} < costs.keys()
    assert "t1gd,flair" not in costs
    assert all(0 <= lost <= 1 for found in costs.values() for lost in found.values())


def test_a_model_that_needs_everything_has_no_such_costs(tmp_path: Path) -> None:
    context = tiny_context(tmp_path)
    assert costs_of_missing(context, context.trial()) == {}


def test_evaluations_ask_as_users_are_answered(tmp_path: Path) -> None:
    context = tiny_context(tmp_path)
    assert context.trial().searcher.default_for("abnormal") == "euclidean"
    decoder = {"abnormal": LabelDecoder(CONFIG, classes=3), "normal": LabelDecoder(CONFIG, classes=6)}
    LabelDecoders(context.network, decoder).save(tmp_path / "model")
    fitted = Context.open(context.stores, tmp_path / "model", cache=tmp_path / "again")
    assert fitted.trial().searcher.default_for("abnormal") == "overlap"
