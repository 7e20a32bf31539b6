"""Which series is which: timing before words, voxels where tags lie, the user's word above all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.errors import MissingChannelError, UsageError
from diptych.intake.series import Series, Tags
from diptych.intake.series_typing import choose_series, type_series

MPRAGE = Tags(2, "MPRAGE sag", scanning_sequence=("GR", "IR"), repetition_time=1900, echo_time=2.5, inversion_time=850)
SPIN_ECHO = Tags(3, "ax", scanning_sequence=("SE",), repetition_time=550, echo_time=10)
GADOLINIUM = replace(SPIN_ECHO, number=4, contrast_agent=True)
T2 = Tags(5, "sT2W/FLAIR", scanning_sequence=("SE",), repetition_time=4500, echo_time=100)
FLAIR = Tags(6, "sT2W/FLAIR", scanning_sequence=("SE", "IR"), repetition_time=9000, echo_time=120, inversion_time=2500)


def a_series(tags: Tags, *, slices: int = 40, mm: float = 4.0, drawn: bool = False) -> Series:
    def load() -> NDArray[np.float32]:
        noise = np.random.default_rng(tags.number or 0).integers(0, 2 if drawn else 900, (16, 12, slices))
        return noise.astype(np.float32)

    key = f"s{tags.number}"
    return Series(key, tags, (16, 12, slices), np.diag([1.0, 1.0, mm, 1.0]), load, names=(f"{key}-folder",))


@pytest.mark.parametrize(
    ("tags", "channel", "reason"),
    [
        (MPRAGE, "t1", "TI 850 ms: a short echo time"),
        (T2, "t2", "without a long inversion"),
        (FLAIR, "flair", "a long inversion and echo time"),
        (replace(T2, image_type=("DERIVED", "PRIMARY", "ADC")), None, "computed or auxiliary (ImageType ADC)"),
        (replace(T2, b_value=1000.0), None, "diffusion-weighted (b = 1000)"),
        (replace(T2, burnt_in=True), None, "text is burnt into its pixels"),
        (replace(T2, scanning_sequence=("GR",), echo_time=25, repetition_time=700), None, "T2*"),
        (replace(T2, echo_time=20, repetition_time=3000), None, "proton density?"),
    ],
)
def test_a_series_is_told_by_its_tags(tags: Tags, channel: str | None, reason: str) -> None:
    found, reasons = type_series(a_series(tags))
    assert found == channel
    assert reason in "; ".join(reasons)


@pytest.mark.parametrize("tags", [replace(T2, echo_time=None), Tags(7, "axial series")])
def test_what_nothing_tells_is_left_with_a_way_out(tags: Tags) -> None:
    assert type_series(a_series(tags)) == (None, ())
    typing = choose_series([a_series(MPRAGE), a_series(FLAIR), a_series(tags)])
    assert typing.left[0].reason == f"which sequence it is cannot be told; name it, such as --flair s{tags.number}"


def test_a_drawn_mask_with_the_timing_of_flair_is_no_flair() -> None:
    found, (reason,) = type_series(a_series(FLAIR, drawn=True))
    assert found is None
    assert reason == "holds only 2 different values: a drawn mask, not a measurement"


def test_a_contrast_agent_parts_t1_from_t1gd() -> None:
    typing = choose_series([a_series(tags) for tags in (SPIN_ECHO, GADOLINIUM, T2, FLAIR)])
    assert {channel: choice.series.key for channel, choice in typing.choices.items()} == {
        "t1": "s3", "t1gd": "s4", "t2": "s5", "flair": "s6",
    }  # fmt: skip
    assert not typing.warnings


@pytest.mark.parametrize(
    ("better", "why"),
    [
        (a_series(MPRAGE, slices=160, mm=1.0), "finer slices"),
        (a_series(MPRAGE, slices=60, mm=4.0), "came first"),
    ],
)
def test_of_several_candidates_the_best_is_chosen_and_said(better: Series, why: str) -> None:
    other = a_series(SPIN_ECHO)
    typing = choose_series([other, better, a_series(FLAIR)])
    assert typing.choices["t1"].series is better
    assert typing.left[0].reason == f"is T1 too; s2 is better ({why})"


@pytest.mark.parametrize("name", ["s2", "2", "MPRAGE SAG", "s2-folder"])
def test_the_users_word_is_last(name: str) -> None:
    typing = choose_series([a_series(tags) for tags in (MPRAGE, SPIN_ECHO, FLAIR)], overrides={"t1gd": name})
    assert typing.choices["t1gd"].series.key == "s2"
    assert typing.choices["t1gd"].reasons == ("named by the user",)
    assert typing.choices["t1"].series.key == "s3"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"t1": "s99"}, "names no or more than one series; there are s2, s6"),
        ({"t1": "s2", "t1gd": "s2"}, "already taken for another channel"),
        ({"pd": "s2"}, "channel 'pd' is not known"),
    ],
)
def test_a_wrong_word_is_refused(overrides: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        choose_series([a_series(MPRAGE), a_series(FLAIR)], overrides=overrides)


def test_without_flair_and_t1gd_nothing_goes_and_without_one_a_loud_line() -> None:
    with pytest.raises(MissingChannelError, match="neither FLAIR nor T1Gd, and no model does without both"):
        choose_series([a_series(MPRAGE), a_series(T2)])
    with pytest.raises(MissingChannelError, match="neither T1 nor T1Gd"):
        choose_series([a_series(T2), a_series(FLAIR)])
    typing = choose_series([a_series(MPRAGE), a_series(T2), a_series(FLAIR)])
    assert "NOTHING ABOUT ENHANCEMENT CAN BE SAID" in typing.warnings[0]
    typing = choose_series([a_series(MPRAGE), a_series(GADOLINIUM), a_series(T2)])
    assert "HOW FAR OEDEMA REACHES CANNOT BE SAID" in typing.warnings[0]
