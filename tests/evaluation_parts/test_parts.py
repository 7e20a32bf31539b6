"""Every part runs on egg-shaped patients and a network that has learnt nothing, and its section survives JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diptych.evaluation.context import Context
from diptych.evaluation.part import Figure, Section
from diptych.evaluation.parts import load_part
from diptych.progress import silent
from tests.evaluation_parts.making import tiny_context


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return tiny_context(tmp_path_factory.mktemp("evaluation"))


@pytest.mark.parametrize(
    "name",
    [
        "reconstruction",
        "segmentation",
        "codebooks",
        "hashing",
        "timing",
        "twins",
        "decomposition",
        "worth",
        "patients",
        "robustness",
        "phantom_questions",
        "failures",
        "figures",
    ],
)
def test_part_runs(name: str, context: Context) -> None:
    section = load_part(name).run(context, silent)
    again = Section.from_json(json.loads(json.dumps(section.to_json(), allow_nan=False)))
    assert again.numbers == section.numbers
    assert all(block.png.startswith(b"\x89PNG") for block in section.blocks if isinstance(block, Figure))


def test_twins_of_real_patients_are_left_out(tmp_path: Path) -> None:
    context = tiny_context(tmp_path, with_twins=False)
    assert "left_out" in load_part("twins").run(context, silent).numbers


def test_the_unchanged_image_keeps_all_its_ids(context: Context) -> None:
    numbers = load_part("robustness").run(context, silent).numbers
    assert numbers["none"]["normal_ids"] == numbers["none"]["abnormal_ids"] == 1.0
    assert numbers["without t1"]["normal_ids"] < 1.0
    assert numbers["none"]["lost_normal"] == 0
    assert numbers["cropped, strong"]["normal_ids"] < numbers["cropped, mild"]["normal_ids"] < 1.0


def test_a_survey_is_made_once(context: Context) -> None:
    load_part("segmentation").run(context, silent)
    kept = context.cache / "survey.arrays"
    before = kept.stat().st_mtime_ns
    load_part("segmentation").run(context, silent)
    assert kept.stat().st_mtime_ns == before
