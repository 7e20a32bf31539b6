"""Which series is T1, T1Gd, T2 and FLAIR: told from the tags, then from the voxels, always with reasons.

Timing decides before words do, because words lie: `sT2W/FLAIR` names two sequences, and an inversion alone makes no
FLAIR (MPRAGE has one, too): FLAIR means TI > 1500 ms and TE > 60 ms. A drawn mask keeps the timing of the image it
was drawn on, so voxels are looked at as well, and where neither timing nor words tell, voxels alone
(`voxel_typing.py`). Of several candidates the best is taken by coverage, distance between slices and plane, and that
is said. A user's word (`overrides`) beats all of it. What words mean is in `series_words.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diptych.errors import MissingChannelError, UsageError
from diptych.intake.series import Left, Series, Tags
from diptych.intake.series_words import OTHER_TYPES, agent_by_words, named_sequences, other_kind
from diptych.volumes.layout import one_line
from diptych.volumes.volume import CHANNELS

TITLES = {"t1": "T1", "t1gd": "T1Gd", "t2": "T2", "flair": "FLAIR"}
CANNOT_TELL = "which sequence it is cannot be told; name it, such as --flair "
LONG_ECHO = 60.0
CONTRASTS = {"T1": "t1", "T2": "t2", "FLUID_ATTENUATED": "flair"}
OTHER_CONTRASTS = ("DIFFUSION", "PERFUSION", "FLOW_ENCODED", "PROTON_DENSITY", "STIR", "TAGGING", "T2_STAR", "TOF",
                   "VELOCITY", "SUSCEPTIBILITY", "SPECTROSCOPY")  # fmt: skip
"""Of AcquisitionContrast, which enhanced MR has."""
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


ByVoxels = Callable[[Sequence[Series], Mapping[str, Series], frozenset[str]], list[Choice]]
"""Unknown series, known ones by channel, and channels that are not to be filled: what could be told."""


def choose_series(
    series: Sequence[Series],
    *,
    overrides: Mapping[str, str] | None = None,
    by_voxels: ByVoxels | None = None,
    unread: Sequence[Left] = (),
) -> Typing:
    """Take one series for each channel, where there is one.

    Args:
        series: The volumes of one study.
        overrides: Channel to series, as a user calls it (key, number, description, folder or file); `none` leaves the
            channel out.
        by_voxels: Tells what neither timing nor words do, beside series of known channels; None leaves these.
        unread: What was left before, named where a sequence is missing.

    Raises:
        UsageError: an override names a channel or series that is not there, or one series twice.
        MissingChannelError: neither FLAIR nor T1Gd, or neither T1 nor T1Gd.
    """
    series = _without_examinations(series)
    wanted = _overrides(series, overrides or {})
    fixed = {channel: found for channel, found in wanted.items() if found is not None}
    candidates, unknown, left = _by_tags([one for one in series if one not in fixed.values()])
    warnings = _part_t1(candidates)
    known = {channel: options[0].series for channel, options in candidates.items() if options} | fixed
    if unknown and by_voxels is not None and not {*known, *wanted} >= set(CHANNELS):
        told = by_voxels(unknown, known, frozenset(wanted))
        for choice in told:
            candidates[choice.channel].append(choice)
        unknown = [one for one in unknown if all(choice.series is not one for choice in told)]
        if told:
            warnings.append(_told_by_voxels(told))
    left += [Left(one.key, CANNOT_TELL + one.key, one.tags.description) for one in unknown]
    choices = _choices(candidates, wanted, left)
    _check_complete(choices, [*unread, *left])
    return Typing(choices, tuple(left), (*_missing(choices), *warnings))


def _without_examinations(series: Sequence[Series]) -> list[Series]:
    """Without a ProtocolName that several series share: it names the examination and says nothing about a series."""
    names = [one.tags.protocol for one in series]
    shared = {name for name in names if name and names.count(name) > 1}
    return [replace(one, tags=replace(one.tags, protocol="")) if one.tags.protocol in shared else one for one in series]


def _by_tags(series: Sequence[Series]) -> tuple[dict[str, list[Choice]], list[Series], list[Left]]:
    """Candidates by channel, what nothing in a header tells, and what is none of the four."""
    candidates: dict[str, list[Choice]] = {channel: [] for channel in CHANNELS}
    unknown: list[Series] = []
    left: list[Left] = []
    for one in series:
        channel, reasons = type_series(one)
        if channel is not None:
            candidates[channel].append(Choice(channel, one, reasons))
        elif reasons:
            left.append(Left(one.key, "; ".join(reasons), one.tags.description))
        else:
            unknown.append(one)
    return candidates, unknown, left


def _choices(
    candidates: Mapping[str, list[Choice]], wanted: Mapping[str, Series | None], left: list[Left]
) -> dict[str, Choice]:
    """The best candidate of each channel, or the one that the user named; the others are added to `left`."""
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
    return choices


def type_series(series: Series) -> tuple[str | None, tuple[str, ...]]:
    """The channel of one series by its header, with reasons, T1Gd counted as T1; None with the reason where it is none
    of the four, and None without a reason where nothing tells.
    """
    if reason := _no_sequence(series):
        return None, (reason,)
    channel, reasons = _by_timing(series.tags)
    if channel is None and not reasons:
        channel, reasons = _by_words(series.tags)
    if drawn := _drawn(series) if channel is not None or not reasons else None:
        return None, (drawn,)
    return channel, reasons


def _no_sequence(series: Series) -> str | None:
    """Why a series cannot be one of the four, by header alone."""
    tags = series.tags
    if tags.burnt_in:
        return "says that text is burnt into its pixels, which may name the patient; it is not taken"
    if found := [word for word in tags.image_type if word in OTHER_TYPES]:
        return f"is computed or auxiliary (ImageType {found[0]})"
    if tags.b_value:
        return f"is diffusion-weighted (b = {tags.b_value:g})"
    if "EP" in tags.scanning_sequence:
        return "is echo-planar, as diffusion, perfusion and function are"
    if tags.angio or tags.acquisition_contrast in OTHER_CONTRASTS:
        return f"is another kind of image ({'AngioFlag' if tags.angio else tags.acquisition_contrast})"
    for text in (tags.description, tags.protocol):
        if word := other_kind(text, long_echo=(tags.echo_time or 0.0) >= LONG_ECHO):
            return f"is another kind of image (its description says {word!r})"
    cover = cover_mm(series)
    if cover < SMALLEST_COVER_MM:
        return f"spans {cover:.0f} mm across its slices, too little for a brain"
    return None


def _by_timing(tags: Tags) -> tuple[str | None, tuple[str, ...]]:
    """From TR, TE, TI and the kind of sequence; nothing at all where these are not given or do not decide."""
    te, tr, ti = tags.echo_time, tags.repetition_time, tags.inversion_time
    if not te:
        return None, ()
    timing = f"TE {te:g}" + (f", TR {tr:g}" if tr else "") + (f", TI {ti:g}" if ti else "") + " ms"
    gradient = "GR" in tags.scanning_sequence and "SE" not in tags.scanning_sequence
    inverted = "IR" in tags.scanning_sequence
    if (ti or 0.0) > 1500.0 and te > LONG_ECHO:
        return "flair", (f"{timing}: a long inversion and echo time",)
    if gradient and te > 12.0:
        return None, (f"{timing}: a gradient echo with a long echo time (T2*)",)
    if gradient and "SS" in tags.sequence_variant and "SP" not in tags.sequence_variant and (tags.flip_angle or 0) > 30:
        return None, (f"{timing}: a gradient echo in steady state, not spoiled",)
    if inverted and ti and 80.0 < ti < 300.0 and (tr or 0.0) > 1500.0:
        return None, (f"{timing}: an inversion that takes fat away (STIR)",)
    if te >= LONG_ECHO and (tr is None or tr > 1500.0):
        return _long_echo(tags, timing, inverted=inverted)
    short = tr is None or tr < 1500.0 or (ti is not None and 300.0 < ti <= 1500.0)
    if te < 35.0 and (gradient or short or _called_t1(tags, inverted=inverted)):
        return "t1", (f"{timing}: a short echo time",)
    if te < LONG_ECHO:
        return None, (f"{timing}: neither T1 nor T2 weighted (proton density?)",)
    return None, ()


def _long_echo(tags: Tags, timing: str, *, inverted: bool) -> tuple[str | None, tuple[str, ...]]:
    """T2 or FLAIR: without a usable inversion time words help, and where they do not, nothing is decided."""
    named = _named(tags)
    if "flair" in named and "t2" not in named and (not tags.inversion_time or tags.inversion_time > 1000.0):
        given = "a short inversion time" if tags.inversion_time else "no inversion time is given"
        return "flair", (f"{timing}, described as FLAIR; {given}",)
    unclear = inverted or ("flair" in named and not tags.scanning_sequence)
    if not tags.inversion_time and unclear:
        return None, ()
    return "t2", (f"{timing}: a long echo time without a long inversion",)


def _called_t1(tags: Tags, *, inverted: bool) -> bool:
    """A T1 with a longer repetition time than usual, as at 3 T."""
    return set(_named(tags)) == {"t1"} and (inverted or (tags.repetition_time or 0.0) <= 2500.0)


def _named(tags: Tags) -> dict[str, str]:
    return named_sequences(tags.description) or named_sequences(tags.protocol)


def _by_words(tags: Tags) -> tuple[str | None, tuple[str, ...]]:
    if contrast := CONTRASTS.get(tags.acquisition_contrast):
        return contrast, (f"AcquisitionContrast is {tags.acquisition_contrast}",)
    found = _named(tags)  # of a description never all is said: it may name the patient
    return (next(iter(found)), (f"described as {next(iter(found.values()))!r}",)) if len(found) == 1 else (None, ())


def _part_t1(candidates: dict[str, list[Choice]]) -> list[str]:
    """Part T1 from T1Gd by what is said of a contrast agent; comes back with what could not be told."""
    found = candidates["t1"]
    words = [agent_by_words(c.series.tags.description) or agent_by_words(c.series.tags.protocol) for c in found]
    entered = [choice.series.tags.contrast_agent for choice in found]
    # some scanners enter the agent for the whole examination: then only those count that are called so
    for_all = all(entered) and any(w and w[0] for w in words) and any(w is None for w in words)
    candidates["t1"] = []
    for choice, word, agent in zip(found, words, entered, strict=True):
        if word is not None:
            when = "after" if word[0] else "before"
            channel, reason = "t1gd" if word[0] else "t1", f"described as {when} contrast agent ({word[1]!r})"
        elif agent and not for_all:
            channel, reason = "t1gd", "a contrast agent is entered"
        else:
            channel, reason = (
                "t1",
                "no contrast agent is " + ("named, only entered for all series" if agent else "entered"),
            )
        candidates[channel].append(Choice(channel, choice.series, (*choice.reasons, reason)))
    if len(candidates["t1"]) > 1 and not candidates["t1gd"]:
        keys = ", ".join(choice.series.key for choice in candidates["t1"])
        return [
            f"{keys} are T1, and nothing says that one was taken after contrast agent; if so, name it: --t1gd SERIES."
        ]
    return []


def _told_by_voxels(told: Sequence[Choice]) -> str:
    named = ", ".join(f"{choice.series.key} as {TITLES[choice.channel]}" for choice in told)
    return f"Told by voxels alone, as no header or name does: {named}. Look at the picture; --t1 and so on name them."


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


def cover_mm(series: Series) -> float:
    """How much a series spans across its slices."""
    return series.shape[2] * series.spacing[2]


def _worth(series: Series) -> tuple[float, ...]:
    """Larger is better: coverage first, then finer slices, then original over derived, then the axial plane."""
    cover = min(cover_mm(series), 150.0)
    coarsest = max(series.spacing)
    axial = series.plane == "axial"
    original = "ORIGINAL" in series.tags.image_type or not series.tags.image_type
    return (round(cover / 10.0), -round(coarsest, 1), original, axial, -(series.tags.number or 0))


def _better(best: Series, other: Series) -> str:
    for name, first, second in zip(
        ("covers more", "finer slices", "original", "axial"), _worth(best), _worth(other), strict=False
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
    if "flair" not in choices and "t1gd" not in choices:
        raise MissingChannelError(
            f"neither FLAIR nor T1Gd, and no model does without both; name one with --flair SERIES or --t1gd SERIES "
            f"({seen})"
        )
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
    if "flair" not in choices:
        said.append("No FLAIR: HOW FAR OEDEMA REACHES CANNOT BE SAID; a model is needed that does without.")
    if "t2" not in choices and "flair" in choices:
        said.append("No T2: fluid and oedema are told apart by FLAIR alone.")
    return tuple(said)
