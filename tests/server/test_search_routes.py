"""Questions over HTTP: every mode of retrieval answers as retrieval itself does, and bad questions get one line."""

from __future__ import annotations

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from diptych.retrieval import Archive, Question
from diptych.retrieval.sketch import Sketcher
from tests.server.conftest import API, finish

SUBJECT = {"volume": "Case-1", "z": 4}
LESION = [[0, 1000], [2, 40], [3, 8], [0, 1000]]


def ask(client: httpx.Client, route: str = "search", **body: Any) -> dict[str, Any]:
    answer = client.post(f"{API}/{route}", json={"subject": SUBJECT, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def keys(answer: dict[str, Any]) -> list[str]:
    return [match["volume_key"] for match in answer["matches"]]


def sketch(**more: Any) -> dict[str, Any]:
    return {"sketch": {"runs": LESION, **more}}


@pytest.mark.parametrize("by", ["anatomy", "lesion", "both", "normal", "abnormal"])
def test_an_answer_is_that_of_retrieval(client: httpx.Client, archive_path: Path, model: Path, by: Any) -> None:
    archive = Archive.open(archive_path, model=model)
    wanted = archive.query(archive.stored("Case-1", z_index=4), Question(by=by)).matches
    found = ask(client, by=by)["matches"]
    assert [(one["volume_key"], one["z"], one["distance"]) for one in found] == [
        (one.volume.volume_key, one.z_index, one.distance) for one in wanted
    ]


@pytest.mark.parametrize("metric", ["euclidean", "angular", "hamming", "overlap"])
def test_the_two_parts_make_up_the_distance(client: httpx.Client, metric: str) -> None:
    wait_for_overlap(client)
    for match in ask(client, metric=metric, weight=0.3)["matches"]:
        assert match["normal_part"] + match["abnormal_part"] == pytest.approx(match["distance"], rel=1e-5)
        assert np.sum(match["contributions"]) == pytest.approx(match["distance"], rel=1e-3)
        assert np.shape(match["agreement"]["normal"]) == (4, 8)


def wait_for_overlap(client: httpx.Client) -> None:
    metric = client.get(f"{API}/archive").json()["metrics"][-1]
    if metric["job"] is not None:
        assert finish(client, metric["job"])["state"] == "done"


@pytest.mark.parametrize(
    "body",
    [
        {"by": "abnormal", "anywhere": "shifted"},
        {"by": "abnormal", "anywhere": "mirrored"},
        {"by": "abnormal", "anywhere": "both", "inside_lesion": True},
        {"by": "abnormal", "anywhere": "histogram"},
        {"inside_lesion": True},
        {"rerank": 10},
        {"group": "volume", "combine": "paper"},
        {"region": {"cells": [[0, 7], [3, 2]]}},
        {"region": {"rectangle": [0.2, 0.5, 0.6, 0.9]}},
        {"region": {"rectangle": [0.999, 0.999, 1, 1]}},
        {"subject": {"volume": "Case-1"}},
        {"subject": {"compose": {"normal": SUBJECT, "abnormal": {"volume": "Case-1", "z": 5}}}},
        {"subject": sketch(), "by": "abnormal"},
        {"subject": sketch(base=SUBJECT)},
        {"subject": sketch(base=SUBJECT, use_base_anatomy=False), "by": "abnormal"},
    ],
    ids=str,
)
def test_every_mode_answers_from_the_other_patients(client: httpx.Client, body: dict[str, Any]) -> None:
    wait_for_overlap(client)
    found = keys(ask(client, **body))
    alone = body.get("subject", {}).get("sketch", {"base": SUBJECT}).get("base") is None
    assert set(found) == ({"Case-1", "Case-2", "Case-3"} if alone else {"Case-2", "Case-3"})


def test_comparators_are_lesion_free(client: httpx.Client) -> None:
    found = ask(client, "comparators")["matches"]
    assert found
    assert all(match["lesion_area_mm2"] == 0 for match in found)


def test_whole_volumes(client: httpx.Client) -> None:
    assert set(keys(ask(client, "similar-volumes"))) == {"Case-2", "Case-3"}
    assert keys(ask(client, "similar-volumes", filter={"text": "3"})) == ["Case-3"]


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ({"text": "case-2"}, ["Case-2"]),
        ({"exclude_patients": ["Case-2"]}, ["Case-3"]),
        ({"tags": ["first", "second"]}, []),
        ({"source": "noise"}, ["Case-2", "Case-3"]),
        ({"where": "volume_key = 'Case-3'"}, ["Case-3"]),
        ({"lesion_free": True}, ["Case-2", "Case-3"]),
    ],
    ids=str,
)
def test_filters_hold(client: httpx.Client, limit: dict[str, Any], found: list[str]) -> None:
    assert sorted(keys(ask(client, filter=limit))) == found


