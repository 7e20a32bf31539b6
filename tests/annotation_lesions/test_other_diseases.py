"""An ensemble of one channel and one class says nothing of gliomas: not in its card, its predictions, or a review."""

from __future__ import annotations

import json
from pathlib import Path

from diptych.annotation.lesions import LesionOptions, predict_lesions, train_lesions
from diptych.annotation.lesions.lesion_network import LesionPreset
from diptych.annotation.review.review_export import export_review
from diptych.annotation.review.review_list import list_patients
from diptych.description import Description, classes_named
from diptych.runs.run_length import Length
from diptych.volumes import find_patients

STROKE = Description(disease="stroke", channels=("t1gd",), lesion=classes_named(["lesion"]), codes=((2, 1), (3, 1)))


def test_one_channel_and_one_class(patients: Path, tmp_path: Path, tiny_preset: LesionPreset) -> None:
    options = LesionOptions(
        out=tmp_path / "run",
        source=patients,
        preset=tiny_preset.name,
        folds=2,
        length=Length(steps=1),
        threads=1,
        description=STROKE,
    )
    report = train_lesions(options)
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "| held out | patients | whole |" in card
    assert "anything but stroke" in card
    assert report["paper"] == {}

    predict_lesions(find_patients(patients)[:1], tmp_path / "run", tmp_path / "pred", threads=1)
    (entry,) = json.loads((tmp_path / "pred" / "predictions.json").read_text()).values()
    assert list(entry["volumes_ml"]) == ["lesion"]

    export_review(list_patients(tmp_path / "pred", "lesion"), tmp_path / "pred", tmp_path / "review")
    assert (tmp_path / "review" / "labels-slicer.ctbl").read_text().splitlines()[3:] == ["1 lesion 213 94 0 255"]
