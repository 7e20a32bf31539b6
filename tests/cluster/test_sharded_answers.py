"""The answer of shards is that of one archive: matches, ties, distances, contributions, trust, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diptych.archive import ArchiveWriter
from diptych.cluster.resharding import split_archive
from diptych.cluster.sharded_archive import ShardedArchive
from diptych.errors import ArchiveError, UsageError
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive, Question
from tests.cluster.making import make_shards, make_whole, save_with_tables, told
from tests.retrieval.making import tiny_network

REGION = np.zeros((4, 8), dtype=np.bool_)
REGION[1:3, 2:7] = True
QUESTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    **{
        f"{metric} by {by}": {"metric": metric, "by": by}
        for metric in ("euclidean", "angular")
        for by in ("anatomy", "both")
    },
    "weights": {"weight": 0.8, "top": 30, "metric": "euclidean"},
    "paper": {"combine": "paper"},
    "overlap by lesion": {"metric": "overlap", "by": "lesion"},
    "overlap by both, volumes": {"metric": "overlap", "group": "volume", "top": 9},
    "overlap in a region": {"metric": "overlap", "region": REGION},
    "region": {"metric": "angular", "region": REGION},
    "where": {"where": "sex = 'F' and age > 33", "metric": "euclidean"},
    "allowed": {"allowed": np.arange(22) % 3 != 1, "metric": "euclidean", "top": 4},
    "level": {"level_mm": 20.0, "metric": "euclidean"},
    "lesion-free": {"lesion_free": True, "by": "anatomy"},
    "own patient": {"include_own": True, "metric": "euclidean", "group": "volume"},
    "reranked": {"rerank": 6, "top": 3, "metric": "euclidean"},
    "histogram": {"anywhere": "histogram", "by": "lesion"},
    "shifted": {"anywhere": "shifted", "by": "lesion", "region": REGION},
}


@pytest.fixture(scope="module")
def network() -> FeatureDecomposingNetwork:
    return tiny_network()


@pytest.fixture(scope="module", params=[True, False], ids=["stored maps", "decoded maps"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, network: Any) -> Archive:
    folder = tmp_path_factory.mktemp("whole")
    return Archive.open(make_whole(folder / "one", network, labels=request.param), model=network)


@pytest.fixture(scope="module", params=[1, 2, 5])
def sharded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, whole: Archive) -> ShardedArchive:
    return make_shards(whole, tmp_path_factory.mktemp("shards") / "many", request.param)


@pytest.mark.parametrize("asked", list(QUESTIONS))
def test_the_same_answer(whole: Archive, sharded: ShardedArchive, asked: str) -> None:
    question = Question(**QUESTIONS[asked])
    for key, z in (("V00", 4), ("V13", 5)):
        expected = whole.query(whole.stored(key, z_index=z), question)
        assert told(sharded.query(sharded.stored(key, z_index=z), question)) == told(expected)
        assert expected.matches


def test_the_same_trust_and_explanation(whole: Archive, sharded: ShardedArchive) -> None:
    subject = whole.stored("V07", z_index=4)
    assert sharded.trust(subject) == whole.trust(subject)
    one, other = (archive.explain(archive.query(subject), 0) for archive in (whole, sharded))
    assert np.array_equal(one.found.reconstruction, other.found.reconstruction)
    assert np.array_equal(one.lesion_agreement, other.lesion_agreement)


@pytest.mark.parametrize("options", [{}, {"by": "anatomy"}, {"metric": "angular", "group": "volume"}, {"top": 3}])
def test_the_same_volumes(whole: Archive, sharded: ShardedArchive, options: dict[str, Any]) -> None:
    record, question = whole.store.record("V03"), Question(**options)
    found = sharded.similar_volumes(record, question)
    assert [one.to_json() for one in found] == [one.to_json() for one in whole.similar_volumes(record, question)]


def test_the_same_patients(whole: Archive, sharded: ShardedArchive) -> None:
    record = whole.store.record("V03")
    for question in (
        Question(by="lesion"),
        Question(by="lesion", region=REGION),
        Question(by="lesion", anywhere="mirrored"),
    ):
        try:
            expected = [one.to_json() for one in whole.similar_patients(record, question)]
        except UsageError as error:
            with pytest.raises(UsageError, match=str(error)[:40]):
                sharded.similar_patients(record, question)
        else:
            assert [one.to_json() for one in sharded.similar_patients(record, question)] == expected


def test_the_same_scan_under_another_name_is_not_found(whole: Archive, sharded: ShardedArchive) -> None:
    subject = whole.stored("V04", z_index=int(whole.store.record("V04").z_index[1]))  # stands in V00, too
    stranger = replace(subject, patients=frozenset(), volume_key=None)
    for archive in (whole, sharded):
        found = {match.volume.patient_key for match in archive.query(stranger, Question(metric="euclidean")).matches}
        assert found
        assert not found & {"P00", "P02"}


def test_the_same_refusals(whole: Archive, sharded: ShardedArchive) -> None:
    subject = replace(whole.stored("V00", z_index=4), position=9.0)
    for question in (
        Question(level_mm=20.0, metric="euclidean"),
        Question(metric="fusion"),
        Question(top=0),
        Question(weight=2.0),
        Question(where="sex ="),
        Question(rerank=2),
    ):
        with pytest.raises(UsageError) as one:
            whole.query(subject, question)
        with pytest.raises(UsageError) as other:
            sharded.query(subject, question)
        assert str(one.value) == str(other.value)
    with pytest.raises(ArchiveError, match="holds no volume 'V0'; near to it: V"):
        sharded.stored("V0")


def test_a_changed_shard_is_answered_from_its_newest_version(
    tmp_path: Path, network: FeatureDecomposingNetwork
) -> None:
    whole = Archive.open(make_whole(tmp_path / "one", network, labels=True), model=network)
    sharded = make_shards(whole, tmp_path / "many", 2)
    subject = whole.stored("V00", z_index=4)
    first = sharded.query(subject).matches[0].volume
    for folder in (tmp_path / "one", sharded.manifest.shards[sharded.manifest.owner(first.patient_key)].path):
        with ArchiveWriter.open(folder) as writer:
            writer.remove(first.volume_key)
    other = sharded.refreshed()
    assert other is not sharded
    assert other.refreshed() is other
    assert told(other.query(subject)) == told(whole.refreshed().query(subject))


def test_an_answer_about_a_forgotten_version_comes_from_the_newest(
    tmp_path: Path, network: FeatureDecomposingNetwork
) -> None:
    whole = Archive.open(make_whole(tmp_path / "one", network, labels=True), model=network)
    sharded = make_shards(whole, tmp_path / "many", 2)
    subject = whole.stored("V00", z_index=4)
    for key in ("V09", "V08", "V11"):
        folder = sharded.manifest.shards[sharded.manifest.owner(f"P{int(key[1:]) // 2:02d}")].path
        with ArchiveWriter.open(folder) as writer:
            writer.remove(key)
        newest = sharded.refreshed()
    assert told(sharded.query(subject)) == told(newest.query(subject))
    assert newest.query(subject).version != sharded.catalogue.version


@pytest.mark.slow
def test_fusion_and_learned_tables_are_the_same(tmp_path: Path, network: FeatureDecomposingNetwork) -> None:
    model = save_with_tables(network, tmp_path / "model")
    whole = Archive.open(make_whole(tmp_path / "one", network, labels=True), model=model)
    split_archive(tmp_path / "one", tmp_path / "many", shards=3)
    sharded = ShardedArchive.open(tmp_path / "many", model=model)
    subject = whole.stored("V05", z_index=4)
    for asked in ({"by": "lesion"}, {"by": "anatomy"}, {"weight": 0.3}, {"region": REGION}):
        for metric in ("learned", "fusion"):
            question = Question(metric=metric, **asked)
            assert told(sharded.query(subject, question)) == told(whole.query(subject, question))


@pytest.mark.slow
def test_fusion_chooses_among_the_whole_archive(
    network: FeatureDecomposingNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diptych.metrics.fusion.CANDIDATES", 3)
    monkeypatch.setattr("diptych.metrics.fusion.CANDIDATES_EACH", 1)
    model = save_with_tables(network, tmp_path / "model")
    whole = Archive.open(make_whole(tmp_path / "one", network, labels=True), model=model)
    split_archive(tmp_path / "one", tmp_path / "many", shards=3)
    sharded = ShardedArchive.open(tmp_path / "many", model=model)
    subject = whole.stored("V05", z_index=4)
    for top in (2, 5):
        question = Question(metric="fusion", top=top)
        assert told(sharded.query(subject, question)) == told(whole.query(subject, question))
