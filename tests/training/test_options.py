"""Requests become complete configs; wrong ones are refused in one clear line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.config import get_preset
from diptych.errors import DiptychError, StoreError, UsageError
from diptych.slices import SliceStore
from diptych.training import Length, RunConfig, TrainingOptions
from diptych.training.training_data import resolve
from diptych.training.training_options import override
from tests.training.tiny import SETTINGS, make_empty_store, tiny_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SliceStore:
    return tiny_store(tmp_path_factory.mktemp("options") / "store")


@pytest.fixture
def options(store: SliceStore, tmp_path: Path) -> TrainingOptions:
    return TrainingOptions(
        out=tmp_path / "run", stores=(store.path,), preset="cpu-8x8", overrides=SETTINGS, length=Length(steps=3)
    )


@pytest.mark.parametrize(
    ("change", "section", "name", "value"),
    [
        ("learning_rate=3e-4", "training", "learning_rate", 3e-4),
        ("batch_size=16", "training", "batch_size", 16),
        ("flip=false", "training", "flip", False),
        ("schedule=constant", "training", "schedule", "constant"),
        ("regulariser_weight=0", "losses", "regulariser_weight", 0.0),
        ("field_mm=full", "model", "field_mm", None),
        ("field_mm=100x80", "model", "field_mm", (100.0, 80.0)),
    ],
)
def test_settings_are_read_by_their_type(change: str, section: str, name: str, value: object) -> None:
    changed = override(get_preset("cpu-8x8"), [change])
    assert getattr(getattr(changed, section), name) == value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("learning_speed=1", "no setting of that name; settings are .*learning_rate"),
        ("learning_rate=fast", "must be a number"),
        ("batch_size=1.5", "must be a whole number"),
        ("schedule=linear", "must be cosine or constant"),
        ("flip=maybe", "must be true or false"),
        ("learning_rate", "must be a number"),
    ],
)
def test_wrong_settings_are_refused(change: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        override(get_preset("cpu-8x8"), [change])


def test_config_survives_json(options: TrainingOptions) -> None:
    config, _ = resolve(options)
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_split_is_seeded_and_keeps_sides_apart(options: TrainingOptions) -> None:
    first, second, other = (resolve(replace(options, seed=seed))[0] for seed in (1, 1, 3))
    assert not set(first.train_keys) & set(first.validation_keys)
    assert first.validation_keys == second.validation_keys != other.validation_keys


def test_train_list_alone_is_divided(options: TrainingOptions, tmp_path: Path) -> None:
    listed = tmp_path / "train.txt"
    listed.write_text("patient-0\npatient-2\npatient-4\n")
    config, _ = resolve(replace(options, train_list=listed))
    assert sorted(config.train_keys + config.validation_keys) == ["patient-0", "patient-2", "patient-4"]


def test_another_geometry_names_both_and_the_command(options: TrainingOptions) -> None:
    message = (
        r"slices of 48x32 pixels over 60x48 mm, preset cpu-8x8 takes 128x128 over 200x160 mm; "
        r"run 'diptych prepare SOURCE --out NEW --size 128x128 --field 200x160'"
    )
    with pytest.raises(StoreError, match=message):
        resolve(replace(options, overrides=()))


def refused(options: TrainingOptions, **changes: object) -> str:
    with pytest.raises(DiptychError) as caught:
        resolve(replace(options, **changes))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_things_are_named(options: TrainingOptions, tmp_path: Path) -> None:
    assert "no slice store" in refused(options, stores=())
    assert "no manifest.json" in refused(options, stores=(tmp_path / "nowhere",))
    assert "no preset" in refused(options, preset=None)
    assert "choose one of cpu-8x8" in refused(options, preset="huge")
    assert "must be float32 or bfloat16" in refused(options, precision="fp16")
    assert "--train-list beside it" in refused(options, validation_list=tmp_path / "list.txt")


def test_empty_store_is_refused(options: TrainingOptions, tmp_path: Path) -> None:
    assert "no patient with lesion labels" in refused(options, stores=(make_empty_store(tmp_path / "empty"),))


def test_existing_folder_needs_resume(options: TrainingOptions) -> None:
    (options.out / "something").mkdir(parents=True)
    assert "add --resume" in refused(options)
    assert "other things than a run" in refused(options, resume=True)


@pytest.fixture
def begun(options: TrainingOptions) -> TrainingOptions:
    """A run whose config is written, to be resumed."""
    options.out.mkdir()
    config = resolve(replace(options, out=options.out / "new"))[0]
    (options.out / "config.json").write_text(json.dumps(config.to_dict()))
    return replace(options, resume=True)


def test_resume_needs_nothing_repeated(begun: TrainingOptions) -> None:
    assert resolve(TrainingOptions(out=begun.out, resume=True))[0] == resolve(begun)[0]


def test_resume_with_other_settings_is_refused(begun: TrainingOptions) -> None:
    assert "preset.training.learning_rate was 0.001 and is now 0.1" in refused(
        begun, overrides=(*SETTINGS, "learning_rate=0.1")
    )
    assert "length.steps was 3 and is now 4" in refused(begun, length=Length(steps=4))
    assert "preset.training.seed was 0 and is now 5" in refused(begun, seed=5)


def test_resume_of_another_version_is_refused(begun: TrainingOptions) -> None:
    path = begun.out / "config.json"
    path.write_text(path.read_text().replace("ema_decay", "ema_memory"))
    assert "not a run of this version of Diptych" in refused(begun)


def test_resume_with_other_data_is_refused(begun: TrainingOptions, tmp_path: Path) -> None:
    other = tiny_store(tmp_path / "other", first_seed=100)
    assert "not those the run began with" in refused(begun, stores=(other.path,))
