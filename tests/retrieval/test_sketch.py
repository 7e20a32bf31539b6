"""Sketches: what is painted finds its like; files, labels and models that do not fit are refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from diptych.errors import LabelError, ModelError, UsageError
from diptych.fitting.fit_data import divide_patients
from diptych.fitting.sketch_fit import fit_label_encoder, judge_sketches
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.model.label_networks import LabelEncoder
from diptych.retrieval import Archive, Question
from diptych.retrieval.sketch import SKETCH_FILE, Sketcher, ask_sketch, read_sketch, sketch_slice
from diptych.slices import PAPER_AUGMENTATION, SliceDataset, SliceStore
from diptych.volumes import Volume, write_nifti
from tests.retrieval.making import CONFIG, tiny_network, write_archive
from tests.retrieval.running import run
from tests.retrieval.spotted import seeing_network, spotted_records, spotted_store, spotted_volume

VOLUMES = [spotted_volume(number) for number in range(50)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SliceStore:
    return spotted_store(tmp_path_factory.mktemp("sketch") / "store", VOLUMES)


@pytest.fixture(scope="module")
def seeing(store: SliceStore) -> FeatureDecomposingNetwork:
    return seeing_network(store)


@pytest.fixture(scope="module")
def sketcher(store: SliceStore, seeing: FeatureDecomposingNetwork) -> Sketcher:
    dataset = SliceDataset(store, augmentation=PAPER_AUGMENTATION)
    return fit_label_encoder(seeing, dataset, steps=60)


@pytest.fixture(scope="module")
def spots(tmp_path_factory: pytest.TempPathFactory, seeing: FeatureDecomposingNetwork) -> Archive:
    path = write_archive(tmp_path_factory.mktemp("spots") / "A", seeing, spotted_records(seeing, VOLUMES))
    return Archive.open(path, model=seeing)


@pytest.fixture
def painted() -> NDArray[np.uint8]:
    labels = np.zeros(CONFIG.image_size, dtype=np.uint8)
    labels[8:20, 30:50] = 2
    labels[10:14, 35:40] = 3
    return labels


def true_labels(store: SliceStore, volume: Volume) -> NDArray[np.uint8]:
    lesion = store.lesion(volume.patient_key)
    assert lesion is not None
    return np.asarray(lesion[1])


def test_a_true_label_map_finds_its_slice_among_hundreds(spots: Archive, sketcher: Sketcher, store: SliceStore) -> None:
    question = Question(by="abnormal", top=5)
    for volume in VOLUMES:
        answer = ask_sketch(spots, sketcher, true_labels(store, volume), question)
        assert volume.patient_key in [match.volume.volume_key for match in answer.matches]


def test_a_sketch_agrees_with_the_network(sketcher: Sketcher, store: SliceStore) -> None:
    figures = judge_sketches(sketcher, SliceDataset(store))
    assert figures is not None
    assert figures.agreement > 0.8


def test_ids_are_those_of_least_expected_distance(painted: NDArray[np.uint8]) -> None:
    torch.manual_seed(3)
    encoder, codebook = LabelEncoder(CONFIG).eval(), torch.randn(CONFIG.codebook_size, CONFIG.code_width)
    labels = torch.from_numpy(painted)[None]
    with torch.no_grad():
        probabilities = encoder(labels).softmax(dim=1)[0]
    expected = torch.einsum("khw,ik->ihw", probabilities, torch.cdist(codebook, codebook).square())
    torch.testing.assert_close(encoder.ids(labels, codebook)[0], expected.argmin(dim=0))


def test_fitting_by_steps_always_gives_the_same(store: SliceStore, seeing: FeatureDecomposingNetwork) -> None:
    dataset = SliceDataset(store, augmentation=PAPER_AUGMENTATION)
    first, second = (fit_label_encoder(seeing, dataset, steps=2, seed=5).encoder.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_fitting_leaves_the_model_as_it_is(
    store: SliceStore, seeing: FeatureDecomposingNetwork, tmp_path: Path
) -> None:
    before = save_model(seeing, tmp_path)
    fit_label_encoder(seeing, SliceDataset(store), steps=1).save(tmp_path)
    assert seeing.fingerprint == before


def test_a_saved_sketcher_comes_back(sketcher: Sketcher, painted: NDArray[np.uint8], tmp_path: Path) -> None:
    sketcher.save(tmp_path)
    opened = Sketcher.open(tmp_path, sketcher.network)
    np.testing.assert_array_equal(opened.ids(painted), sketcher.ids(painted))


def test_a_sketcher_of_another_model_is_refused(sketcher: Sketcher, tmp_path: Path) -> None:
    sketcher.save(tmp_path)
    with pytest.raises(
        ModelError, match=r"was made for model .*; delete it, or make it again with 'diptych fit sketch"
    ):
        Sketcher.open(tmp_path, tiny_network(seed=9))


def test_a_missing_sketcher_says_how_to_make_one(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="make it with 'diptych fit sketch"):
        Sketcher.open(tmp_path, network)


def test_a_damaged_sketcher_is_refused(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    (tmp_path / SKETCH_FILE).write_bytes(b"not tensors")
    with pytest.raises(ModelError, match="cannot be read"):
        Sketcher.open(tmp_path, network)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda labels: labels[:, :-1], r"sketch of 32x63 pixels: this model takes 32x64"),
        (lambda labels: np.where(labels == 3, 7, labels), r"labels \[7\]: the labels are 0 background, 1 NET"),
        (lambda labels: labels * 0, "without any lesion"),
    ],
)
def test_labels_that_cannot_be_are_refused(
    sketcher: Sketcher, painted: NDArray[np.uint8], spoil: object, message: str
) -> None:
    with pytest.raises(LabelError, match=message):
        sketcher.ids(spoil(painted))  # type: ignore[operator]


def test_a_sketch_alone_has_no_anatomy(spots: Archive, sketcher: Sketcher, painted: NDArray[np.uint8]) -> None:
    with pytest.raises(UsageError, match="by both: a sketch alone has no anatomy"):
        ask_sketch(spots, sketcher, painted, Question(by="both"))


def test_a_sketch_takes_the_anatomy_of_a_slice(spots: Archive, sketcher: Sketcher, painted: NDArray[np.uint8]) -> None:
    patient = spots.stored("spot-003", z_index=1)
    np.testing.assert_array_equal(
        sketch_slice(spots, sketcher, painted, anatomy=patient).normal_ids, patient.normal_ids
    )


@pytest.mark.parametrize("mode", ["L", "P"])
def test_labels_come_from_a_png(painted: NDArray[np.uint8], tmp_path: Path, mode: str) -> None:
    image = Image.fromarray(painted)
    if mode == "P":
        image.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.save(tmp_path / "sketch.png")
    np.testing.assert_array_equal(read_sketch(tmp_path / "sketch.png"), painted)


@pytest.mark.parametrize("signs", [(-1, -1), (1, 1), (1, -1)])
def test_labels_come_from_a_nifti_slice_in_any_orientation(
    painted: NDArray[np.uint8], tmp_path: Path, signs: tuple[int, int]
) -> None:
    stored = painted.T[::-1] if signs[0] > 0 else painted.T
    stored = stored[:, ::-1] if signs[1] > 0 else stored
    volume = np.stack([np.zeros_like(stored), stored], axis=2)
    write_nifti(tmp_path / "sketch.nii.gz", volume, np.diag([signs[0] * 1.5, signs[1] * 2.0, 3.0, 1.0]))
    np.testing.assert_array_equal(read_sketch(tmp_path / "sketch.nii.gz"), painted)


def test_a_colour_picture_is_refused(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "sketch.png")
    with pytest.raises(LabelError, match="is a RGB picture"):
        read_sketch(tmp_path / "sketch.png")


def test_a_whole_volume_is_no_sketch(tmp_path: Path) -> None:
    write_nifti(tmp_path / "seg.nii.gz", np.ones((4, 5, 6), np.uint8), np.diag([-1.0, -1.0, 1.0, 1.0]))
    with pytest.raises(LabelError, match="has 6 painted axial planes"):
        read_sketch(tmp_path / "seg.nii.gz")


@pytest.mark.parametrize("name", ["sketch.npy", "sketch.jpg"])
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"a sketch is a \.png"):
        read_sketch(tmp_path / name)


def test_patients_on_neither_list_neither_teach_nor_judge(store: SliceStore, tmp_path: Path) -> None:
    keys = [volume.patient_key for volume in VOLUMES]
    (tmp_path / "train.txt").write_text("\n".join(keys[:38]))
    (tmp_path / "val.txt").write_text("\n".join(keys[38:48]))
    split = divide_patients([store], train_list=tmp_path / "train.txt", validation_list=tmp_path / "val.txt")
    assert (len(split.train), len(split.test)) == (38, 10)


def test_the_command_fits_and_reports(store: SliceStore, network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    save_model(network, tmp_path / "model")
    done = run("fit-sketch", store.path, "--model", tmp_path / "model", "--steps", 2)
    assert (done.exit_code, (tmp_path / "model" / SKETCH_FILE).is_file()) == (0, True), done.stderr


@pytest.fixture
def fitted(store: SliceStore, network: FeatureDecomposingNetwork, tmp_path: Path) -> Path:
    """A model's folder with a label encoder in it."""
    save_model(network, tmp_path / "fitted")
    fit_label_encoder(network, SliceDataset(store), steps=1).save(tmp_path / "fitted")
    return tmp_path / "fitted"


