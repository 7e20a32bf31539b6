"""Contact sheets: true proportions, sides from geometry, and a command that names what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.drawing.sheet import choose_slices, draw_contact_sheet
from diptych.errors import UsageError
from diptych.phantom import Phantom, PhantomConfig, make_phantom, write_phantom
from diptych.volumes import CHANNELS, Volume
from tests.conftest import Run


def block(shape: tuple[int, int, int] = (20, 30, 12), spacing: tuple[float, float, float] = (1, 1, 1)) -> Volume:
    """A box of signal, brighter towards the last x, in a dark frame."""
    signal = np.zeros((1, *shape), dtype=np.float32)
    signal[:, 2:-2, 3:-3, 2:-2] = np.linspace(50, 200, shape[0] - 4)[:, None, None]
    affine = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])
    return Volume("block", ("t1",), signal, affine)


@pytest.fixture(scope="module")
def phantom() -> Phantom:
    return make_phantom(2, config=PhantomConfig(voxel_mm=8.0, samples=1))


def test_proportions_follow_the_spacing() -> None:
    even, tall = (draw_contact_sheet([block(spacing=(1, mm, 1))], slices=1) for mm in (1.0, 2.0))
    assert tall.width == even.width
    assert tall.height - even.height == pytest.approx(30 + 4, abs=8)


def test_rows_run_from_anterior_and_columns_from_the_right() -> None:
    sheet = np.asarray(draw_contact_sheet([block((60, 70, 12))], slices=1).convert("L"), dtype=float)
    tile = sheet[60:80, 52:112]
    assert tile[:, 40:50].mean() > tile[:, 10:20].mean()


def test_side_markers_follow_the_affine(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr("diptych.drawing.sheet.write_text", lambda image, at, text, *rest: written.append(text))
    volume = block()
    draw_contact_sheet([volume], slices=1)
    draw_contact_sheet([replace(volume, affine=np.diag([1.0, -1.0, 1.0, 1.0]))], slices=1)
    assert [text for text in written if text in ("L", "R")] == ["R", "L", "L", "R"]


def test_the_largest_lesion_is_shown() -> None:
    lesion = np.zeros((20, 30, 12), dtype=np.uint8)
    lesion[5:9, 5:9, 8] = 1
    assert 8 in choose_slices(replace(block(), lesion=lesion), 3)


def test_labels_are_tinted() -> None:
    lesion = np.zeros((20, 30, 12), dtype=np.uint8)
    lesion[5:15, 5:25] = 3
    pixels = np.asarray(draw_contact_sheet([replace(block(), lesion=lesion)], slices=2)).astype(int)
    orange = (pixels[..., 0] - pixels[..., 2] > 60).sum()
    assert orange > 2 * 10 * 20 * 0.8


def test_the_notice_stands_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr("diptych.drawing.sheet.write_text", lambda image, at, text, *rest: written.append(text))
    draw_contact_sheet([block(), block()], slices=1)
    assert sum("not a medical device" in text for text in written) == 1


def test_twins_get_rows(phantom: Phantom) -> None:
    with_twin = draw_contact_sheet([phantom.volume], slices=2)
    without = draw_contact_sheet([replace(phantom.volume, twin=None)], slices=2)
    assert with_twin.height > without.height


def test_an_empty_image_is_drawn_black() -> None:
    empty = replace(block(), array=np.zeros((1, 20, 30, 12), dtype=np.float32))
    assert draw_contact_sheet([empty], slices=1).width > 20


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one of each"):
        draw_contact_sheet([], slices=3)


@pytest.mark.e2e
def test_show_draws_folders_and_files(diptych: Run, phantom: Phantom, tmp_path: Path) -> None:
    key = phantom.volume.patient_key
    (tmp_path / key).mkdir()
    write_phantom(phantom, tmp_path / key)
    flair = tmp_path / key / f"{key}-t2f.nii.gz"
    done = diptych("show", key, "--flair", flair, "--slices", 3, "--figure", "two.png")
    assert (done.returncode, done.stderr) == (0, "")
    with Image.open(tmp_path / "two.png") as picture:
        assert picture.width > 800


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nowhere",), 3, "nowhere: not a folder"),
        ((), 2, "0 patients given"),
        (("x", "--out", "sheet.jpg"), 2, "ends in .png"),
        (("--lesion", "seg.nii.gz"), 2, "add --t1"),
        (("--t1", "missing.nii.gz"), 3, "missing.nii.gz"),
    ],
)
def test_show_names_what_is_wrong(diptych: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = diptych("show", *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.data
def test_show_draws_a_real_patient(brats: Path) -> None:
    from diptych.volumes import find_patients, read_patient

    patients = sorted(path for path in (brats / "patients").iterdir())
    volume = read_patient(find_patients(patients[0])[0])
    assert volume.channels == CHANNELS
    assert draw_contact_sheet([volume], slices=4).height > 400
