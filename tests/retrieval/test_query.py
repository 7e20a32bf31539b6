"""By image: every answer equals a search written in a few lines of floating point, and bad questions get one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.archive import VolumeInfo, VolumeRecord
from diptych.archive.encoding import encode_volume
from diptych.errors import ArchiveError, ArchiveMismatchError, DiptychError, MissingChannelError, UsageError
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive, EncodedSlice, Question, compose, region_of_cells
from diptych.retrieval.encoded_slice import read_one
from diptych.retrieval.question import slice_query
from diptych.search import Query
from diptych.search.tables import Tables
from tests.archive.patients import write_patient
from tests.retrieval.making import make_record, tiny_network, write_archive

Distances = dict[tuple[str, int], float]


def slice_distances(
    archive: Archive, records: list[VolumeRecord], subject: EncodedSlice, panel: str, question: Question
) -> Distances:
    """The distance of every slice by the definition: code vectors end to end, `section 3.2.3`."""
    book = getattr(archive.network, f"{panel}_quantizer").codebook.numpy().astype(np.float64)
    cells = np.ones(archive.catalogue.index.grid, bool) if question.region is None else question.region
    query = book[getattr(subject, f"{panel}_ids")][cells].reshape(-1)
    found = {}
    for record in records:
        for z, grid in zip(record.z_index.tolist(), getattr(record, f"{panel}_ids"), strict=True):
            other = book[grid][cells].reshape(-1)
            if question.metric == "euclidean":
                distance = np.linalg.norm(query - other)
            else:
                distance = np.arccos(np.clip(query @ other / np.linalg.norm(query) / np.linalg.norm(other), -1, 1))
            found[record.info.volume_key, z] = float(distance)
    return found


def brute_force(
    archive: Archive, records: list[VolumeRecord], subject: EncodedSlice, question: Question
) -> list[tuple[str, int]]:
    """Volume and slice of each match: the best slice of each patient, nearest first."""
    shares = {"normal": question.weight, "abnormal": 1 - question.weight}
    panels = list(shares) if question.by == "both" else [question.by]
    total: NDArray[Any] = np.zeros(sum(record.slice_count for record in records))
    for panel in panels:
        distances = slice_distances(archive, records, subject, panel, question)
        values = np.array(list(distances.values()))
        if question.by == "both" and question.combine == "normalised":
            query = archive.engine.spread(_plain(archive, subject, question), panel)
            values = values * shares[panel] / query
        total = total + values
    best: dict[str, tuple[float, str, int]] = {}
    owner = {record.info.volume_key: record.info.patient_key for record in records}
    for (key, z), value in zip(distances, total.tolist(), strict=True):
        patient = owner[key]
        if patient not in subject.patients and (patient not in best or value < best[patient][0] - 1e-7):
            best[patient] = (value, key, z)
    return [(key, z) for _, key, z in sorted(best.values())][: question.top]


def _plain(archive: Archive, subject: EncodedSlice, question: Question) -> Query:
    return slice_query(archive.settled(question), subject, archive.catalogue)


@pytest.mark.parametrize("metric", ["euclidean", "angular"])
@pytest.mark.parametrize(
    "question",
    [
        Question(by="normal"),
        Question(by="abnormal", top=2),
        Question(by="both", weight=0.3),
        Question(by="both", combine="paper"),
        Question(by="both", region=region_of_cells([(0, 7), (3, 2), (1, 1)], grid=(4, 8))),
    ],
    ids=["normal", "abnormal", "both", "paper", "region"],
)
def test_answers_equal_brute_force(
    archive: Archive, records: list[VolumeRecord], question: Question, metric: str
) -> None:
    question = replace(question, metric=metric)
    for key, z in (("V00", 4), ("V03", 9), ("V07", 14)):
        subject = archive.stored(key, z_index=z)
        found = [(match.volume.volume_key, match.z_index) for match in archive.query(subject, question).matches]
        assert found == brute_force(archive, records, subject, question)


def test_every_stored_slice_finds_itself_first(archive: Archive, records: list[VolumeRecord]) -> None:
    for record in records:
        for z in record.z_index.tolist():
            subject = archive.stored(record.info.volume_key, z_index=z)
            first = archive.query(subject, Question(include_own=True, top=1)).matches[0]
            assert (first.volume.volume_key, first.z_index, first.distance) == (record.info.volume_key, z, 0.0)


def test_more_weight_on_the_normal_panel_never_makes_the_best_match_less_normal(archive: Archive) -> None:
    for key in ("V00", "V02", "V05"):
        subject = archive.stored(key, z_index=5)
        panels: list[tuple[float, float]] = []
        for weight in np.linspace(0, 1, 21):
            first = archive.query(subject, Question(weight=float(weight), top=1)).matches[0]
            assert first.normal is not None
            assert first.abnormal is not None
            panels.append((first.normal.distance, -first.abnormal.distance))
        assert panels == sorted(panels, reverse=True)


def test_equal_weight_is_equal_say(archive: Archive) -> None:
    """Over all pairs of slices, both panels move the sum by the same amount."""
    subject = archive.stored("V01", z_index=6)
    question = Question(include_own=True, group="volume", top=100)
    query = _plain(archive, subject, question)
    shares = [term.factor * archive.engine.spread(query, term.panel) for term in archive.engine.score(query).terms]
    assert shares == [0.5, 0.5]


def test_contributions_add_up_to_the_distance(archive: Archive) -> None:
    for metric in ("euclidean", "angular"):
        for match in archive.query(archive.stored("V04", z_index=8), Question(metric=metric)).matches:
            assert match.contributions.sum() == pytest.approx(match.distance, rel=1e-12)


def test_one_match_per_volume_when_asked(archive: Archive) -> None:
    answer = archive.query(archive.stored("V00", z_index=4), Question(group="volume", include_own=True))
    assert len({match.volume.volume_key for match in answer.matches}) == 8


def test_a_condition_on_metadata_holds_for_every_match(archive: Archive) -> None:
    answer = archive.query(archive.stored("V00", z_index=4), Question(where="sex = 'F' and age > 32"))
    assert sorted(match.volume.volume_key for match in answer.matches) == ["V04", "V06"]


def test_a_patient_from_files_is_encoded_as_indexing_does(archive: Archive, tmp_path: Path) -> None:
    folder = write_patient(tmp_path, "New-1", seed=3)
    record = encode_volume(read_one(folder), VolumeInfo("New-1", "New-1"), archive.encoder)
    subject = archive.encode(folder, z_index=4)
    assert np.array_equal(subject.normal_ids, record.normal_ids[record.z_index == 4][0])
    assert len(archive.query(subject).matches) == 4


def test_the_largest_predicted_lesion_is_the_default_slice(archive: Archive, records: list[VolumeRecord]) -> None:
    pixels = archive.encoder.lesion_pixels(records[6].abnormal_ids)
    assert archive.stored("V06").z_index == records[6].z_index[np.argmax(pixels)]


def test_the_composed_query_takes_one_panel_of_each(archive: Archive) -> None:
    anatomy, lesion = archive.stored("V00", z_index=4), archive.stored("V05", z_index=6)
    both = compose(anatomy, lesion)
    assert np.array_equal(both.normal_ids, anatomy.normal_ids)
    assert np.array_equal(both.abnormal_ids, lesion.abnormal_ids)
    assert {match.volume.patient_key for match in archive.query(both).matches} == {"P01", "P03"}


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (Question(top=0), "top 0"),
        (Question(weight=1.5), "weight 1.5"),
        (Question(weight=float("nan")), "weight nan"),
        (Question(metric="manhattan"), "metric manhattan"),
        (Question(where="colour = 3"), "no column 'colour'"),
        (Question(region=np.zeros((4, 8), bool)), "0 cells"),
        (Question(region=np.ones((8, 4), bool)), "(8, 4)"),
    ],
)
def test_a_bad_question_gets_one_clear_line(archive: Archive, question: Question, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        archive.query(archive.stored("V00", z_index=4), question)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_volumes_slices_and_folders_are_named(archive: Archive, tmp_path: Path) -> None:
    def message(kind: type[DiptychError], **ask: Any) -> str:
        with pytest.raises(kind) as caught:
            archive.stored(**ask) if "volume_key" in ask else archive.encode(**ask)
        return str(caught.value)

    assert "holds no volume 'V99'" in message(ArchiveError, volume_key="V99")
    assert "shows brain in slices 3…7" in message(UsageError, volume_key="V00", z_index=30)
    write_patient(tmp_path, "A-1")
    write_patient(tmp_path, "A-2")
    assert "holds 2 patients" in message(UsageError, patient=tmp_path)
    (tmp_path / "A-1" / "A-1-t2f.nii.gz").unlink()
    assert "but not flair, which the model reads" in message(MissingChannelError, patient=tmp_path / "A-1")


def test_another_model_is_refused(archive: Archive) -> None:
    with pytest.raises(ArchiveMismatchError):
        Archive.open(archive.store.path, model=tiny_network(seed=1))


def test_learned_tables_are_the_default_where_the_model_has_them(archive: Archive) -> None:
    assert archive.settled(Question()).metric == "euclidean"
    tables = [{**panel, "learned": panel["euclidean"]} for panel in (archive.tables.normal, archive.tables.abnormal)]
    learned = replace(archive, tables=Tables(*tables))
    assert learned.settled(Question()).metric == "learned"
    assert learned.settled(Question(combine="paper")).metric == "euclidean"
    assert learned.settled(Question(metric="angular")).metric == "angular"


def test_the_same_scan_under_another_name_is_not_found(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    record, other = make_record(0), make_record(2)
    double = replace(record, info=replace(record.info, volume_key="Double", patient_key="Somebody else"))
    archive = Archive.open(write_archive(tmp_path / "A", network, [record, double, other]), model=network)
    subject = archive.stored("V00", z_index=5)
    assert [match.volume.volume_key for match in archive.query(subject).matches] == ["V02"]
    own = archive.query(subject, Question(include_own=True)).matches
    assert {match.volume.volume_key for match in own[:2]} == {"V00", "Double"}


def test_only_allowed_volumes_are_found(archive: Archive) -> None:
    allowed = np.array([info.volume_key == "V05" for info in archive.catalogue.volumes])
    subject = archive.stored("V01", z_index=6)
    assert [one.volume.volume_key for one in archive.query(subject, Question(allowed=allowed)).matches] == ["V05"]
    assert archive.query(subject, Question(allowed=allowed, where="volume_key = 'V04'")).matches == ()


def test_a_name_instead_of_a_slice_gets_one_line(archive: Archive) -> None:
    with pytest.raises(UsageError, match=r"query\('V01'\): takes a slice; archive.stored\(KEY\)"):
        archive.query("V01")  # type: ignore[arg-type]


@pytest.mark.parametrize(("said", "panel"), [("anatomy", "normal"), ("lesion", "abnormal"), ("both", "both")])
def test_a_question_understands_both_vocabularies(said: Any, panel: str) -> None:
    assert (Question(by=said).by, Query(by=said).by) == (panel, panel)


def test_a_question_by_anything_else_is_refused() -> None:
    with pytest.raises(UsageError, match="search by anatomy, lesion or both"):
        Question(by="colour")  # type: ignore[arg-type]