def test_the_search_command_takes_a_sketch(
    archive: Archive, fitted: Path, painted: NDArray[np.uint8], tmp_path: Path
) -> None:
    Image.fromarray(painted).save(tmp_path / "lesion.png")
    asked = ("search", archive.store.path, "--model", fitted, "--sketch", tmp_path / "lesion.png", "--json")
    done = run(*asked, "--by", "abnormal", "--top", 3)
    expected = Sketcher.open(fitted, archive.network).ids(painted)
    assert json.loads(done.stdout)["query"]["abnormal_ids"] == expected.tolist(), done.stderr
    both = json.loads(run(*asked, "V02", "--slice", 4).stdout)["query"]
    assert (both["normal_ids"], both["abnormal_ids"]) == (
        archive.stored("V02", z_index=4).normal_ids.tolist(),
        expected.tolist(),
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "by both: a sketch alone has no anatomy"),
        (("--find", "volumes"), "leave --lesion-of and --find out"),
    ],
)
def test_sketches_that_cannot_be_asked_with(
    archive: Archive, fitted: Path, painted: NDArray[np.uint8], tmp_path: Path, options: tuple[str, ...], line: str
) -> None:
    Image.fromarray(painted).save(tmp_path / "lesion.png")
    done = run("search", archive.store.path, "--model", fitted, "--sketch", tmp_path / "lesion.png", *options)
    assert (done.exit_code, line in done.stderr, done.stderr.count("\n")) == (2, True, 1)


