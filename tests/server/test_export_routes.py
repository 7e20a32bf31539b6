"""Answers and predictions to keep: what is in the files, and where it lies."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from diptych.server.cases import Case
from diptych.server.channel_images import Signal
from diptych.server.exports import to_source
from diptych.volumes.nifti import read_nifti
from tests.retrieval.making import make_record
from tests.server.conftest import API, finish

SEARCH = {"subject": {"volume": "Case-1", "z": 4}, "by": "abnormal"}


def export(client: httpx.Client, kind: str) -> httpx.Response:
    answer = client.post(f"{API}/export", json={"search": SEARCH, "format": kind})
    assert answer.status_code == 200, answer.text
    assert "attachment" in answer.headers["content-disposition"]
    return answer


def test_json_holds_question_answer_and_notice(client: httpx.Client) -> None:
    kept: dict[str, Any] = json.loads(export(client, "json").content)
    assert kept["notice"].startswith("Research use only")
    assert kept["patient_key"] == "Case-1"
    assert kept["lanes"][0]["search"]["by"] == "abnormal"
    assert [match["rank"] for match in kept["lanes"][0]["matches"]] == [1, 2]


def test_an_export_holds_all_lists_and_what_was_measured_and_names_the_patient(client: httpx.Client) -> None:
    lanes = [{"title": "By lesion", "search": SEARCH}, {"title": "By anatomy", "search": {**SEARCH, "by": "normal"}}]
    measure = {"kind": "length", "z": 2, "points_mm": [[0, 0], [3, 4]], "length_mm": 5.0}
    answer = client.post(f"{API}/export", json={"lanes": lanes, "measures": [measure], "format": "csv"})
    assert 'filename="diptych-Case-1-matches.csv"' in answer.headers["content-disposition"]
    rows = list(csv.DictReader(StringIO(answer.content.decode("utf-8-sig"))))
    assert [row["list"] for row in rows] == ["By lesion"] * 2 + ["By anatomy"] * 2 + ["Measured"]
    assert {row["query_patient"] for row in rows} == {"Case-1"}
    assert rows[-1]["measured"] == "length: length_mm 5"


def test_a_list_is_of_slices_or_of_patients(client: httpx.Client) -> None:
    patients = {"subject": SEARCH["subject"]}
    for lane in ({"title": "Neither"}, {"title": "Both", "search": SEARCH, "patients": patients}):
        answer = client.post(f"{API}/export", json={"lanes": [lane]})
        assert answer.status_code == 422
        assert "a list has either a search or patients" in answer.text


def test_an_export_of_nothing_is_refused(client: httpx.Client) -> None:
    answer = client.post(f"{API}/export", json={"format": "json"})
    assert answer.status_code == 422
    assert "give either a search or lanes" in answer.text


def test_a_table_has_one_row_per_match(client: httpx.Client) -> None:
    rows = list(csv.DictReader(StringIO(export(client, "csv").content.decode("utf-8-sig"))))
    assert [row["volume_key"] for row in rows] == [
        match["volume_key"] for match in client.post(f"{API}/search", json=SEARCH).json()["matches"]
    ]
    assert {row["notice"] for row in rows} == {"Research use only, not a medical device"}


def test_a_figure_is_a_picture(client: httpx.Client) -> None:
    assert Image.open(BytesIO(export(client, "figure").content)).width > 200


@pytest.mark.parametrize("path", ["mask.nii.gz", "twin.nii.gz?channel=flair"])
def test_predictions_lie_on_the_patients_own_grid(client: httpx.Client, tmp_path: Path, path: str) -> None:
    url = f"{API}/volumes/Case-1/export/{path}"
    answer = client.get(url)
    if answer.status_code == 202:
        assert finish(client, answer.json()["id"])["state"] == "done"
        answer = client.get(url)
    assert answer.status_code == 200
    assert "research-use-only" in answer.headers["content-disposition"]
    made, scan = tmp_path / "made.nii.gz", tmp_path / "scan.nii.gz"
    made.write_bytes(answer.content)
    scan.write_bytes(client.get(f"{API}/volumes/Case-1/channels/flair.nii.gz").content)
    predicted, original = read_nifti(made), read_nifti(scan)
    assert predicted.stored.shape == original.stored.shape
    assert np.allclose(predicted.affine, original.affine)


def test_to_the_patients_grid_and_back(archive_path: Path) -> None:
    """A spot drawn on a slice lies in the same place when its plane is shown in the slice's frame again."""
    affine = np.diag([-2.0, -1.5, 3.0, 1.0])
    to_voxels = np.diag([1.25, 1.6, 1.0, 1.0])
    to_voxels[:2, 3] = 7.3, -4.2
    rows, columns = np.mgrid[:48, :40]
    spot = np.exp(-((rows - 30) ** 2 + (columns - 12) ** 2) / 40).astype(np.float32)
    record = replace(make_record(0), slice_affine=affine @ to_voxels)
    case = Case("volumes/V00", record, archive_path, {}, "tag")
    signal = Signal(np.zeros((70, 90, 4), np.float32), affine, 0.0, 1.0, (0.0, 1.0))
    signal.voxels[:, :, 2] = to_source(spot, case, signal, 0.0).T
    again = signal.plane(record.slice_affine, 2, shape=(48, 40), size=(40, 48))
    assert np.abs(again - spot).max() < 0.03
