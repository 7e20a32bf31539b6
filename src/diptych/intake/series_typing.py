"""Which series is T1, T1Gd, T2 and FLAIR: told from the tags, then from the voxels, always with reasons.

Timing decides before words do, because words lie: `sT2W/FLAIR` names two sequences, and an inversion alone makes no
FLAIR (MPRAGE has one, too): FLAIR means TI > 1500 ms and TE > 60 ms. A drawn mask keeps the timing of the image it
was drawn on, so voxels are looked at as well. Of several candidates the best is taken by coverage, distance between
slices and plane, and that is said. A user's word (`overrides`) beats all of it. Knows nothing about registration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diptych.errors import MissingChannelError, UsageError
from diptych.intake.series import Left, Series, Tags
from diptych.volumes.layout import one_line
from diptych.volumes.volume import CHANNELS

__all__ = ["Choice", "Typing", "choose_series", "type_series"]

TITLES = {"t1": "T1", "t1gd": "T1Gd", "t2": "T2", "flair": "FLAIR"}
NO_MEASUREMENT = ("ADC", "FA", "EADC", "TRACEW", "PERFUSION", "CBV", "CBF", "MTT", "TTP", "PROJECTION IMAGE", "MIP",
                  "MINIP", "PHASE", "PHASE MAP", "VELOCITY", "SUBTRACTION", "LOCALIZER", "OTHER")  # fmt: skip
"""Words of ImageType that no sequence of ours carries."""
OTHER_WORDS = re.compile(
    r"adc|dwi|diff|trace|dti|swi|swan|tof|angio|mra\b|perf|dsc|dce|asl|bold|fmri|spectro|csi|local|scout|survey|"
    r"t2\s?\*|t2star|\bmip\b|phase|b0map|field.?map|calib|sub(tract|s\b)|proton|\bpd\b",
    re.IGNORECASE,
)
"""Descriptions of what is measured beside the four sequences."""
WORDS = {
    "flair": re.compile(r"flair|tirm|dark.?fluid|t2f\b", re.IGNORECASE),
    "t2": re.compile(r"t2(?!f)|(?<![a-z])(frfse|propeller|blade)", re.IGNORECASE),
    "t1": re.compile(r"t1|mp2?rage|spgr|bravo|vibe|tfl|fspgr|memprage|mdeft", re.IGNORECASE),
}
WITH_AGENT = re.compile(
    r"(?<![a-z])(gd|gad\w*|post|ce|c\+|\+c|\+gd|km|contrast|enh\w*|c)(?![a-z])|t1(c|ce|gd)(?![a-z])|\+\s?c\b",
    re.IGNORECASE,
)
WITHOUT_AGENT = re.compile(
    r"(?<![a-z])(pre|ohne|nativ\w*|w/?o|without|non|no|unenhanced|sans)(?![a-z])|t1n(?![a-z])", re.IGNORECASE
)
SMALLEST_COVER_MM = 90.0
"""A series that spans less does not hold a brain."""
DRAWN_VALUES, DRAWN_EMPTY = 8, 0.9
"""At most so many different values, or so large a share of one: drawn, not measured."""


@dataclass(frozen=True, eq=False)
class Choice:
    """A series taken for a channel."""

    channel: str
    series: Series
    reasons: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Typing:
    """What became of every series of a study."""

    choices: dict[str, Choice]
    """By channel, in the order of `CHANNELS`."""
    left: tuple[Left, ...]
    warnings: tuple[str, ...] = ()


def choose_series(series: Sequence[Series], *, overrides: Mapping[str, str] | None = None) -> Typing:
    """Take one series for each channel, where there is one.

    Args:
        series: The volumes of one study.
        overrides: Channel to series, as a user calls it (key, number, description, folder or file); `none` leaves the
            channel out.

    Raises:
        UsageError: an override names a channel or series that is not there, or one series twice.
        MissingChannelError: no FLAIR, or neither T1 nor T1Gd.
    """
    wanted = _overrides(series, overrides or {})
    fixed = {channel: found for channel, found in wanted.items() if found is not None}
    candidates: dict[str, list[Choice]] = {channel: [] for channel in CHANNELS}
    left: list[Left] = []
    for one in series:
        if one in fixed.values():
            continue
        channel, reasons = type_series(one)
        if channel is None:
            left.append(Left(one.key, "; ".join(reasons), one.tags.description))
        else:
            candidates[channel].append(Choice(channel, one, reasons))
    _part_t1(candidates)
    choices: dict[str, Choice] = {}
    for channel in CHANNELS:
        if channel in wanted:
            left += [_beaten(other, "another series was named for it") for other in candidates[channel]]
            if (named := wanted[channel]) is not None:
                choices[channel] = Choice(channel, named, ("named by the user",))
        elif candidates[channel]:
            best = max(candidates[channel], key=lambda choice: _worth(choice.series))
            others = [other for other in candidates[channel] if other is not best]
            left += [
                _beaten(other, f"{best.series.key} is better ({_better(best.series, other.series)})")
                for other in others
            ]
            said = (f"best of {len(others) + 1} candidates",) if others else ()
            choices[channel] = Choice(channel, best.series, (*best.reasons, *said))
    _check_complete(choices, left)
    return Typing(choices, tuple(left), _missing(choices))


def type_series(series: Series) -> tuple[str | None, tuple[str, ...]]:
    """The channel of one series with its reasons; None, with the reason, where it is none of the four."""
    if reason := _no_sequence(series):
        return None, (reason,)
    channel, reasons = _by_timing(series.tags)
    if channel is None and reasons:
        return None, reasons
    if channel is None:
        channel, reasons = _by_words(series.tags.description)
    if channel is None:
        return None, (*reasons, "which sequence it is cannot be told; name it, such as --flair " + series.key)
    if drawn := _drawn(series):
        return None, (drawn,)
    return channel, reasons


def _no_sequence(series: Series) -> str | None:
    """Why a series cannot be one of the four, by header alone."""
    tags = series.tags
    if tags.burnt_in:
        return "says that text is burnt into its pixels, which may name the patient; it is not taken"
    if found := [word for word in tags.image_type if word in NO_MEASUREMENT]:
        return f"is computed or auxiliary (ImageType {found[0]})"
    if tags.b_value:
        return f"is diffusion-weighted (b = {tags.b_value:g})"
    if (found_word := OTHER_WORDS.search(tags.description)) and not _has_timing_of_four(tags):
        return f"is another kind of image (its description says {found_word[0]!r})"
    cover = series.shape[2] * series.spacing[2]
    if cover < SMALLEST_COVER_MM:
        return f"spans {cover:.0f} mm across its slices, too little for a brain"
    return None


def _has_timing_of_four(tags: Tags) -> bool:
    """Whether timing is so clear that odd words in a description do not matter."""
    return _is_flair(tags)


def _is_flair(tags: Tags) -> bool:
    return (tags.inversion_time or 0.0) > 1500.0 and (tags.echo_time or 0.0) > 60.0


def _by_timing(tags: Tags) -> tuple[str | None, tuple[str, ...]]:
    """From TR, TE, TI and the kind of sequence; nothing at all where these are not given."""
    te, tr, ti = tags.echo_time, tags.repetition_time, tags.inversion_time
    if te is None:
        return None, ()
    timing = f"TE {te:g}" + (f", TR {tr:g}" if tr else "") + (f", TI {ti:g}" if ti else "") + " ms"
    gradient = "GR" in tags.scanning_sequence and "SE" not in tags.scanning_sequence
    if _is_flair(tags):
        return "flair", (f"{timing}: a long inversion and echo time",)
    if gradient and te > 12.0:
        return None, (f"{timing}: a gradient echo with a long echo time (T2*)",)
    if te >= 60.0 and (tr is None or tr > 1500.0):
        if WORDS["flair"].search(tags.description) and not WORDS["t2"].search(tags.description) and not ti:
            return "flair", (f"{timing}, described as FLAIR; no inversion time is given",)
        return "t2", (f"{timing}: a long echo time without a long inversion",)
    if te < 35.0 and (gradient or tr is None or tr < 1500.0 or (ti is not None and 300.0 < ti <= 1500.0)):
        return "t1", (f"{timing}: a short echo time",)
    if te < 60.0:
        return None, (f"{timing}: neither T1 nor T2 weighted (proton density?)",)
    return None, ()


def _by_words(description: str) -> tuple[str | None, tuple[str, ...]]:
    found = {channel: match[0] for channel, words in WORDS.items() if (match := words.search(description))}
    shown = " and ".join(repr(word) for word in found.values())  # never all of it: it may name the patient
    if len(found) > 1:
        return None, (f"its description names several sequences ({shown}), and no timing decides",)
    return (next(iter(found)), (f"described as {shown}",)) if found else (None, ())


def _part_t1(candidates: dict[str, list[Choice]]) -> None:
    """Part T1 from T1Gd by the contrast agent, or where no header tells, by the description."""
    t1 = candidates["t1"]
    candidates["t1"] = []
    for choice in t1:
        tags = choice.series.tags
        after = WITH_AGENT.search(tags.description)
        before = WITHOUT_AGENT.search(tags.description)
        if tags.contrast_agent and not before:
            candidates["t1gd"].append(_as(choice, "t1gd", "a contrast agent is entered"))
        elif after and not before:
            candidates["t1gd"].append(_as(choice, "t1gd", f"described as after contrast agent ({after[0]!r})"))
        else:
            said = f"described as before contrast agent ({before[0]!r})" if before else "no contrast agent is entered"
            candidates["t1"].append(_as(choice, "t1", said))


def _as(choice: Choice, channel: str, reason: str) -> Choice:
    return Choice(channel, choice.series, (*choice.reasons, reason))


def _drawn(series: Series) -> str | None:
    """Why the voxels are no measurement, if they are none."""
    voxels = series.load()
    some = voxels[:: max(1, voxels.shape[0] // 64), :: max(1, voxels.shape[1] // 64), :]
    values, counts = np.unique(some, return_counts=True)
    if len(values) <= DRAWN_VALUES:
        return f"holds only {len(values)} different values: a drawn mask, not a measurement"
    if len(values) <= 64 and counts.max() > DRAWN_EMPTY * some.size:
        return f"{counts.max() / some.size:.0%} of it is one value: a drawing, not a measurement"
    return None


def _worth(series: Series) -> tuple[float, ...]:
    """Larger is better: coverage first, then finer slices, then the axial plane, then original over derived."""
    cover = min(series.shape[2] * series.spacing[2], 150.0)
    coarsest = max(series.spacing)
    axial = series.plane == "axial"
    original = "ORIGINAL" in series.tags.image_type or not series.tags.image_type
    return (round(cover / 10.0), -round(coarsest, 1), axial, original, -(series.tags.number or 0))


def _better(best: Series, other: Series) -> str:
    for name, first, second in zip(
        ("covers more", "finer slices", "axial", "original"), _worth(best), _worth(other), strict=False
    ):
        if first != second:
            return name
    return "came first"


def _beaten(choice: Choice, why: str) -> Left:
    return Left(choice.series.key, f"is {TITLES[choice.channel]} too; {why}", choice.series.tags.description)


def _overrides(series: Sequence[Series], overrides: Mapping[str, str]) -> dict[str, Series | None]:
    found: dict[str, Series | None] = {}
    for channel, name in overrides.items():
        if channel not in CHANNELS:
            raise UsageError(f"channel {channel!r} is not known; channels are {', '.join(CHANNELS)}")
        one = None if name.lower() == "none" else _called(series, name, channel)
        if one is not None and one in found.values():
            raise UsageError(f"--{channel} {one_line(name)}: this series is already taken for another channel")
        found[channel] = one
    return found


def _called(series: Sequence[Series], name: str, channel: str) -> Series:
    """The one series that a user means."""
    wanted = name.strip().lower()
    for matches in (
        [one for one in series if one.key.lower() == wanted],
        [one for one in series if str(one.tags.number) == wanted],
        [one for one in series if wanted in (other.lower() for other in (*one.names, one.tags.description))],
    ):
        if len(matches) == 1:
            return matches[0]
    known = ", ".join(one.key for one in series)
    raise UsageError(f"--{channel} {one_line(name)[:60]}: names no or more than one series; there are {known}")


def _check_complete(choices: Mapping[str, Choice], left: Sequence[Left]) -> None:
    seen = "; ".join(f"{one.key}: {one.reason}" for one in left) or "nothing else is there"
    if "flair" not in choices:
        raise MissingChannelError(f"no FLAIR, which intake cannot do without; name it with --flair SERIES ({seen})")
    if "t1" not in choices and "t1gd" not in choices:
        raise MissingChannelError(
            f"neither T1 nor T1Gd, and the skull is stripped on one of them; name it with --t1 SERIES ({seen})"
        )


def _missing(choices: Mapping[str, Choice]) -> tuple[str, ...]:
    """A loud line for each channel that is not there."""
    said = []
    if "t1gd" not in choices:
        said.append("No T1Gd: NOTHING ABOUT ENHANCEMENT CAN BE SAID, and what the model draws of it means nothing.")
    if "t1" not in choices:
        said.append("No T1: what enhances cannot be told from what is bright before contrast agent.")
    if "t2" not in choices:
        said.append("No T2: fluid and oedema are told apart by FLAIR alone.")
    return tuple(said)