def test_a_search_without_query_and_sketch_is_refused(archive: Archive, fitted: Path) -> None:
    assert "or paint a lesion" in run("search", archive.store.path, "--model", fitted).stderr


@pytest.mark.slow
def test_sketches_of_phantoms_find_their_slices_with_the_shipped_model(tmp_path: Path) -> None:
    """Of all slices of all phantoms, the five nearest to the true label map of one hold a slice of that very place."""
    from diptych.model import load_model
    from diptych.model.shipped import shipped_models
    from diptych.phantom import make_phantom
    from diptych.slices import SliceGeometry, slice_volume

    folder = next((path for path in shipped_models().values() if (path / SKETCH_FILE).is_file()), None)
    if folder is None:
        pytest.skip("no shipped model with a label encoder is here")
    network = load_model(folder)
    sketcher = Sketcher.open(folder, network)
    volumes = [make_phantom(seed).volume for seed in range(9000, 9006)]
    records = spotted_records(network, volumes)
    ids = np.concatenate([record.abnormal_ids for record in records])
    owner = np.repeat(np.arange(len(records)), [record.slice_count for record in records])
    z_index = np.concatenate([record.z_index for record in records]).astype(int)
    codebook = network.abnormal_quantizer.codebook.numpy()
    found = 0
    for number, (volume, record) in enumerate(zip(volumes, records, strict=True)):
        painted = int(record.z_index[record.lesion_area.argmax()])
        stack = slice_volume(volume, SliceGeometry(network.config.image_size, network.config.field_mm))
        assert stack.lesion is not None
        sketched = sketcher.ids(stack.lesion[stack.z_index == painted][0])
        nearest = np.square(codebook[ids] - codebook[sketched]).sum(axis=(1, 2, 3)).argsort()[:5]
        found += bool(np.any((owner[nearest] == number) & (abs(z_index[nearest] - painted) <= 3)))
    assert len(ids) > 300
    assert found >= 5
