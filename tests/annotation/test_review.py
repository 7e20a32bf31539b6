"""The round trip of an expert: least certain first, export, edit, take back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.annotation.review.review_export import export_review
from diptych.annotation.review.review_import import import_review
from diptych.annotation.review.review_list import list_patients
from diptych.errors import InputError, UsageError
from diptych.volumes import write_nifti
from diptych.volumes.nifti import read_nifti
from tests.conftest import Run

AFFINE = np.diag([-2.0, -2.0, 2.0, 1.0])
SHAPE = (5, 6, 7)


def label_map(value: int = 2) -> NDArray[np.uint8]:
    labels = np.zeros(SHAPE, dtype=np.uint8)
    labels[1:3, 1:3, 1:3] = value
    return labels


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    """Labels of three patients as an ensemble leaves them."""
    folder = tmp_path / "pred"
    for key in ("A", "B", "C"):
        (folder / key).mkdir(parents=True)
        write_nifti(folder / key / f"{key}-seg.nii.gz", label_map(), AFFINE)
    doubts = {"A": {"disagreement": 0.1}, "B": {"disagreement": 0.7}, "C": {"disagreement": 0.3}}
    (folder / "predictions.json").write_text(json.dumps(doubts))
    return folder


@pytest.fixture
def review(predictions: Path, tmp_path: Path) -> Path:
    export_review(list_patients(predictions, "lesion"), predictions, tmp_path / "review")
    return tmp_path / "review"


def edit(review: Path, key: str, labels: NDArray[np.uint8], affine: NDArray[np.float64] = AFFINE) -> None:
    write_nifti(review / key / f"{key}-seg.nii.gz", labels, affine)


def stored(predictions: Path, key: str) -> NDArray[np.uint8]:
    return np.asarray(read_nifti(predictions / key / f"{key}-seg.nii.gz").stored)


def test_least_certain_come_first(predictions: Path) -> None:
    assert [doubt.patient_key for doubt in list_patients(predictions, "lesion")] == ["B", "C", "A"]


def test_keys_never_lead_out_of_the_folder(predictions: Path) -> None:
    write_nifti(predictions.parent / "X-seg.nii.gz", label_map(), AFFINE)
    (predictions / "predictions.json").write_text(json.dumps({"../X": {"disagreement": 1.0}}))
    assert list_patients(predictions, "lesion") == []


def test_a_folder_without_predictions_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="annotate lesions predict"):
        list_patients(tmp_path, "lesion")
    with pytest.raises(InputError, match="annotate anatomy"):
        list_patients(tmp_path, "anatomy")


def test_colour_tables_name_every_label(review: Path) -> None:
    snap, slicer = ((review / f"labels-{name}").read_text() for name in ("itksnap.txt", "slicer.ctbl"))
    assert '    3   213   94    0        1  1  1    "enhancing tumour"' in snap
    assert "3 enhancing_tumour 213 94 0 255" in slicer


def test_an_edit_comes_back_and_is_logged(predictions: Path, review: Path) -> None:
    changed = label_map()
    changed[1, 1, 1], changed[4, 4, 4] = 3, 1
    edit(review, "B", changed)
    report = import_review(review, who="Dr Who", note="rim")
    line = json.loads((predictions / "edits.jsonl").read_text())
    assert (report.changed, sorted(report.unchanged), report.failed) == ({"B": 2}, ["A", "C"], {})
    assert np.array_equal(stored(predictions, "B"), changed)
    assert (line["who"], line["patient"], line["note"]) == ("Dr Who", "B", "rim")
    assert line["changes"] == {"background -> NET": 1, "ED -> ET": 1}
    assert line["ml_after"] == {"NET": 0.008, "ED": 0.056, "ET": 0.008}


def test_labels_before_the_edit_are_kept(predictions: Path, review: Path) -> None:
    edit(review, "B", label_map(1))
    import_review(review, who="me")
    (kept,) = (predictions / "B" / ".history").iterdir()
    assert np.array_equal(read_nifti(kept).stored, label_map())


def test_a_second_round_needs_no_second_export(predictions: Path, review: Path) -> None:
    for value in (1, 3):
        edit(review, "B", label_map(value))
        import_review(review, who="me")
    assert import_review(review, who="me").changed == {}
    assert np.array_equal(stored(predictions, "B"), label_map(3))
    assert len((predictions / "edits.jsonl").read_text().splitlines()) == 2


def test_an_editor_may_save_other_axes(predictions: Path, review: Path) -> None:
    labels = label_map(1)
    labels[4, 0, 0] = 3
    turned = AFFINE @ np.array([[-1, 0, 0, SHAPE[0] - 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    edit(review, "B", labels[::-1], turned)
    import_review(review, who="me")
    assert np.array_equal(stored(predictions, "B"), labels)


@pytest.mark.parametrize(
    ("labels", "affine", "message"),
    [
        (label_map(4), AFFINE, "holds values 4"),
        (label_map()[:4], AFFINE, "voxels, but"),
        (label_map(1), np.diag([-2.0, -2.0, 2.5, 1.0]), "mm away from"),
    ],
    ids=["label set", "shape", "affine"],
)
def test_a_bad_edit_is_refused_and_the_others_go_on(
    predictions: Path, review: Path, labels: NDArray[np.uint8], affine: NDArray[np.float64], message: str
) -> None:
    edit(review, "A", label_map(1))
    edit(review, "B", labels, affine)
    report = import_review(review, who="me")
    assert list(report.changed) == ["A"]
    assert message in report.failed["B"]
    assert np.array_equal(stored(predictions, "B"), label_map())


def test_labels_that_changed_meanwhile_are_not_overwritten(predictions: Path, review: Path) -> None:
    edit(review, "B", label_map(1))
    write_nifti(predictions / "B" / "B-seg.nii.gz", label_map(3), AFFINE)
    assert "has changed since it was exported" in import_review(review, who="me").failed["B"]


def test_an_export_never_overwrites_edits(predictions: Path, review: Path) -> None:
    with pytest.raises(InputError, match="may hold edits"):
        export_review(list_patients(predictions, "lesion"), predictions, review)


def test_every_edit_carries_a_name(review: Path) -> None:
    with pytest.raises(UsageError, match="--by is empty"):
        import_review(review, who=" ")


@pytest.mark.e2e
def test_the_commands(predictions: Path, tmp_path: Path, diptych: Run) -> None:
    listed = diptych("annotate", "review", "list", predictions)
    assert listed.stdout.splitlines()[0] == "B  disagreement 0.700"
    diptych("annotate", "review", "export", predictions, "--out", tmp_path / "r", "--patients", 1)
    edit(tmp_path / "r", "B", label_map(9))
    done = diptych("annotate", "review", "import", tmp_path / "r", "--by", "me")
    assert done.returncode == 4
    assert "holds values 9" in done.stderr
