from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.config import get_preset
from diptych.errors import UsageError
from diptych.evaluation.paper_page import MARK, write_page
from diptych.evaluation.sweep import PAPER_PRESETS, SweepOptions, configurations, sweep
from diptych.evaluation.sweep_page import COMPACTNESS, write_comparison
from diptych.progress import silent
from diptych.slices import SliceGeometry, SliceStore
from diptych.training import Length
from tests.slices.making import make_store, make_volume


def _store(folder: Path, size: tuple[int, int], *, blank: bool = True) -> SliceStore:
    volumes = [make_volume(f"patient-{number}", seed=number) for number in range(8)]
    return make_store(folder, volumes, SliceGeometry(size=size, field=(60.0, 48.0)), blank=blank)


def test_the_papers_eight_are_compared() -> None:
    assert len(PAPER_PRESETS) == 8
    assert set(COMPACTNESS) == set(PAPER_PRESETS)


def test_grids_too_fine_for_the_slices_are_left_out(tmp_path: Path) -> None:
    fitting, left_out = configurations(PAPER_PRESETS, _store(tmp_path, (32, 32)))
    assert [one.title for one in fitting] == ["4×4 + DM", "4×4", "8×8 + DM", "8×8", "16×16 + DM", "16×16"]
    assert set(left_out) == {"paper-32x32", "paper-32x32-nodm"}


@pytest.mark.parametrize("family", ["paper", "ours"])
def test_configurations_differ_in_grid_and_matching_alone(tmp_path: Path, family: str) -> None:
    fitting, _ = configurations(["paper-4x4", "paper-8x8-nodm"], _store(tmp_path, (32, 32)), family=family)
    four, eight = (one.settings for one in fitting)
    assert (four.model.latent_size, eight.model.latent_size) == ((4, 4), (8, 8))
    assert four.losses.distribution_matching
    assert not eight.losses.distribution_matching
    assert four.training == eight.training
    assert replace(four.model, latent_size=(8, 8), widths=eight.model.widths) == eight.model


@pytest.mark.parametrize("name", PAPER_PRESETS)
def test_the_papers_family_changes_sizes_and_steps_alone(tmp_path: Path, name: str) -> None:
    (one,), _ = configurations([name], _store(tmp_path, (64, 64)))
    full, small = get_preset(name), one.settings
    assert small.losses == full.losses
    sizes = ("image_size", "field_mm", "widths", "ema_decay")
    assert replace(small.model, **{size: getattr(full.model, size) for size in sizes}) == full.model
    steps = ("batch_size", "learning_rate", "critic_learning_rate")
    assert replace(small.training, **{step: getattr(full.training, step) for step in steps}) == full.training


def test_an_unknown_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--family theirs: there is none of that name; choose paper or ours"):
        configurations(PAPER_PRESETS, _store(tmp_path, (32, 32)), family="theirs")


def test_a_change_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--set colour=blue: no setting of that name"):
        configurations(PAPER_PRESETS, _store(tmp_path, (32, 32)), changes=["colour=blue"])


def test_other_presets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a sweep compares the paper's"):
        configurations(["cpu-8x8"], _store(tmp_path, (32, 32)))


@pytest.mark.slow
def test_a_sweep_trains_evaluates_compares_and_does_nothing_twice(tmp_path: Path) -> None:
    store = _store(tmp_path / "store", (32, 32))
    presets = ("paper-4x4", "paper-4x4-nodm")
    options = SweepOptions(
        store.path,
        tmp_path / "sweep",
        presets=presets,
        length=Length(steps=6),
        changes=("codebook_size=32", "code_width=16"),
        threads=1,
    )
    *_, trained = sweep(options, show=lambda title: nullcontext(silent), say=lambda line: None)
    page = write_comparison(trained, options.out).read_text(encoding="utf-8")
    assert page.count("data:image/png") == 2
    assert "4×4 + DM" in page
    found = json.loads((options.out / "comparison.json").read_text(encoding="utf-8"))
    assert list(found) == list(presets)
    assert (options.out / "retrieval.csv").read_text(encoding="utf-8").count("\n") == 1 + 2 * 3
    model = options.out / "paper-4x4" / "run" / "model" / "model.safetensors"
    before = model.stat().st_mtime_ns
    *_, again = sweep(options, show=lambda title: nullcontext(silent), say=lambda line: None)
    assert again[0].numbers == trained[0].numbers
    assert model.stat().st_mtime_ns == before
    (tmp_path / "results.md").write_text(f"Ten sentences.\n\n{MARK}\nold figures", encoding="utf-8")
    text = write_page(trained, tmp_path / "results.md", phantoms=store, beside=options.out).read_text(encoding="utf-8")
    assert text.startswith("Ten sentences.")
    assert "old figures" not in text
    assert "| 4×4 + DM, second seed | normal |" in text
    assert len(list((tmp_path / "results").glob("*.png"))) == 4
