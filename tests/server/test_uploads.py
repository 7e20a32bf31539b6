"""Uploads: from strangers' files to a case like any other, in bounds, and gone afterwards."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest

from diptych.files import FolderLock
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive
from diptych.server.problems import Problem
from diptych.server.service import LOCK, sweep
from diptych.server.settings import ServerSettings
from diptych.server.uploads import CHUNK, Uploads, shown_name
from diptych.volumes import Limits
from tests.archive.patients import write_patient
from tests.server.conftest import API, KEYS, finish, make_archive, serving, upload


def ready(client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    """The upload once it is decomposed."""
    assert answer.status_code == 202, answer.text
    finish(client, answer.json()["job"])
    found: dict[str, Any] = client.get(f"{API}/uploads/{answer.json()['id']}").json()
    return found


@pytest.fixture
def newcomer(tmp_path: Path) -> Path:
    return write_patient(tmp_path, "New-7", seed=9)


def test_an_upload_is_decomposed_and_searched(client: httpx.Client, newcomer: Path) -> None:
    found = ready(client, upload(client, newcomer))
    assert (found["state"], found["patient_key"]) == ("ready", "New-7")
    assert found["channels"]["New-7-t1c.nii.gz"] == "t1gd"
    subject = {"upload": found["id"], "z": 4}
    matches = client.post(f"{API}/search", json={"subject": subject, "by": "normal"}).json()["matches"]
    assert len(matches) == 3
    view = client.post(f"{API}/subjects/view", json={"subject": subject}).json()
    assert view["trust"]["quantisation_error"] > 0
    urls = [view["pictures"]["image"], view["pictures"]["difference"], found["volume"]["channel_urls"]["t2"]]
    assert [client.get(url).status_code for url in urls] == [200, 200, 200]


def test_a_choice_of_channels_that_is_nested_too_deep_is_refused(client: httpx.Client, newcomer: Path) -> None:
    assert upload(client, newcomer, channels="[" * 60_000).status_code == 422


class Gate(io.BytesIO):
    """A file whose end comes when somebody says so."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.begun, self.open = Event(), Event()

    def read(self, size: int | None = -1) -> bytes:
        if size == CHUNK:
            self.begun.set()
            assert self.open.wait(10)
        return super().read(size)


def test_what_is_still_coming_in_takes_room(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path, ServerSettings(max_uploads_per_user=2, upload_quota=1500))
    slow = Gate(bytes(1000))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(uploads.receive, [("a.nii", slow)])
        slow.begun.wait(10)
        with pytest.raises(Problem, match="room for uploads is full"):
            uploads.receive([("b.nii", io.BytesIO(bytes(600)))])
        small = uploads.receive([("b.nii", io.BytesIO(bytes(10)))])
        with pytest.raises(Problem, match="you have 2 uploads"):
            uploads.receive([("c.nii", io.BytesIO(bytes(10)))])
        slow.open.set()
        assert first.result().size == 1000
    with pytest.raises(Problem, match="room for uploads is full"):
        uploads.add(small, [("d.nii", io.BytesIO(bytes(600)))])


def test_two_requests_that_add_to_one_upload_do_not_mix(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path, ServerSettings())
    one, slow = uploads.receive([("a.nii", io.BytesIO(b"abc"))]), Gate(b"defg")
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(uploads.add, one, [("b.nii", slow)])
        slow.begun.wait(10)
        with pytest.raises(Problem, match="coming in"):
            uploads.add(one, [("c.nii", io.BytesIO(b"hi"))])
        slow.open.set()
        adding.result()
    assert [(file.name, file.path.read_bytes()) for file in one.files] == [("a.nii", b"abc"), ("b.nii", b"defg")]


def test_a_zip_unfolds_in_the_service_s_own_folder_and_not_for_ever(
    archive_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as study:
        study.writestr("a.dcm", bytes(5 << 20))
    with serving(Archive.open(archive_path, model=model), max_unpacked=1 << 20) as client:
        made, real = list[Path](), tempfile.mkdtemp

        def noted(*arguments: Any, **options: Any) -> str:
            made.append(Path(real(*arguments, **options)))
            return str(made[-1])

        monkeypatch.setattr(tempfile, "mkdtemp", noted)
        job = client.post(f"{API}/uploads", files=[("files", ("s.zip", packed.getvalue()))]).json()["job"]
        assert "unpacks to more than" in finish(client, job)["error"]
    assert [path for path in made if path.name.startswith("diptych-zip-")]
    assert all("uploads" in path.parts for path in made if path.name.startswith("diptych-zip-"))


def test_a_full_disk_is_told_as_that(client: httpx.Client, newcomer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "1.nii")

    monkeypatch.setattr("diptych.server.uploads._store", full)
    answer = upload(client, newcomer)
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "disk_full")


