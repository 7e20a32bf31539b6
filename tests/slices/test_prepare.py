"""Preparing a store: whole, resumable, unharmed by bad patients and by being killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diptych.errors import InputError, LayoutError, StoreError
from diptych.files import only_writer
from diptych.slices import SliceGeometry, SliceStore, slice_volume
from diptych.slices.preparation import PrepareReport, prepare
from diptych.volumes import find_patients, read_patient
from tests.conftest import Run
from tests.slices.making import SMALL, make_volume, write_patient


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    for number in range(3):
        write_patient(tmp_path / "patients", make_volume(f"p{number}", seed=number))
    return tmp_path / "patients"


def run(patients: Path) -> PrepareReport:
    return prepare([patients], patients.parent / "store", geometry=SMALL)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "manifest.json")]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_every_patient_is_stored_as_read(patients: Path) -> None:
    report = run(patients)
    store = SliceStore.open(patients.parent / "store", verify=True)
    assert report.written == ("p0", "p1", "p2") == tuple(store.patients)
    volume = read_patient(find_patients(patients)[1])
    np.testing.assert_allclose(store.images("p1"), slice_volume(volume, SMALL).without_blank().images, atol=2e-3)


def test_blank_slices_are_kept_when_asked_for(patients: Path) -> None:
    report = prepare([patients], patients.parent / "all", geometry=SMALL, blank=True)
    stack = slice_volume(read_patient(find_patients(patients)[0]), SMALL)
    store = SliceStore.open(patients.parent / "all")
    assert stack.blank.any()
    assert store.images("p0").shape[0] == len(stack.blank)
    assert report.slices == 3 * len(stack.blank)
    with pytest.raises(StoreError, match="keeps blank slices; add --blank"):
        prepare([patients], patients.parent / "all", geometry=SMALL)


def test_sources_and_their_hashes_are_recorded(patients: Path) -> None:
    run(patients)
    record = SliceStore.open(patients.parent / "store").patients["p0"]
    assert set(record.sources) == {"t1", "t1gd", "t2", "flair", "lesion"}
    assert Path(record.sources["t1gd"].path).name == "p0-t1c.nii.gz"


def test_a_second_run_touches_nothing(patients: Path) -> None:
    run(patients)
    before = contents(patients.parent / "store")
    report = run(patients)
    assert (report.written, len(report.unchanged)) == ((), 3)
    assert contents(patients.parent / "store") == before


def test_workers_make_the_same_store(patients: Path) -> None:
    run(patients)
    alone = SliceStore.open(patients.parent / "store").fingerprint
    prepare([patients], patients.parent / "other", geometry=SMALL, workers=2)
    assert SliceStore.open(patients.parent / "other").fingerprint == alone


def test_new_and_changed_patients_are_taken_in(patients: Path) -> None:
    run(patients)
    write_patient(patients, make_volume("p3", seed=3))
    shutil.rmtree(patients / "p1")
    write_patient(patients, make_volume("p1", seed=11))
    report = run(patients)
    assert (report.written, report.unchanged) == (("p1", "p3"), ("p0", "p2"))


def test_a_bad_patient_is_reported_and_the_others_go_in(patients: Path) -> None:
    file = patients / "p1" / "p1-t2w.nii.gz"
    file.write_bytes(file.read_bytes()[:300])
    report = run(patients)
    assert report.written == ("p0", "p2")
    assert "p1-t2w.nii.gz" in report.failed["p1"]
    assert list(SliceStore.open(patients.parent / "store").manifest.failed) == ["p1"]


def test_a_mended_patient_is_taken_in_and_its_failure_forgotten(patients: Path) -> None:
    file = patients / "p1" / "p1-t2w.nii.gz"
    whole = file.read_bytes()
    file.write_bytes(b"nothing")
    run(patients)
    file.write_bytes(whole)
    assert run(patients).written == ("p1",)
    assert SliceStore.open(patients.parent / "store").manifest.failed == {}


def test_a_missing_channel_fails_that_patient_only(patients: Path) -> None:
    (patients / "p2" / "p2-t2f.nii.gz").unlink()
    assert "flair" in run(patients).failed["p2"]


def test_a_store_of_fewer_channels_needs_only_those(patients: Path) -> None:
    (patients / "p2" / "p2-t2f.nii.gz").unlink()
    report = prepare([patients], patients.parent / "two", geometry=SMALL, channels=("t1", "t2"))
    assert not report.failed
    assert SliceStore.open(patients.parent / "two").images("p2").shape[1] == 2


def test_an_unexpected_failure_is_reported_like_a_bad_patient(patients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.slices.preparation.voxel_hash", lambda volume: 1 / 0)
    assert "unexpected ZeroDivisionError" in run(patients).failed["p0"]


def test_a_full_disk_stops_the_run(patients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(StoreError, match="No space left on device"):
        run(patients)
    assert not list((patients.parent / "store" / "patients").iterdir())


def test_damage_in_the_store_is_mended(patients: Path) -> None:
    run(patients)
    folders = sorted((patients.parent / "store" / "patients").iterdir())
    (folders[0] / "images.npy").unlink()
    (folders[1] / "patient.json").write_text("{")
    assert len(run(patients).written) == 2
    SliceStore.open(patients.parent / "store", verify=True)


def test_a_key_in_two_sources_is_refused(patients: Path) -> None:
    other = patients.parent / "more"
    write_patient(other, make_volume("p0", seed=77))
    with pytest.raises(LayoutError, match=r"more: patient p0 is also in .*; give one of them"):
        prepare([patients, other], patients.parent / "store", geometry=SMALL)


def test_a_folder_given_twice_counts_once(patients: Path) -> None:
    report = prepare([patients, patients / ".." / patients.name], patients.parent / "store", geometry=SMALL)
    assert (len(report.written), report.failed) == (3, {})


def test_a_store_that_cannot_be_written_is_said_in_one_line(patients: Path) -> None:
    (patients.parent / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"file/store: cannot be written \(Not a directory\); give another --out"):
        prepare([patients], patients.parent / "file" / "store", geometry=SMALL)


def test_the_same_voxels_under_two_keys_are_warned_about(patients: Path) -> None:
    write_patient(patients, replace(make_volume("p0", seed=0), patient_key="copy"))
    assert run(patients).warnings == {"p0": ("has the same voxels as copy",)}


def test_a_brain_beyond_the_field_is_warned_about(patients: Path) -> None:
    report = prepare([patients], patients.parent / "store", geometry=SliceGeometry((16, 16), (20.0, 60.0)))
    assert all("mm long, the field 20 mm" in lines[0] for lines in report.warnings.values())
    assert len(report.warnings) == 3


def test_another_geometry_is_refused(patients: Path) -> None:
    run(patients)
    with pytest.raises(StoreError, match="give another --out"):
        prepare([patients], patients.parent / "store", geometry=SliceGeometry((16, 16)))


def test_a_source_without_patients_is_refused_before_a_store_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(LayoutError):
        prepare([tmp_path / "empty"], tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_two_runs_at_once_are_refused(patients: Path) -> None:
    store = SliceStore.create(patients.parent / "store", SMALL, ("t1", "t1gd", "t2", "flair"))
    with only_writer(store.path), pytest.raises(InputError, match="another run"):
        run(patients)


def test_progress_counts_to_the_end(patients: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    prepare([patients], patients.parent / "store", geometry=SMALL, progress=lambda *call: seen.append(call))
    assert seen == [(1, 3, "p0"), (2, 3, "p1"), (3, 3, "p2")]


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1, 3])
def test_killed_at_any_point_leaves_a_store_that_the_next_run_completes(tmp_path: Path, after: int) -> None:
    for number in range(12):
        write_patient(tmp_path / "patients", make_volume(f"p{number}", seed=number, shape=(60, 70, 40)))
    command = [sys.executable, "-m", "diptych", "prepare", "patients", "--out", "store", "--workers", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(tmp_path.glob("store/patients/[!.]*"))) < after:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(1.0)  # the workers notice that they are alone

    finished = []
    if (tmp_path / "store" / "manifest.json").exists():
        finished = list(SliceStore.open(tmp_path / "store", verify=True).patients)
    assert after <= len(finished)
    report = prepare([tmp_path / "patients"], tmp_path / "store")
    assert set(report.unchanged) == set(finished)
    assert len(SliceStore.open(tmp_path / "store", verify=True).patients) == 12
    assert not list(tmp_path.glob("store/patients/.*"))


@pytest.mark.e2e
def test_the_command_reports_and_exits_with_4_for_a_bad_patient(patients: Path, diptych: Run) -> None:
    (patients / "p1" / "p1-t2w.nii.gz").write_bytes(b"nothing")
    done = diptych("prepare", patients, "--out", "store", "--size", "24x16", "--workers", 1)
    assert done.returncode == 4
    assert "2 patients, 20 slices of 24x16 pixels" in done.stdout
    assert "failed: p1: " in done.stderr


@pytest.mark.e2e
def test_the_command_speaks_json_and_splits(patients: Path, diptych: Run) -> None:
    done = diptych(
        "prepare", patients, "--out", "store", "--size", "16", "--field", "full", "--channel", "t1", "--json"
    )
    assert json.loads(done.stdout)["written"] == ["p0", "p1", "p2"]
    split = json.loads(diptych("split", "store", "--train", "0.7", "--json").stdout)
    assert (len(split["train"]), len(split["test"])) == (2, 1)


@pytest.mark.parametrize(
    ("option", "value"), [("--size", "big"), ("--size", "1x2x3"), ("--field", "200"), ("--channel", "dwi")]
)
def test_impossible_options_are_wrong_usage(tmp_path: Path, option: str, value: str) -> None:
    from typer.testing import CliRunner

    from diptych.cli.app import app

    done = CliRunner().invoke(app, ["prepare", str(tmp_path), "--out", str(tmp_path / "s"), option, value])
    assert done.exit_code == 2
    assert f"{option} {value}" in done.stderr
