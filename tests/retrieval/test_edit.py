"""Edits: what decodes to a lesion goes, moves, crosses over or grows, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from diptych.archive import VolumeRecord
from diptych.errors import UsageError
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.retrieval import Archive, EncodedSlice
from diptych.retrieval.edit import grow_lesion, mirror_lesion, move_lesion, remove_lesion
from diptych.retrieval.edit_figure import draw_edit
from diptych.retrieval.explanation import decode_lesion
from tests.retrieval.making import CONFIG, make_record, tiny_network, write_archive
from tests.retrieval.running import run

QUIET = 4
"""Ids below this decode to nothing; id k to lesion class 1 + k % 3 from there on."""
LESION = [(1, 2), (1, 3), (2, 3)]


class LabelCodes(nn.Module):
    """Decodes each cell by itself: the code's first dimensions are the logits."""

    def forward(self, code: Tensor) -> Tensor:
        return F.interpolate(code[:, : CONFIG.lesion_classes], size=CONFIG.image_size)


def label_network() -> FeatureDecomposingNetwork:
    network = tiny_network()
    network.segmentation_decoder = LabelCodes()  # type: ignore[assignment]
    codebook = torch.zeros(CONFIG.codebook_size, CONFIG.code_width)
    for code in range(CONFIG.codebook_size):
        codebook[code, 0 if code < QUIET else 1 + code % 3] = 5.0 + 0.1 * code
    network.abnormal_quantizer.codebook.copy_(codebook)
    return network


def lesioned_record(number: int) -> VolumeRecord:
    """The first two of three slices free of lesions, the last with `LESION` in id 10 and one cell of id 11."""
    record = make_record(number, slices=3)
    ids = np.random.default_rng(number).integers(QUIET, size=(3, *CONFIG.latent_size), dtype=np.uint8)
    ids[:2] = np.arange(CONFIG.latent_size[1]) % QUIET
    for cell in LESION:
        ids[2][cell] = 10
    ids[2][LESION[0]] = 11
    return replace(record, abnormal_ids=ids, lesion_area=np.array([0, 0, 99], dtype=np.float32))


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    network = label_network()
    records = [lesioned_record(number) for number in range(3)]
    return Archive.open(write_archive(tmp_path_factory.mktemp("edit") / "A", network, records), model=network)


@pytest.fixture(scope="module")
def subject(labelled: Archive) -> EncodedSlice:
    return labelled.stored("V00", z_index=5)


def lesion_cells(archive: Archive, edited: EncodedSlice) -> list[tuple[int, int]]:
    cells = decode_lesion(archive.network, edited.abnormal_ids[None])[0].reshape(4, 8, 8, 8).any(axis=(1, 3))
    return [(int(row), int(column)) for row, column in np.argwhere(cells)]


def test_a_removed_lesion_is_not_decoded_any_more(labelled: Archive, subject: EncodedSlice) -> None:
    assert lesion_cells(labelled, remove_lesion(labelled, subject)) == []


def test_removed_cells_take_what_lesion_free_slices_hold(labelled: Archive, subject: EncodedSlice) -> None:
    edited = remove_lesion(labelled, subject)
    assert [int(edited.abnormal_ids[cell]) for cell in LESION] == [2, 3, 3]


def test_nothing_else_changes(labelled: Archive, subject: EncodedSlice) -> None:
    edited = remove_lesion(labelled, subject)
    changed = np.argwhere(edited.abnormal_ids != subject.abnormal_ids).tolist()
    assert [list(cell) for cell in LESION] == changed
    np.testing.assert_array_equal(edited.normal_ids, subject.normal_ids)


def test_a_moved_lesion_keeps_its_codes(labelled: Archive, subject: EncodedSlice) -> None:
    edited = move_lesion(labelled, subject, rows=1, columns=-2)
    assert lesion_cells(labelled, edited) == [(2, 0), (2, 1), (3, 1)]
    assert [int(edited.abnormal_ids[cell]) for cell in [(2, 0), (2, 1), (3, 1)]] == [11, 10, 10]


def test_moving_there_and_back_restores_the_lesion(labelled: Archive, subject: EncodedSlice) -> None:
    there = move_lesion(labelled, subject, rows=-1, columns=4)
    back = move_lesion(labelled, there, rows=1, columns=-4)
    assert [int(back.abnormal_ids[cell]) for cell in LESION] == [11, 10, 10]


def test_a_lesion_cannot_leave_the_grid(labelled: Archive, subject: EncodedSlice) -> None:
    with pytest.raises(UsageError, match=r"move 2,0: .* rows may change by -1 to 1, columns by -2 to 4"):
        move_lesion(labelled, subject, rows=2, columns=0)


