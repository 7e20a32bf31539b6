"""Results go back to a real Orthanc as DICOM that others can read, once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest

from diptych.errors import InputError, UsageError
from diptych.pacs import Desk, Wanted, connect, fetch_study, send_study
from diptych.pacs.dicom_results import KINDS, clean_header
from diptych.pacs.orthanc import Orthanc
from diptych.pacs.send import viewer_address
from diptych.pacs.servers import PacsConfig, read_config
from diptych.pacs.study_findings import Findings, find_in_study
from diptych.phantom.phantom_dicom import Person
from diptych.retrieval import Archive
from tests.pacs.conftest import WEB, door
from tests.pacs.making import write_small_study

NOTICE = "esearch use only, not a medical device"


@pytest.fixture(scope="module")
def filled(empty_orthanc: Orthanc, study: Path, tmp_path_factory: pytest.TempPathFactory) -> Orthanc:
    """With two studies of two people; one has a sex that DICOM does not know and a name beyond ASCII."""
    empty_orthanc.put(study)
    other = write_small_study(
        tmp_path_factory.mktemp("other"), person=Person(name="Möller^Ünal", patient_id="SEND-2"), seed=7
    )
    for path in other.rglob("*.dcm"):
        dataset = pydicom.dcmread(path)
        dataset.SpecificCharacterSet = "ISO_IR 100"
        dataset.add_new("PatientSex", "LO", "0000")
        dataset["PatientSex"].VR = "CS"
        dataset.save_as(path)
    empty_orthanc.put(other)
    return empty_orthanc


@pytest.fixture(scope="module")
def config(filled: Orthanc, tmp_path_factory: pytest.TempPathFactory) -> PacsConfig:
    path = tmp_path_factory.mktemp("send") / "pacs.toml"
    path.write_text(WEB.format(orthanc=filled), encoding="utf-8")
    return read_config(path)


@pytest.fixture(scope="module")
def desk(config: PacsConfig, model: Path) -> Desk:
    """Both studies are in the archive."""
    incoming = door(config.path.with_name("archive"), config, model)
    remote = connect(config.server("hospital"))
    for patient in ("CANARY-4711", "SEND-2"):
        outcome = fetch_study(remote, uid_of(config, patient), incoming)
        assert outcome.state == "done", outcome
    return Desk.open(incoming.archive, config)


@pytest.fixture(scope="module")
def archive(desk: Desk, model: Path) -> Archive:
    return Archive.open(desk.archive, model=model)


def uid_of(config: PacsConfig, patient: str) -> str:
    (entry,) = connect(config.server("hospital")).studies(Wanted(modality="", patient_id=patient))
    return entry.uid


def own_instances(orthanc: Orthanc, study_uid: str) -> list[Any]:
    """What a second client, that knows nothing of ours, lists and reads of Diptych."""
    from dicomweb_client.api import DICOMwebClient

    client = DICOMwebClient(f"{orthanc.url}/dicom-web")
    series = client.search_for_series(study_uid, fields=["SeriesDescription"])
    own = [
        one["0020000E"]["Value"][0]
        for one in series
        if str(one.get("0008103E", {}).get("Value", [""])[0])[:7] == "Diptych"
    ]
    return [instance for one in own for instance in client.retrieve_series(study_uid, one)]


@pytest.mark.parametrize("name", ["hospital", "old"])
def test_results_come_back_whole_and_once(
    name: str, desk: Desk, archive: Archive, filled: Orthanc, config: PacsConfig
) -> None:
    uid = uid_of(config, "CANARY-4711")
    findings = find_in_study(archive, desk.row(uid).volume_key, desk.archive.with_name("archive-intake"))
    first = send_study(desk, uid, to=name, archive=archive, again=True)
    assert set(first.stored) | set(first.left) == set(KINDS)
    found = own_instances(filled, uid)
    assert len(found) >= first.instances == 3 + findings.series.shape[2]
    second = send_study(desk, uid, to=name, archive=archive)
    assert (second.stored, second.instances) == ((), 0)
    assert len(own_instances(filled, uid)) == len(found)
    newest = max(kind.rpartition(".")[2] for kind in desk.ledger.sent(desk.row(uid).study).values())
    series = {one for one, kind in desk.ledger.sent(desk.row(uid).study).items() if kind.endswith(f".{newest}")}
    mine = [one for one in found if str(one.SeriesInstanceUID) in series]
    check_voxels(findings, mine)
    for one in mine:
        assert (str(one.PatientID), str(one.StudyInstanceUID)) == ("CANARY-4711", uid)
        assert NOTICE in str(one.SeriesDescription)


def check_voxels(findings: Findings, instances: list[Any]) -> None:
    """Re-read voxels equal what was written."""
    import highdicom as hd

    (seg,) = (hd.seg.Segmentation.from_dataset(one) for one in instances if one.Modality == "SEG")
    assert seg.SegmentationType == "BINARY"
    volume = seg.get_volume(combine_segments=False, rescale_fractional=False)
    made = np.stack([findings.lesion == one.value for one in findings.classes], axis=-1)
    assert int(volume.array.sum()) == int(made.sum())
    filled = np.flatnonzero(made.any(axis=(0, 1, 3)))
    by_place = made.transpose(2, 1, 0, 3)[filled[0] : filled[-1] + 1]
    same = volume.array.astype(bool)
    assert np.array_equal(same, by_place) or np.array_equal(same[::-1], by_place)
    twin = sorted((one for one in instances if one.Modality == "MR"), key=lambda one: int(one.InstanceNumber))
    assert np.array_equal(np.stack([one.pixel_array for one in twin]), findings.twin.transpose(2, 1, 0))


def test_the_report_says_ranks_volumes_and_sides(
    desk: Desk, archive: Archive, config: PacsConfig, tmp_path: Path
) -> None:
    import highdicom as hd

    uid = uid_of(config, "SEND-2")
    sent = send_study(desk, uid, archive=archive, what=("sr", "seg"), out=tmp_path / "out")
    (report,) = (pydicom.dcmread(path) for path in (tmp_path / "out").glob("SR-*.dcm"))
    assert str(report.PatientName) == "Möller^Ünal"
    assert report.PatientSex == ""
    content = hd.sr.srread(tmp_path / "out" / next((tmp_path / "out").glob("SR-*.dcm")).name).content
    volumes = content.get_volumetric_roi_measurement_groups()
    findings = find_in_study(archive, sent.volume_key, desk.archive.with_name("archive-intake"))
    assert [round(group.get_measurements()[0].value, 3) for group in volumes] == [
        round(value, 3) for value in findings.millilitres.values()
    ]
    text = report.to_json()
    for match in findings.matches:
        assert f"match {match.rank}: {match.volume_key}" in text
    assert findings.matches
    assert NOTICE in text


@pytest.mark.skipif(shutil.which("dciodvfy") is None, reason="no dciodvfy here (apt-get install dicom3tools)")
def test_dciodvfy_finds_no_error(
    desk: Desk, archive: Archive, config: PacsConfig, filled: Orthanc, tmp_path: Path
) -> None:
    """Neither in files of ours nor in those that the server keeps of what it was sent."""
    for patient in ("CANARY-4711", "SEND-2"):
        send_study(desk, uid_of(config, patient), archive=archive, out=tmp_path / patient)
        assert {path.name[:2] for path in (tmp_path / patient).glob("*.dcm")} == {"SE", "SR", "MR", "OT"}
    send_study(desk, uid_of(config, "SEND-2"), archive=archive)
    kept = {}
    for one in filled.get("series?expand"):
        if str(one["MainDicomTags"].get("SeriesDescription", "")).startswith("Diptych"):
            kept[one["MainDicomTags"]["Modality"]] = one["Instances"][0]
    for modality, instance in kept.items():
        (tmp_path / f"{modality}.dcm").write_bytes(filled.file(instance))
    assert set(kept) == {"SEG", "SR", "MR", "OT"}
    wrong = {}
    for path in [path for path in tmp_path.rglob("*.dcm") if not path.stem.startswith("MR-") or "1" in path.stem]:
        ran = subprocess.run(["dciodvfy", str(path)], capture_output=True, text=True, check=False)
        if errors := [line for line in ran.stderr.splitlines() if line.startswith("Error")]:
            wrong[path.name] = errors
    assert wrong == {}


def test_no_name_stays_here_when_results_go_back(
    desk: Desk,
    archive: Archive,
    config: PacsConfig,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Archive, ledger, what intake made and all that is said: the hospital's marks are in the vault only."""
    uid = uid_of(config, "CANARY-4711")
    send_study(desk, uid, archive=archive, again=True)
    home = desk.archive.parent
    files = [path for path in home.rglob("*") if path.is_file() and "vault" not in path.parts]
    seen = b"".join(path.read_bytes() for path in files) + "".join([*capfd.readouterr(), caplog.text]).encode()
    assert any(path.name == "ledger.sqlite" for path in files)
    for mark in ("CANARY", "Phantomina", "ünal", "Ünal", "19570302", uid):
        assert mark.encode() not in seen, mark


