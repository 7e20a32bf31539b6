"""`diptych evaluate` from outside, and each part of it on patients small enough to know."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from diptych.evaluation import baseline_answers as baselines
from diptych.evaluation import baseline_features as autoencoder
from diptych.evaluation import baseline_features as imagenet
from diptych.evaluation.contender import Answers
from diptych.evaluation.context import Context
from diptych.evaluation.parts import load_part
from diptych.evaluation.parts.archive_size import mean_of_first, sizes
from diptych.evaluation.retrieval_score import Truth
from diptych.progress import silent
from tests.evaluation.conftest import Scene
from tests.retrieval.running import run
from tests.slices.making import make_volume, write_patient

OWN_PARTS = ("summary", "retrieval", "baselines", "cross_talk", "comparators", "archive_size")


def test_a_report_from_end_to_end(scene: Scene, tmp_path: Path) -> None:
    sources = (scene.store, "--model", scene.model, "--autoencoder-images", 16)
    options = ("evaluate", *sources, "--out", tmp_path / "report")
    done = run(*options, "--parts", ",".join(OWN_PARTS))
    assert done.exit_code == 0, done.output
    assert "normal fusion" in done.stdout
    page = (tmp_path / "report" / "index.html").read_text()
    assert all(f'id="{part}"' in page for part in OWN_PARTS)
    again = json.loads(run(*options, "--parts", "retrieval", "--json").stdout)
    assert set(again["parts"]) == set(OWN_PARTS)
    figures = again["parts"]["retrieval"]["numbers"]["left out"]["normal"]
    assert 0 < figures["euclidean"]["1"]["of_oracle"] <= figures["oracle"]["1"]["of_oracle"] == 1
    with (tmp_path / "report" / "tables" / "baselines-1.csv").open() as file:
        rows = list(csv.DictReader(file))
    methods = [row["method"] for row in rows]
    ways = [name for name in rows[0] if name.endswith(("slices alone", "neighbours' say"))]
    assert len(ways) == 2
    assert all(row[way] for row in rows[:-2] for way in ways)
    assert {"random", "same position", "16×16 pixels", "PCA of pixels", "autoencoder", "fusion"} <= set(methods)


def test_an_archive_is_evaluated_by_its_own_copies(scene: Scene, tmp_path: Path) -> None:
    for number in range(3):
        write_patient(tmp_path / "patients", make_volume(f"P{number}", seed=number))
    assert run("index", tmp_path / "patients", "--archive", tmp_path / "A", "--model", scene.model).exit_code == 0
    done = run(
        "evaluate", "--archive", tmp_path / "A", "--model", scene.model, "--out", tmp_path / "R", "--parts", "retrieval"
    )
    assert done.exit_code == 0, done.output
    assert "abnormal euclidean" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [((), "nothing to evaluate"), (("nowhere",), "not a slice store"), (("--parts", "soup"), "'soup'")],
)
def test_wrong_input_is_refused_in_one_line(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    done = run("evaluate", "--out", tmp_path / "R", *options)
    assert done.exit_code in (2, 3)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_package_is_said_in_words(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagenet, "load_imagenet", lambda: None)
    section = load_part("baselines").run(context, silent)
    assert any("ImageNet features, because" in getattr(block, "text", "") for block in section.blocks)


def test_the_same_position_is_found(context: Context) -> None:
    trial = context.trial()
    answers = next(one for one in baselines.baseline_answers(context) if one.name == "same position")
    assert isinstance(answers, Answers)
    position = np.concatenate([context.records[key].position for key in context.keys])
    found = position[answers.found["normal"][:, 0]]
    assert np.abs(found - position[trial.queries]).max() < 0.06  # every volume has a slice at nearly every level


def test_autoencoders_are_trained_once(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    first = autoencoder.fitted_autoencoder(context, context.references)
    monkeypatch.setattr(autoencoder, "_train", None)
    second = autoencoder.fitted_autoencoder(context, context.references)
    image = context.homes["P0"].images("P0")[:2]
    assert np.array_equal(first.read(image), second.read(image))


def test_sizes_double_up_to_all() -> None:
    assert (sizes(6), sizes(39), sizes(140)) == ([5, 6], [5, 10, 20, 39], [5, 10, 20, 40, 80, 140])


def test_a_smaller_archive_by_hand() -> None:
    dice = np.array([[1.0, 0.2, 0.9, 0.5, 0.7]])
    truth = Truth(dice, np.array([0, 1, 2, 3, 4]), np.array([0]))
    chosen = np.array([True, True, False, True, True])
    assert mean_of_first(-dice, truth, chosen, 2) == pytest.approx(0.6)


def test_comparators_are_looked_up_where_they_are(scene: Scene, tmp_path: Path) -> None:
    context = scene.context(tmp_path)
    context.once("predicted lesion-free", lambda: context.slices().lesion_area == 0)
    numbers = load_part("comparators").run(context, silent).numbers
    assert {one["lesion_free"] for one in numbers.values()} == {1.0}


def test_no_comparators_without_lesion_free_slices(scene: Scene, tmp_path: Path) -> None:
    context = scene.context(tmp_path)
    context.once("predicted lesion-free", lambda: context.slices().lesion_area < 0)
    assert "sees a lesion in every slice" in load_part("comparators").run(context, silent).numbers["left_out"]


def test_cross_talk_of_the_oracles_is_between_chance_and_the_best(context: Context) -> None:
    numbers = load_part("cross_talk").run(context, silent).numbers["abnormal"]
    assert numbers["oracle by lesion"] <= numbers["oracle by anatomy"]
