"""What a match is worth: intervals that hold for other patients, a file that belongs to one model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diptych.errors import ModelError, UsageError
from diptych.retrieval.match_worth import FILE, Agreement, Curve, Pairs, Worth, WorthTables, fit_curve, speaks
from diptych.search import PanelMatch

NO_CELLS = np.zeros((2, 3))


def some_pairs(*, patients: int = 40, each: int = 30, seed: int = 0) -> Pairs:
    """Dice that falls with the distance and scatters more where it is far."""
    rng = np.random.default_rng(seed)
    distance = rng.gamma(4, 0.5, size=patients * each)
    dice = 1 / (1 + distance / 2) + rng.normal(size=len(distance)) * 0.03 * (1 + distance)
    return Pairs(np.repeat(np.arange(patients), each), distance, dice.clip(0, 1))


def test_nine_in_ten_matches_of_other_patients_lie_in_the_interval() -> None:
    curve, others = fit_curve(some_pairs()), some_pairs(seed=1)
    assert 0.86 < curve.covers(others.distance, others.dice).mean() < 0.95


def test_a_nearer_match_is_worth_more_and_said_more_exactly() -> None:
    curve = fit_curve(some_pairs())
    near, far = curve.at(0.5), curve.at(4.0)
    assert near.expected > far.expected
    assert near.high - near.low < far.high - far.low
    assert (np.diff(curve.expected) <= 1e-9).all()


def test_too_few_patients_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 60 matches of four patients"):
        fit_curve(some_pairs(patients=3))


def test_tables_belong_to_one_model(tmp_path: Path) -> None:
    tables = WorthTables({("learned", "normal"): fit_curve(some_pairs())})
    tables.save(tmp_path, "a" * 64)
    found = WorthTables.open(tmp_path, "a" * 64)
    assert found is not None
    panel = PanelMatch(distance=1.0, contributions=NO_CELLS, weight=1.0)
    worth = found.of("learned", panel, panel)
    assert worth is not None
    assert worth.lesion is None
    assert worth.anatomy is not None
    assert worth.anatomy.expected == pytest.approx(tables.curves["learned", "normal"].at(1.0).expected, abs=1e-5)
    assert found.of("euclidean", panel, panel) is None
    with pytest.raises(ModelError, match="was made for model"):
        WorthTables.open(tmp_path, "b" * 64)
    assert WorthTables.open(tmp_path / "elsewhere", "a" * 64) is None


def test_damaged_curves_are_refused(tmp_path: Path) -> None:
    FILE.write(tmp_path, {"learned/normal": np.array([[1.0, 0.0]] * 4, dtype=np.float32)}, fingerprint="a")
    with pytest.raises(ModelError, match="damaged"):
        WorthTables.open(tmp_path, "a")


def test_worth_is_said_in_words() -> None:
    level = np.array([1.0])
    agreement = Curve(level, level * 0.71, level * 0.62, level * 0.78).at(3.0)
    assert (
        str(Worth(agreement, Agreement(0.4, 0.1, 0.7)))
        == "anatomy agrees about 71 % (62–78), lesion agrees about 40 % (10–70)"
    )


def test_patients_who_differ_widen_the_interval() -> None:
    rng = np.random.default_rng(2)
    alike = some_pairs(patients=12)
    own = rng.normal(size=12)[alike.patient] * 0.1
    apart = Pairs(alike.patient, alike.distance, (alike.dice + own).clip(0, 1))
    widths = [curve.at(1.0).high - curve.at(1.0).low for curve in (fit_curve(alike), fit_curve(apart))]
    assert widths[1] > 1.5 * widths[0]


def test_of_lesions_overlap_alone_speaks() -> None:
    assert [speaks(metric, "abnormal") for metric in ("overlap", "fusion", "learned")] == [True, False, False]
    assert speaks("fusion", "normal")


def test_a_query_without_a_lesion_is_told_nothing_of_lesions(tmp_path: Path) -> None:
    tables = WorthTables({("learned", panel): fit_curve(some_pairs()) for panel in ("normal", "abnormal")})
    panel = PanelMatch(distance=1.0, contributions=NO_CELLS, weight=1.0)
    worth = tables.of("learned", panel, panel, lesion=False)
    assert worth is not None
    assert worth.lesion is None
    assert worth.anatomy is not None


def test_what_missing_channels_cost_is_said(tmp_path: Path) -> None:
    costs = {"t1,t2": {"normal": 0.012, "abnormal": 0.094, "both": 0.05}}
    WorthTables({("learned", "normal"): fit_curve(some_pairs())}, costs).save(tmp_path, "a" * 64)
    found = WorthTables.open(tmp_path, "a" * 64)
    assert found is not None
    assert found.cost_of_missing(["flair"]) is None
    said = found.cost_of_missing(["t1", "t2"])
    assert said is not None
    assert "by anatomy 1, by lesion 9, by both 5" in said