def test_another_revision_is_sent_only_when_asked_for(desk: Desk, archive: Archive, config: PacsConfig) -> None:
    uid = uid_of(config, "SEND-2")
    send_study(desk, uid, archive=archive, what=("sr",))
    assert send_study(desk, uid, archive=archive, what=("sr",)).stored == ()
    assert send_study(desk, uid, archive=archive, what=("sr",), again=True).stored == ("sr",)
    assert send_study(desk, uid, archive=archive, what=("sr",)).there == ("sr",)


def test_what_cannot_be_sent_is_one_line(desk: Desk, archive: Archive, config: PacsConfig) -> None:
    with pytest.raises(UsageError, match="never came from a PACS"):
        send_study(desk, "1.2.3", archive=archive)
    with pytest.raises(UsageError, match="choose of seg"):
        send_study(desk, "1.2.3", archive=archive, what=("pdf",))
    uid = uid_of(config, "CANARY-4711")
    with pytest.raises(InputError, match="was not used"):
        send_study(desk, uid, archive=archive, on="adc")
    folder = desk.archive.with_name("archive-intake")
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(InputError, match="fetch --again"):
        send_study(desk, uid, archive=archive)
    folder.with_name("elsewhere").rename(folder)


def test_the_viewer_is_found_by_the_hospitals_uid(desk: Desk, config: PacsConfig) -> None:
    uid = uid_of(config, "CANARY-4711")
    assert (
        viewer_address(desk, desk.row(uid).volume_key) == f"https://viewer.example.org/viewer?StudyInstanceUIDs={uid}"
    )