def test_the_own_patient_is_found_when_asked_for(client: httpx.Client) -> None:
    first = ask(client, include_own=True)["matches"][0]
    assert (first["volume_key"], first["z"], first["distance"]) == ("Case-1", 4, 0)


def test_a_sketch_may_be_a_picture(client: httpx.Client) -> None:
    painted = np.repeat(np.array([0, 2, 3, 0], np.uint8), [1000, 40, 8, 1000]).reshape(32, 64)
    buffer = BytesIO()
    Image.fromarray(painted).save(buffer, "PNG")
    picture = base64.b64encode(buffer.getvalue()).decode()
    by_runs = ask(client, subject=sketch(), by="abnormal")
    by_picture = ask(client, subject={"sketch": {"labels": picture}}, by="abnormal")
    assert by_runs["matches"] == by_picture["matches"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"by": "colour"}, "by"),
        ({"weight": 2}, "weight"),
        ({"metric": "manhattan"}, "manhattan"),
        ({"top": 0}, "top"),
        ({"tops": 3}, "tops"),
        ({"anywhere": "shifted"}, "by lesion"),
        ({"subject": {"z": 4}}, "volume, upload, compose, sketch"),
        ({"subject": {"compose": {"normal": SUBJECT, "abnormal": {"compose": {}}}}}, "a slice is"),
        ({"subject": {"sketch": {"base": SUBJECT}}}, "labels, or as runs"),
        ({"subject": {"sketch": {"runs": [[1, 5]]}}, "by": "abnormal"}, "5 pixels"),
        ({"subject": {"sketch": {"runs": [[0, 2048]]}}, "by": "abnormal"}, "without any lesion"),
        ({"subject": {"sketch": {"labels": "nonsense"}}, "by": "abnormal"}, "base64 PNG"),
        ({"subject": sketch()}, "no anatomy"),
        ({"region": {"cells": [[9, 9]]}}, "cell 9,9"),
        ({"region": {"rectangle": [0.5, 0.5, 0.4, 0.6]}}, "rectangle"),
        ({"region": {}}, "cells or a rectangle"),
        ({"filter": {"where": "colour = 3"}}, "no column"),
        ({"rerank": 1}, "rerank 1"),
    ],
    ids=str,
)
def test_a_bad_question_gets_one_line(client: httpx.Client, body: dict[str, Any], says: str) -> None:
    wait_for_overlap(client)
    answer = client.post(f"{API}/search", json={"subject": SUBJECT, **body})
    assert answer.status_code == 422
    assert says in answer.json()["error"]["message"]


@pytest.mark.parametrize("subject", [{"volume": "Nobody", "z": 4}, {"volume": "Case-1", "z": 99}, {"upload": "none"}])
def test_an_unknown_subject_is_a_404(client: httpx.Client, subject: dict[str, Any]) -> None:
    assert client.post(f"{API}/search", json={"subject": subject}).status_code == 404


def test_a_view_tells_what_the_model_sees(client: httpx.Client) -> None:
    view = client.post(f"{API}/subjects/view", json={"subject": SUBJECT}).json()
    assert set(view["areas_mm2"]) == {"NET", "ED", "ET"}
    assert view["trust"]["level"] in ("good", "caution")
    assert client.get(view["pictures"]["twin"]).status_code == 200


def test_a_composed_subject_brings_its_pictures_along(client: httpx.Client) -> None:
    both = {"compose": {"normal": SUBJECT, "abnormal": {"volume": "Case-2", "z": 4}}}
    pictures = client.post(f"{API}/subjects/view", json={"subject": both}).json()["pictures"]
    assert pictures["image"] is None
    drawn = Image.open(BytesIO(base64.b64decode(pictures["twin"].removeprefix("data:image/png;base64,"))))
    assert drawn.size == (320, 384)


@pytest.mark.parametrize("more", [{}, {"by": "abnormal", "anywhere": "shifted"}], ids=str)
def test_a_match_explains_itself(client: httpx.Client, more: dict[str, Any]) -> None:
    search = {"subject": SUBJECT, **more}
    told = client.post(f"{API}/explain", json={"search": search, "rank": 2}).json()
    assert told["match"] == ask(client, **more)["matches"][1]
    assert 0 <= told["lesion_agreement"] <= 1
    assert told["query"]["twin"].startswith("data:" if more else API)
    assert client.post(f"{API}/explain", json={"search": search, "rank": 9}).status_code == 404


def test_painting_reads_the_label_encoder_once(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(client, subject=sketch(), by="abnormal")
    monkeypatch.setattr(Sketcher, "open", None)
    assert ask(client, subject=sketch(), by="abnormal")["matches"]


def test_whole_patients_need_stored_label_maps(client: httpx.Client) -> None:
    answer = client.post(f"{API}/similar-patients", json={"subject": SUBJECT, "by": "abnormal"})
    assert answer.status_code == 422
    assert "run 'diptych archive decode'" in answer.text
