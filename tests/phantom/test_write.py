"""Phantoms on disk: readable, resumable, the same on any number of processes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from diptych.errors import InputError, UsageError
from diptych.phantom import PhantomConfig, make_phantom, write_phantoms
from diptych.volumes import find_patients, read_patient
from tests.conftest import Run

TINY = PhantomConfig(voxel_mm=8.0, samples=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("phantoms")
    write_phantoms(out, patients=2, seed=4, config=TINY, before=True)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("Phantom*/*"))}


def test_what_is_read_is_what_was_made(folder: Path) -> None:
    made, read = make_phantom(4, index=1, config=TINY).volume, read_patient(find_patients(folder)[1])
    assert (read.patient_key, read.channels, read.warnings) == (made.patient_key, made.channels, ())
    np.testing.assert_array_equal(read.array, made.array)
    assert made.twin is not None
    np.testing.assert_array_equal(read.twin, made.twin)
    assert made.lesion is not None
    np.testing.assert_array_equal(read.lesion, made.lesion)
    np.testing.assert_allclose(read.affine, made.affine)


def test_the_brain_before_is_no_patient_of_its_own(folder: Path) -> None:
    assert len(list(folder.glob("*/*-before.nii.gz"))) == 8
    assert len(find_patients(folder)) == 2


def test_two_processes_give_the_same_bytes_as_one(folder: Path, tmp_path: Path) -> None:
    write_phantoms(tmp_path, patients=2, seed=4, config=TINY, before=True, workers=2)
    assert contents(tmp_path) == contents(folder)


def test_a_second_run_leaves_finished_patients_alone(folder: Path) -> None:
    report = write_phantoms(folder, patients=2, seed=4, config=TINY, before=True)
    assert (report.written, len(report.unchanged)) == ((), 2)


def test_a_stopped_run_is_resumed(tmp_path: Path) -> None:
    write_phantoms(tmp_path, patients=1, seed=4, config=TINY)
    (tmp_path / ".part-0123abcd-Phantom-00004-00001").mkdir()
    seen: list[tuple[int, int, str]] = []
    report = write_phantoms(
        tmp_path,
        patients=2,
        seed=4,
        config=TINY,
        progress=lambda *step: seen.append(step),
    )
    assert report.written == ("Phantom-00004-00001",)
    assert seen == [(2, 2, "Phantom-00004-00001")]
    assert not list(tmp_path.glob(".part-*"))


def test_other_settings_are_not_mixed_in(folder: Path) -> None:
    with pytest.raises(InputError, match="made with another config; choose another folder"):
        write_phantoms(folder, patients=1, seed=4, config=PhantomConfig(voxel_mm=8.0), before=True)


def test_a_foreign_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "Phantom-00004-00000").mkdir()
    with pytest.raises(InputError, match="no phantom of ours"):
        write_phantoms(tmp_path, patients=1, seed=4, config=TINY)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="out: cannot be written"):
        write_phantoms(tmp_path / "out", patients=1, seed=4, config=TINY)


def test_no_patients_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one"):
        write_phantoms(tmp_path, patients=0, seed=4)


@pytest.mark.e2e
def test_the_command_reports_in_json(diptych: Run, tmp_path: Path) -> None:
    done = diptych("phantom", "--out", "out", "--patients", 1, "--voxel-mm", 8, "--healthy", 1, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["written"] == ["Phantom-00000-00000"]
    assert find_patients(tmp_path / "out")[0].twin


@pytest.mark.e2e
@pytest.mark.parametrize(("option", "value"), [("--healthy", 2), ("--voxel-mm", 0.1), ("--patients", 0)])
def test_the_command_refuses_what_cannot_be(diptych: Run, option: str, value: float) -> None:
    done = diptych("phantom", "--out", "out", option, value)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
