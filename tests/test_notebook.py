"""What a notebook does with one import: index, decompose, search."""

from __future__ import annotations

from pathlib import Path

import pytest

import diptych
from diptych.errors import UsageError
from diptych.phantom import PhantomConfig, write_phantoms


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook") / "patients"
    write_phantoms(folder, patients=2, seed=5, config=PhantomConfig(voxel_mm=8.0), workers=1)
    return folder


@pytest.fixture(scope="module")
def archive(patients: Path) -> diptych.Archive:
    path = patients.parent / "archive"
    assert len(diptych.index(patients, path).added) == 2
    return diptych.Archive.open(path)


def one(patients: Path) -> Path:
    return sorted(path for path in patients.iterdir() if path.is_dir())[0]


def test_a_patient_is_searched_by_its_folder_and_by_its_key_alike(archive: diptych.Archive, patients: Path) -> None:
    found = [archive.search(name, by="lesion") for name in (one(patients), one(patients).name)]
    assert [match.volume.volume_key for match in found[0].matches] == [
        match.volume.volume_key for match in found[1].matches
    ]


def test_words_of_users_and_of_the_paper_are_one_question(archive: diptych.Archive, patients: Path) -> None:
    asked = [archive.search(one(patients), by=by).question.by for by in ("anatomy", "normal", "lesion", "abnormal")]
    assert asked == ["normal", "normal", "abnormal", "abnormal"]


@pytest.mark.parametrize(("wrong", "said"), [({"by": "tumour"}, "anatomy, lesion or both"), ({"tops": 3}, "tops")])
def test_what_cannot_be_asked_is_named(
    archive: diptych.Archive, patients: Path, wrong: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        archive.search(one(patients), **wrong)  # type: ignore[arg-type]


def test_a_patient_is_decomposed_by_the_shipped_model(patients: Path) -> None:
    view = diptych.decompose(one(patients))
    assert view.healthy_twin.shape == view.reconstruction.shape == (4, 128, 128)