def test_the_same_patient_gives_the_archived_codes(client: httpx.Client, patients: Path) -> None:
    """The archived twin of an upload lies at distance 0, and is left out unless asked for."""
    found = ready(client, upload(client, patients / "Case-2"))
    search = {"subject": {"upload": found["id"], "z": 4}}
    assert "Case-2" not in [m["volume_key"] for m in client.post(f"{API}/search", json=search).json()["matches"]]
    first = client.post(f"{API}/search", json={**search, "include_own": True}).json()["matches"][0]
    assert (first["volume_key"], first["z"], first["distance"]) == ("Case-2", 4, 0)


def test_a_wrong_guess_can_be_corrected(client: httpx.Client, newcomer: Path) -> None:
    (newcomer / "New-7-t2f.nii.gz").rename(newcomer / "scan.nii.gz")
    first = upload(client, newcomer).json()
    assert (first["state"], first["job"], first["missing"]) == ("needs_channels", None, ["flair"])
    right = client.patch(f"{API}/uploads/{first['id']}", json={"channels": {"scan.nii.gz": "flair"}})
    assert ready(client, right)["state"] == "ready"
    wrong = client.patch(f"{API}/uploads/{first['id']}", json={"channels": {"other.nii.gz": "flair"}})
    assert wrong.status_code == 422


def test_channels_may_come_along(client: httpx.Client, newcomer: Path) -> None:
    (newcomer / "New-7-t2f.nii.gz").rename(newcomer / "scan.nii.gz")
    answer = upload(client, newcomer, channels=json.dumps({"scan.nii.gz": "flair"}))
    assert ready(client, answer)["state"] == "ready"
    assert upload(client, newcomer, channels="[1]").status_code == 422


def test_a_deleted_upload_is_gone(client: httpx.Client, newcomer: Path) -> None:
    found = ready(client, upload(client, newcomer))
    assert client.delete(f"{API}/uploads/{found['id']}").status_code == 204
    assert client.get(f"{API}/uploads/{found['id']}").status_code == 404
    assert client.get(found["volume"]["thumbnail_url"]).status_code == 404


def test_an_unreadable_file_is_named_as_the_client_names_it(client: httpx.Client, newcomer: Path) -> None:
    (newcomer / "New-7-t1n.nii.gz").write_bytes(gzip.compress(b"no image"))
    found = ready(client, upload(client, newcomer))
    assert found["state"] == "failed"
    assert found["error"].startswith("New-7-t1n.nii.gz:")
    assert "diptych-server" not in found["error"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a NIfTI"),
        (b"\x1f\x8b broken", "fetch the file again"),
        (b"hello", "not a NIfTI"),
        (gzip.compress(bytes(300 << 20), 1), "not a NIfTI"),
    ],
    ids=["empty", "broken gzip", "text", "bomb of zeros"],
)
def test_strange_files_fail_in_one_line(client: httpx.Client, newcomer: Path, data: bytes, says: str) -> None:
    (newcomer / "New-7-t1n.nii.gz").write_bytes(data)
    found = ready(client, upload(client, newcomer))
    assert found["state"] == "failed"
    assert says in found["error"]


def test_a_zip_goes_through_intake(client: httpx.Client) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("notes.txt", "no images here")
    found = ready(client, client.post(f"{API}/uploads", files=[("files", ("study.zip", packed.getvalue()))]))
    assert found["state"] == "failed"
    assert found["error"] == "study.zip: holds neither DICOM images nor NIfTI files; give a patient's folder"


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..\\..\\boot.ini", "/etc/t1n.nii.gz", "t1n.nii.gz\0.sh", "", "a" * 4000]
)
def test_names_are_never_paths(client: httpx.Client, newcomer: Path, name: str) -> None:
    data = (newcomer / "New-7-t1n.nii.gz").read_bytes()
    answer = client.post(f"{API}/uploads", files=[("files", (name, data))])
    assert answer.status_code in (202, 400, 422)
    if answer.status_code == 202:
        (shown,) = answer.json()["files"]
        assert "/" not in shown["name"]
        assert len(shown["name"]) <= 120