def test_invalid_values_become_empty_but_identity_stays() -> None:
    header = pydicom.Dataset()
    header.StudyInstanceUID = "1.2.3"
    for keyword, vr, value in (
        ("PatientID", "LO", "X" * 70),
        ("PatientSex", "CS", "0000"),
        ("PatientBirthDate", "DA", "2019-13"),
        ("StudyTime", "TM", "noon"),
    ):
        header.add(pydicom.DataElement(keyword, vr, value, already_converted=True))
    out = clean_header(header)
    assert (out.PatientID, out.PatientSex, out.PatientBirthDate) == ("X" * 70, "", "")
    assert "StudyTime" not in out


def test_a_changed_source_is_refused(desk: Desk, archive: Archive, config: PacsConfig) -> None:
    """A server that has lost most slices of the series is told apart from one that has them."""
    remote = connect(config.server("hospital"))
    few = _Few(remote)
    with pytest.raises(InputError, match="fetch it again"):
        send_study(desk, uid_of(config, "CANARY-4711"), archive=archive, remote=few, again=True)


class _Few:
    """A remote that lists two slices of each series."""

    def __init__(self, remote: Any) -> None:
        self._remote = remote
        self.server = replace(remote.server)

    def headers(self, study_uid: str, series_uid: str) -> list[Any]:
        return list(self._remote.headers(study_uid, series_uid))[:2]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self._remote, name)  # type: ignore[no-any-return]
