"""Cross-validation: held-out patients stay unseen, a killed run ends with the same bits, bad input is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from diptych.annotation.lesions import LesionOptions, train_lesions
from diptych.annotation.lesions.fold_training import FoldTrainer
from diptych.annotation.lesions.lesion_network import LesionPreset
from diptych.errors import InputError, UsageError
from diptych.runs.run_length import Length
from tests.annotation_lesions.making import SHAPE, write_case, write_cases


def request_for(source: Path, out: Path, *, folds: int = 3, steps: int = 8) -> LesionOptions:
    return LesionOptions(out=out, source=source, preset="tiny", folds=folds, length=Length(steps=steps), threads=1)


def weights(run: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((run / "model").glob("*.safetensors"))]


def test_run_leaves_what_it_promises(finished: Path) -> None:
    report = json.loads((finished / "report.json").read_text())
    assert [len(fold["patients"]) for fold in report["folds"]] == [2, 2, 2]
    assert report["paper"] == {"ET": 0.68, "ED": 0.74, "TC": 0.79}
    assert len(weights(finished)) == 3
    assert "| paper, 1 mm | 355 | 0.68 | 0.74 | 0.79 |" in (finished / "model" / "README.md").read_text()
    assert (finished / "fold-2" / "log.csv").read_text().count("\n") == 9


def test_each_model_is_judged_on_patients_it_never_saw(
    patients: Path, tmp_path: Path, tiny_preset: LesionPreset, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, set[str]] = {}
    judged: dict[int, set[str]] = {}
    begin = FoldTrainer._begin

    def noting(trainer: FoldTrainer) -> None:
        seen[trainer.number] = {case.patient_key for case in trainer.sampler.cases}
        judged[trainer.number] = {case.patient_key for case in trainer.held_out}
        begin(trainer)

    monkeypatch.setattr(FoldTrainer, "_begin", noting)
    train_lesions(request_for(patients, tmp_path / "run", steps=1))
    assert all(not seen[number] & judged[number] for number in (1, 2, 3))
    assert set.union(*judged.values()) == {f"case-{number:02d}" for number in range(6)}


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the program catches it."""


@pytest.mark.parametrize("fatal", [3, 13])
def test_killed_and_resumed_gives_the_same_bits(
    patients: Path, finished: Path, tmp_path: Path, tiny_preset: LesionPreset, fatal: int
) -> None:
    options = request_for(patients, tmp_path / "run")

    def kill(done: int, total: int, note: str = "") -> None:
        if "fold" in note and done == fatal:
            raise Killed

    with pytest.raises(Killed):
        train_lesions(options, progress=kill)
    train_lesions(LesionOptions(out=options.out, resume=True))
    assert weights(options.out) == weights(finished)


def test_interrupt_saves_after_the_step(patients: Path, tmp_path: Path, tiny_preset: LesionPreset) -> None:
    import signal

    def interrupt(done: int, total: int, note: str = "") -> None:
        if "fold" in note and done == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train_lesions(request_for(patients, tmp_path / "run"), progress=interrupt)
    assert (tmp_path / "run/fold-1/checkpoints/step-00000002").is_dir()


def test_resuming_a_finished_run_changes_nothing(finished: Path) -> None:
    before = weights(finished)
    train_lesions(LesionOptions(out=finished, resume=True))
    assert weights(finished) == before


def test_resume_with_other_settings_is_refused(finished: Path) -> None:
    with pytest.raises(UsageError, match="--folds was 3 and is now 4"):
        train_lesions(LesionOptions(out=finished, resume=True, folds=4))


def test_resume_with_other_patients_is_refused(finished: Path, tmp_path: Path) -> None:
    other = write_cases(tmp_path / "other", 6)
    shutil.rmtree(other / "case-05")
    with pytest.raises(InputError, match="not the patients the run"):
        train_lesions(LesionOptions(out=finished, source=other, resume=True))


def test_there_already(finished: Path, patients: Path) -> None:
    with pytest.raises(UsageError, match="add --resume"):
        train_lesions(replace(request_for(patients, finished), preset=None))


def no_labels(folder: Path) -> None:
    write_case(folder, 9, key="bad", labels=None)


def single_class(folder: Path) -> None:
    write_case(folder, 9, key="bad", labels=lambda seed: np.zeros(SHAPE, dtype=np.uint8))


def missing_channel(folder: Path) -> None:
    write_case(folder, 9, key="bad")
    (folder / "bad" / "bad-t2f.nii.gz").unlink()


def empty_brain(folder: Path) -> None:
    write_case(folder, 9, key="bad", turn=lambda array: array * 0)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (no_labels, "bad: has no lesion labels to learn from"),
        (single_class, "holds background only, a single class"),
        (missing_channel, "patient bad has no flair"),
        (empty_brain, "has no voxel above zero"),
    ],
)
def test_bad_patient_is_named_and_the_others_go_on(
    tmp_path: Path, tiny_preset: LesionPreset, spoil: Callable[[Path], None], reason: str
) -> None:
    source = write_cases(tmp_path / "patients", 2)
    spoil(source)
    report = train_lesions(request_for(source, tmp_path / "run", folds=2, steps=1))
    assert list(report["left_out"]) == ["bad"]
    assert reason in report["left_out"]["bad"]
    assert "\n" not in report["left_out"]["bad"]
    assert report["patients"] == 2


def test_fewer_patients_than_folds(tmp_path: Path, tiny_preset: LesionPreset) -> None:
    source = write_cases(tmp_path / "patients", 2)
    with pytest.raises(UsageError, match="2 labelled patients that can be used, but 5 folds"):
        train_lesions(request_for(source, tmp_path / "run", folds=5))


def test_unknown_preset_names_the_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--preset 3mm: not known; presets are 2mm-cpu, 1mm-gpu"):
        train_lesions(LesionOptions(out=tmp_path / "run", source=tmp_path, preset="3mm"))


def test_checkpoints_are_no_pickles(finished: Path) -> None:
    names = {path.name for path in finished.rglob("*") if path.is_file() and "checkpoints" in path.parts}
    assert names == {"tensors.safetensors", "state.json"}
    assert load_file(next(finished.rglob("tensors.safetensors")))