def test_names_are_made_harmless() -> None:
    assert shown_name("C:\\scans\\t1.nii") == "t1.nii"
    assert shown_name("a\nb") == "a\\nb"
    assert shown_name("..") == "file"


@pytest.mark.parametrize(
    "send",
    [
        {"json": {}},
        {"data": {"files": "text"}},
        {"content": b"--x\r\nrubbish", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        {"content": b"", "headers": {"content-type": "multipart/form-data"}},
        {"files": [("files", (f"{n}.nii", b"x")) for n in range(9)]},
        {"files": [("files", ("same.nii", b"x")), ("files", ("same.nii", b"y"))]},
    ],
    ids=["json", "no file", "rubbish", "no boundary", "nine files", "one name twice"],
)
def test_bad_uploads_are_refused(client: httpx.Client, send: dict[str, Any]) -> None:
    answer = client.post(f"{API}/uploads", **send)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"]


def test_limits_hold(archive_path: Path, model: Path, newcomer: Path) -> None:
    archive = Archive.open(archive_path, model=model)
    limits = Limits(max_voxels=1000, max_bytes=1 << 20)
    with serving(archive, max_upload=5000, max_body=2000, volume_limits=limits, max_uploads=2) as client:
        assert upload(client, newcomer).status_code == 413
        small = [(name, (f"{name}.nii.gz", gzip.compress(bytes(500)))) for name in ["files"]]
        assert client.post(f"{API}/search", json={"subject": {"volume": "x" * 3000}}).status_code == 413

        def chunks() -> Any:
            yield from (b" " * 1000 for _ in range(50))

        endless = client.post(f"{API}/search", content=chunks(), headers={"content-type": "application/json"})
        assert endless.status_code == 413
        assert [client.post(f"{API}/uploads", files=small).status_code for _ in range(3)] == [202, 202, 429]


def test_large_images_are_refused_before_they_are_read(archive_path: Path, model: Path, newcomer: Path) -> None:
    limits = Limits(max_voxels=1000, max_bytes=1 << 20)
    with serving(Archive.open(archive_path, model=model), volume_limits=limits) as client:
        found = ready(client, upload(client, newcomer))
        assert found["state"] == "failed"
        assert "more than the limit of 1000 voxels" in found["error"]


def test_an_upload_expires(archive_path: Path, model: Path) -> None:
    with serving(Archive.open(archive_path, model=model), upload_seconds=0.0) as client:
        found = client.post(f"{API}/uploads", files=[("files", ("x.nii", b"x"))]).json()
        answer = client.get(f"{API}/uploads/{found['id']}")
        assert (answer.status_code, "has expired" in answer.text) == (404, True)


def test_nothing_is_left_behind(
    archive_path: Path, model: Path, newcomer: Path, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with serving(Archive.open(archive_path, model=model)) as client:
        ready(client, upload(client, newcomer))
        assert list(tmp_path.glob("diptych-server-*/uploads/*"))
    assert list(tmp_path.glob("diptych-server-*")) == []


def test_a_killed_service_is_tidied_up_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lives is told by a lock, not by a number that a container may use again."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, alive = tmp_path / "diptych-server-x", tmp_path / "diptych-server-y"
    for folder in (left, alive):
        folder.mkdir()
        (folder / LOCK).write_text(f"{os.getpid()}\n")
    lock = FolderLock(alive / LOCK)
    lock.acquire()
    sweep()
    assert (left.exists(), alive.exists()) == (False, True)
    lock.release()


def test_an_upload_enters_the_archive_only_when_asked(
    tmp_path: Path, network: FeatureDecomposingNetwork, model: Path, patients: Path, newcomer: Path
) -> None:
    path = make_archive(tmp_path / "own", network, patients)
    with serving(Archive.open(path, model=model)) as client:
        found = ready(client, upload(client, newcomer))
        assert client.get(f"{API}/archive").json()["volumes"] == 3
        job = client.post(f"{API}/uploads/{found['id']}/archive", json={}).json()
        assert finish(client, job["id"])["state"] == "done"
        volume = client.get(f"{API}/volumes/New-7").json()
        assert (volume["lesion_source"], volume["has_pixels"]) == ("labels", True)
        assert client.get(volume["thumbnail_url"]).status_code == 200
        assert client.post(f"{API}/uploads/{found['id']}/archive", json={}).status_code == 409
        bad = client.post(f"{API}/uploads/{found['id']}/archive", json={"volume_key": "../x"})
        assert bad.status_code == 422


def test_a_change_on_disk_is_noticed(
    tmp_path: Path, network: FeatureDecomposingNetwork, model: Path, patients: Path
) -> None:
    path = make_archive(tmp_path / "own", network, patients)
    write_patient(tmp_path / "more", "New-8", seed=5)
    with serving(Archive.open(path, model=model)) as client:
        assert client.get(f"{API}/archive").json()["volumes"] == 3
        make_archive(path, network, tmp_path / "more")
        time.sleep(1.1)
        assert client.get(f"{API}/archive").json()["volumes"] == 4
        assert "New-8" in [one["volume_key"] for one in client.get(f"{API}/volumes").json()["items"]]


def test_headers_of_originals_never_leave(tmp_path: Path, client: httpx.Client) -> None:
    """What a download holds is written anew: no free text of the original's header."""
    folder = write_patient(tmp_path, "New-9", seed=2)
    path = folder / "New-9-t1n.nii.gz"
    raw = bytearray(gzip.decompress(path.read_bytes()))
    raw[148:160] = b"MRS JANE DOE"  # descrip
    path.write_bytes(gzip.compress(bytes(raw)))
    found = ready(client, upload(client, folder))
    sent = gzip.decompress(client.get(found["volume"]["channel_urls"]["t1"]).content)
    assert b"JANE" not in sent
    assert np.frombuffer(sent[:4], "<i4")[0] == 348


def test_a_missing_channel_can_be_given_later(client: httpx.Client, patients: Path) -> None:
    files = sorted((patients / KEYS[0]).iterdir())
    late = next(path for path in files if "t2f" in path.name)
    early = [("files", (path.name, path.read_bytes())) for path in files if path != late]
    begun = client.post(f"{API}/uploads", files=early).json()
    assert begun["missing"] == ["flair"]
    whole = client.post(
        f"{API}/uploads/{begun['id']}/files", files=[("files", ("no-name.nii.gz", late.read_bytes()))]
    ).json()
    assert whole["missing"] == []
    assert finish(client, whole["job"])["state"] == "done"
    again = client.post(f"{API}/uploads/{begun['id']}/files", files=early[:1])
    assert again.status_code == 422
    assert "rename it" in again.text


def test_a_dropped_dicom_folder_goes_through_intake(client: httpx.Client, tmp_path: Path) -> None:
    """Names may repeat in other folders, and what is no DICOM is not looked at."""
    from diptych.phantom.phantom_dicom import DicomStyle, write_series
    from diptych.phantom.raw_head import Acquisition, RawSeries

    noise = np.random.default_rng(0).integers(0, 900, (9, 10, 12)).astype(np.int16)
    grid, empty = np.diag([8.0, 8.0, 10.0, 1.0]), np.zeros(noise.shape, dtype=np.uint8)
    paths = [
        path
        for number, channel in enumerate(("t1", "t2"), start=2)
        for path in write_series(
            RawSeries(Acquisition(channel), noise, grid, np.eye(4), empty > 0, empty),
            tmp_path / channel,
            style=DicomStyle(number=number),
        )
    ]
    parts = [("files", (path.name, path.read_bytes())) for path in paths]
    parts.append(("files", ("Thumbs.db", b"nothing")))
    found = ready(client, client.post(f"{API}/uploads", files=parts))
    assert [file["name"] for file in found["files"]] == [f"DICOM study of {len(paths)} files"]
    assert found["error"].startswith("upload: neither FLAIR nor T1Gd")
    assert "CANARY" not in str(found).upper()
    again = client.post(f"{API}/uploads/{found['id']}/files", files=parts[:1])
    assert again.status_code == 422
    assert "a study is uploaded as a whole" in again.text


@pytest.mark.slow
def test_heads_on_grids_of_their_own_go_through_intake(client: httpx.Client, newcomer: Path) -> None:
    import nibabel as nib

    path = newcomer / "New-7-t2f.nii.gz"
    image = nib.load(path)
    nib.save(nib.Nifti1Image(np.asarray(image.dataobj)[1:], image.affine), path)
    found = ready(client, upload(client, newcomer))
    assert found["state"] == "failed"
    assert "upload: " in found["error"]
    assert str(newcomer) not in found["error"]
