"""Archives that keep references, or codes only: originals never leave, and what cannot be shown is said."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.archive import ArchiveWriter
from diptych.archive.encoding import NetworkEncoder
from diptych.archive.indexing import IndexOptions, index_patients
from diptych.metrics.label_indexing import volume_decoder
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive, Question
from diptych.retrieval.question import LEVEL_MM
from diptych.search.tables import Tables
from diptych.server.resources import shown_first
from diptych.volumes.sources import find_sources
from tests.archive.patients import write_patient
from tests.retrieval.making import make_record, tiny_network, write_archive
from tests.server.conftest import API, finish, serving


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for seed, key in enumerate(("Case-1", "Case-2")):
        write_patient(tmp_path / "patients", key, seed=seed)
    path = tmp_path / "patients" / "Case-1" / "Case-1-t1n.nii.gz"
    raw = bytearray(gzip.decompress(path.read_bytes()))
    raw[148:160] = b"MRS JANE DOE"  # the header's free text
    path.write_bytes(gzip.compress(bytes(raw)))
    return tmp_path / "patients"


def indexed(path: Path, network: FeatureDecomposingNetwork, sources: Path, options: IndexOptions) -> Archive:
    encoder = NetworkEncoder(network)
    with ArchiveWriter.open(path, model=encoder.identity) as writer:
        index_patients(writer, encoder, find_sources([sources]), options=options)
    return Archive.open(path, model=network)


def test_whole_patients_are_found_in_three_dimensions(
    tmp_path: Path, network: FeatureDecomposingNetwork, model: Path, sources: Path
) -> None:
    write_patient(sources, "Case-3", seed=2)
    encoder = NetworkEncoder(network)
    with ArchiveWriter.open(tmp_path / "A", model=encoder.identity) as writer:
        index_patients(writer, encoder, find_sources([sources]), decode=volume_decoder(network, model))
    with serving(Archive.open(tmp_path / "A", model=model)) as client:
        asked = {"subject": {"volume": "Case-1"}, "by": "abnormal"}
        found = client.post(f"{API}/similar-patients", json=asked).json()["matches"]
        assert {match["volume_key"] for match in found} == {"Case-2", "Case-3"}
        assert found[0]["distance"] <= found[1]["distance"]
        assert found[0]["image_url"].startswith(API)
        assert len(found[0]["heights_mm"]) == len(found[0]["profile"]) > 0
        assert found[0]["z_index"] in found[0]["z_indices"]
        assert len(found[0]["z_indices"]) == len(found[0]["z_mm"])
        mirrored = client.post(f"{API}/similar-patients", json={**asked, "anywhere": "mirrored"}).json()["matches"]
        assert all(match["mirrored"] for match in mirrored)
        facts = client.get(f"{API}/archive").json()
        assert (facts["can_find_patients"], facts["default_level_mm"]) == (True, LEVEL_MM)
        lanes = [{"title": "Patients: by lesion", "patients": asked}]
        for kind in ("figure", "csv", "json"):
            kept = client.post(f"{API}/export", json={"lanes": lanes, "format": kind})
            assert kept.status_code == 200, kept.text
        assert [match["volume_key"] for match in kept.json()["lanes"][0]["matches"]] == [
            match["volume_key"] for match in found
        ]


def test_a_stored_patient_asks_as_a_decoded_one_does(
    tmp_path: Path, network: FeatureDecomposingNetwork, model: Path, sources: Path
) -> None:
    encoder = NetworkEncoder(network)
    with ArchiveWriter.open(tmp_path / "A", model=encoder.identity) as writer:
        index_patients(writer, encoder, find_sources([sources]), decode=volume_decoder(network, model))
    archive = Archive.open(tmp_path / "A", model=model)
    record = archive.store.record("Case-1")
    elsewhere = replace(record, info=replace(record.info, volume_key="Unknown"))
    for by in ("normal", "abnormal"):
        stored, decoded = (archive.similar_patients(one, Question(by=by)) for one in (record, elsewhere))
        assert [match.to_json() for match in stored] == [match.to_json() for match in decoded]


def test_originals_are_copied_before_they_are_shown(
    tmp_path: Path, network: FeatureDecomposingNetwork, sources: Path
) -> None:
    with serving(indexed(tmp_path / "A", network, sources, IndexOptions(pixels="reference"))) as client:
        volume = client.get(f"{API}/volumes/Case-1").json()
        sent = client.get(volume["channel_urls"]["t1"])
        assert sent.status_code == 200
        assert b"JANE" not in gzip.decompress(sent.content)
        assert client.get(volume["thumbnail_url"]).status_code == 200


def test_codes_alone_can_be_searched_and_decoded(
    tmp_path: Path, network: FeatureDecomposingNetwork, sources: Path
) -> None:
    with serving(indexed(tmp_path / "A", network, sources, IndexOptions(pixels="none"))) as client:
        volume = client.get(f"{API}/volumes/Case-1").json()
        assert (volume["has_pixels"], volume["channel_urls"], volume["thumbnail_url"]) == (False, {}, None)
        slices = f"{API}/volumes/Case-1/slices/4"
        kinds = {kind: client.get(f"{slices}/{kind}.png").status_code for kind in ("image", "label", "twin", "mask")}
        assert kinds == {"image": 404, "label": 404, "twin": 200, "mask": 200}
        assert client.get(f"{API}/volumes/Case-1/export/mask.nii.gz").json()["error"]["code"] == "no_pixels"
        match = client.post(f"{API}/search", json={"subject": {"volume": "Case-1", "z": 4}}).json()["matches"][0]
        assert (match["volume_key"], match["image_url"]) == ("Case-2", None)
        figure = {"search": {"subject": {"volume": "Case-1", "z": 4}}, "format": "figure"}
        assert client.post(f"{API}/export", json=figure).status_code == 200
        painted = {"sketch": {"runs": [[2, 2048]]}}
        refused = client.post(f"{API}/search", json={"subject": painted, "by": "abnormal"})
        assert refused.status_code == 422


def test_a_file_that_has_changed_is_not_shown(
    tmp_path: Path, network: FeatureDecomposingNetwork, sources: Path
) -> None:
    archive = indexed(tmp_path / "A", network, sources, IndexOptions())
    with serving(archive) as client:
        volume = client.get(f"{API}/volumes/Case-1").json()
        next((tmp_path / "A" / "volumes").glob("*/t2.nii.gz")).write_bytes(b"something else")
        (other,) = [
            answer.json()["error"]
            for key in ("Case-1", "Case-2")
            if (answer := client.get(f"{API}/volumes/{key}/channels/t2.nii.gz")).status_code != 200
        ]
        assert other["code"] == "archive_unavailable"
        assert str(tmp_path) not in other["message"]
        assert client.get(volume["channel_urls"]["t1"]).status_code == 200


def test_a_filter_may_name_any_number_of_volumes(tmp_path: Path) -> None:
    """Of each of 60 patients one volume fits: more than a written condition could say."""
    records = [make_record(number, slices=1) for number in range(120)]
    tagged = [
        replace(
            one, info=replace(one.info, volume_key=f"a-very-long-name-{one.info.volume_key}", tags=("odd",) * (n % 2))
        )
        for n, one in enumerate(records)
    ]
    network = tiny_network()
    archive = Archive.open(write_archive(tmp_path / "A", network, tagged), model=network)
    with serving(archive) as client:
        body = {"subject": {"volume": tagged[0].info.volume_key, "z": 3}, "filter": {"tags": ["odd"]}, "top": 100}
        answer = client.post(f"{API}/search", json=body)
        assert answer.status_code == 200, answer.text
        assert {match["volume_key"][-1] for match in answer.json()["matches"]} == set("13579")
        assert len(answer.json()["matches"]) == 59


def test_every_metric_that_waits_names_its_job(tmp_path: Path) -> None:
    network = tiny_network()
    opened = Archive.open(write_archive(tmp_path / "A", network, [make_record(0), make_record(2)]), model=network)
    tables = [{**panel, "learned": panel["euclidean"]} for panel in (opened.tables.normal, opened.tables.abnormal)]
    archive = replace(opened, tables=Tables(*tables))
    assert archive.searcher.planes is not None
    asked = {"subject": {"volume": "V00", "z": 4}, "metric": "fusion"}
    with serving(archive, overlap_slices=0) as client:
        with archive.searcher.planes._decoding:  # so decoding goes on and on
            refused = client.post(f"{API}/search", json=asked).json()["error"]
            metrics = client.get(f"{API}/archive").json()["metrics"]
            assert {one["name"]: one["job"] for one in metrics if not one["ready"]} == dict.fromkeys(
                ("overlap", "fusion"), refused["detail"]["job"]
            )
        finish(client, refused["detail"]["job"])
        assert client.post(f"{API}/search", json=asked).status_code == 200
        assert all(one["ready"] for one in client.get(f"{API}/archive").json()["metrics"])


def test_a_thumbnail_shows_a_channel_that_the_patient_has() -> None:
    assert shown_first(["t1", "t1gd", "t2"]) == "t1gd"
    assert shown_first(["t1"]) == "t1"