def test_where_the_mirrored_slice_shows_no_lesion_the_grid_is_mirrored(
    labelled: Archive, subject: EncodedSlice, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = replace(subject, abnormal_ids=subject.abnormal_ids * 0)
    monkeypatch.setattr(Archive, "mirrored", lambda self, one: quiet)
    edited = mirror_lesion(labelled, subject)
    assert lesion_cells(labelled, edited) == [(1, 4), (1, 5), (2, 4)]
    assert "mirrored cell by cell" in edited.warnings[-1]


def test_a_mirrored_lesion_comes_from_the_mirrored_slice(
    labelled: Archive, subject: EncodedSlice, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(subject, abnormal_ids=np.where(np.arange(8) == 6, 15, 0) * np.ones((4, 1), dtype=np.int64))
    monkeypatch.setattr(Archive, "mirrored", lambda self, one: other)
    assert lesion_cells(labelled, mirror_lesion(labelled, subject)) == [(row, 6) for row in range(4)]


def magnified(ids: NDArray[np.integer], lesion: NDArray[np.bool_], cells: int) -> dict[tuple[int, int], int]:
    """By the definition, cell by cell: what lies at the same relative place of the smaller lesion."""
    rows, columns = np.nonzero(lesion)
    centre = (rows.min() + rows.max()) / 2, (columns.min() + columns.max()) / 2
    extent = np.ptp(rows) + 1, np.ptp(columns) + 1
    grown = {}
    for row in range(ids.shape[0]):
        for column in range(ids.shape[1]):
            source = tuple(
                round(float(c + (at - c) * e / (e + 2 * cells)))
                for at, c, e in zip((row, column), centre, extent, strict=True)
            )
            if lesion[source]:
                grown[row, column] = int(ids[source])
    return grown


@pytest.mark.parametrize("cells", [1, 2])
def test_a_grown_lesion_is_magnified_about_its_centre(
    labelled: Archive, subject: EncodedSlice, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    lesion = np.zeros(CONFIG.latent_size, dtype=bool)
    lesion[tuple(np.transpose(LESION))] = True
    view = labelled.view(subject)
    bright = replace(view, healthy_twin=np.zeros_like(view.healthy_twin))
    monkeypatch.setattr(Archive, "view", lambda self, one: bright)
    edited = grow_lesion(labelled, subject, cells=cells)
    expected = magnified(subject.abnormal_ids, lesion, cells)
    assert {cell: int(edited.abnormal_ids[cell]) for cell in lesion_cells(labelled, edited)} == expected


def test_each_focus_grows_by_itself(labelled: Archive, subject: EncodedSlice, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.zeros_like(subject.abnormal_ids)
    ids[0, 0], ids[2, 6] = 10, 11
    view = labelled.view(subject)
    bright = replace(view, healthy_twin=np.zeros_like(view.healthy_twin))
    monkeypatch.setattr(Archive, "view", lambda self, one: bright)
    edited = grow_lesion(labelled, replace(subject, abnormal_ids=ids), cells=1).abnormal_ids
    assert [np.count_nonzero(edited == code) for code in (10, 11)] == [4, 9]


def test_a_lesion_grows_by_at_least_a_cell(labelled: Archive, subject: EncodedSlice) -> None:
    with pytest.raises(UsageError, match=r"grow 0: .* at least 1"):
        grow_lesion(labelled, subject, cells=0)


def test_a_slice_without_a_lesion_cannot_be_edited(labelled: Archive) -> None:
    with pytest.raises(UsageError, match="no lesion is predicted"):
        remove_lesion(labelled, labelled.stored("V00", z_index=3))


def test_a_model_that_always_sees_lesions_is_said_so(archive: Archive) -> None:
    edited = remove_lesion(archive, archive.stored("V00", z_index=3))
    assert "even in the codes of lesion-free slices" in edited.warnings[-1]


def test_the_figure_shows_all_columns(labelled: Archive, subject: EncodedSlice) -> None:
    figure = draw_edit(labelled, subject, remove_lesion(labelled, subject))
    assert figure.width > 5 * 220 * 100 / 120


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (
            (
                "V03",
                "--slice",
                4,
                "--remove",
            ),
            0,
            "",
        ),
        (("V99", "--remove"), 6, "holds no volume 'V99'"),
        (("V03", "--remove", "--mirror"), 2, "exactly one of"),
        (("V03", "--move", "left"), 2, "give two whole numbers"),
        (("V03", "--slice", 99, "--remove"), 2, "slice 99: V03 shows brain in slices 3…10"),
    ],
)
def test_the_command(
    archive: Archive,
    network: FeatureDecomposingNetwork,
    tmp_path: Path,
    options: tuple[object, ...],
    code: int,
    line: str,
) -> None:
    save_model(network, tmp_path / "model")
    figure = tmp_path / "out.png"
    done = run("edit", archive.store.path, *options, "--model", tmp_path / "model", "--figure", figure)
    assert (done.exit_code, line in done.stderr, figure.is_file()) == (code, True, code == 0), done.stderr
