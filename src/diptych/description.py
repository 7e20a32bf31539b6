"""`Description`: what a store, a model or an archive is about. Channels, lesion classes and anatomy, all by name.

    channels   t1, t1gd, t2, flair                names; their order is the model's business
    lesion     1 NET, 2 ED, 3 ET                  names, abbreviations, colours; counts follow from it
    anatomy    1 left cerebrum, …, or none
    codes      4 = 3                              how values in label files become classes
    size, field                                   pixels of a slice, and the millimetres that they cover

It is kept with the slice store, goes into each model trained on it, and from there into archives. Knows names and
numbers; nothing about files, patients or networks. Files of before there were descriptions are about gliomas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from diptych.errors import UsageError

Colour = tuple[int, int, int]

CHANNELS = ("t1", "t1gd", "t2", "flair")
"""Channels that files are known by, in the order in which volumes hold them."""
MOST_CLASSES = 32
PALETTE: tuple[Colour, ...] = (
    (0, 114, 178),
    (240, 228, 66),
    (213, 94, 0),
    (204, 121, 167),
    (0, 158, 115),
    (86, 180, 233),
    (230, 159, 0),
)
"""Colours of lesion classes that bring none, after Okabe and Ito: told apart by the colour-blind too."""
SINGLE: Colour = (213, 94, 0)
"""Colour of a lesion that is the only class."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .,/()+'_-]{0,47}")


@dataclass(frozen=True)
class LabelClass:
    """One value of a label map and what it stands for."""

    value: int
    name: str
    """In words, such as "enhancing tumour"."""
    abbreviation: str
    """As tables and legends show it, such as "ET"."""
    colour: Colour


BRAIN_ANATOMY = (
    LabelClass(1, "left cerebrum", "left cerebrum", (86, 180, 233)),
    LabelClass(2, "right cerebrum", "right cerebrum", (230, 159, 0)),
    LabelClass(3, "left cerebellum", "left cerebellum", (0, 158, 115)),
    LabelClass(4, "right cerebellum", "right cerebellum", (204, 121, 167)),
    LabelClass(5, "left lateral ventricle", "left lateral ventricle", (255, 255, 255)),
    LabelClass(6, "right lateral ventricle", "right lateral ventricle", (240, 228, 66)),
)
"""What `diptych annotate anatomy` labels."""
GLIOMA_CLASSES = (
    LabelClass(1, "necrotic or non-enhancing core", "NET", (0, 114, 178)),
    LabelClass(2, "oedema", "ED", (240, 228, 66)),
    LabelClass(3, "enhancing tumour", "ET", (213, 94, 0)),
)


@dataclass(frozen=True)
class Description:
    """Channels, classes and slice geometry, by name."""

    disease: str = "glioma"
    """A word for people."""
    channels: tuple[str, ...] = CHANNELS
    """Names, in the order in which the model takes them."""
    lesion: tuple[LabelClass, ...] = GLIOMA_CLASSES
    """Classes of the lesion map, values 1, 2, …; 0 is background."""
    anatomy: tuple[LabelClass, ...] = BRAIN_ANATOMY
    """Classes of the anatomy map; empty where anatomy is not known."""
    codes: tuple[tuple[int, int], ...] = ()
    """Values in lesion files that stand for other classes, as (value, class); 0 drops a value."""
    size: tuple[int, int] = (128, 128)
    """Rows and columns of a slice."""
    field: tuple[float, float] | None = (200.0, 160.0)
    """Millimetres that rows and columns cover; None for the whole frame of the scan."""
    enough: tuple[str, ...] = ()
    """Channels of which any one is enough, whatever else is missing; empty where every channel is needed."""

    def __post_init__(self) -> None:
        if self.field is not None:  # a number is written, and so fingerprinted, in one way only
            object.__setattr__(self, "field", (float(self.field[0]), float(self.field[1])))
        _check_name("disease", self.disease)
        if not self.channels or len(set(self.channels)) != len(self.channels):
            raise UsageError(f"channels {', '.join(self.channels) or 'none'}: name each channel once, at least one")
        for channel in self.channels:
            _check_name("channel", channel)
        if unknown := [name for name in self.enough if name not in self.channels]:
            raise UsageError(f"enough {', '.join(unknown)}: not among the channels {', '.join(self.channels)}")
        for kind in ("lesion", "anatomy"):
            _check_classes(kind, getattr(self, kind))
        if not self.lesion:
            raise UsageError("lesion classes: none; name at least one, such as --classes lesion")
        for code, value in self.codes:
            if not 0 < code <= 255 or not 0 <= value <= len(self.lesion):
                raise UsageError(
                    f"--lesion-code {code}={value}: a value of a file, 1 to 255, stands for a class from 0 to "
                    f"{len(self.lesion)}"
                )

    @property
    def voxel(self) -> tuple[float, float] | None:
        """Millimetres between rows and between columns; None where the scan decides."""
        return None if self.field is None else (self.field[0] / self.size[0], self.field[1] / self.size[1])

    @property
    def lesion_names(self) -> dict[int, str]:
        """Abbreviations by value, without the background."""
        return {one.value: one.abbreviation for one in self.lesion}

    @property
    def anatomy_names(self) -> dict[int, str]:
        return {one.value: one.name for one in self.anatomy}

    @property
    def lesion_colours(self) -> dict[int, Colour]:
        return {one.value: one.colour for one in self.lesion}

    @property
    def anatomy_colours(self) -> dict[int, Colour]:
        return {one.value: one.colour for one in self.anatomy}

    @property
    def regions(self) -> dict[str, tuple[int, ...]]:
        """What lesion figures are given for: each class by abbreviation, last first, and the whole lesion.

        >>> GLIOMA.regions
        {'ET': (3,), 'ED': (2,), 'NET': (1,), 'whole': (1, 2, 3)}
        """
        if len(self.lesion) == 1:
            return {"whole": (1,)}
        single = {one.abbreviation: (one.value,) for one in reversed(self.lesion)}
        return {**single, "whole": tuple(one.value for one in self.lesion)}

    @property
    def follows_brats(self) -> bool:
        """Whether lesion files are read by the habits of BraTS, whose codes changed from release to release."""
        return self.lesion == GLIOMA_CLASSES and not self.codes

    def sentence(self) -> str:
        """What is read and told apart, in one line.

        >>> GLIOMA.sentence()
        'glioma: reads t1, t1gd, t2, flair; lesion NET, ED, ET; anatomy of 6 parts'
        """
        lesion = ", ".join(one.abbreviation for one in self.lesion)
        anatomy = f"anatomy of {len(self.anatomy)} parts" if self.anatomy else "no anatomy"
        enough = f" ({' or '.join(self.enough)} is enough)" if self.enough else ""
        return f"{self.disease}: reads {', '.join(self.channels)}{enough}; lesion {lesion}; {anatomy}"

    @property
    def panel_classes(self) -> dict[str, int]:
        """Labels that each panel tells apart, background left out; anatomy that is labelled at all is the brain's."""
        return {"normal": len(self.anatomy or BRAIN_ANATOMY), "abnormal": len(self.lesion)}

    @property
    def as_stored(self) -> Description:
        """For label maps that hold classes already, as our own copies do."""
        return replace(self, codes=())

    def shown(self, preferred: Sequence[str]) -> dict[str, int]:
        """Channels to draw, with their places: the preferred ones that there are, or else the first.

        >>> GLIOMA.shown(("t1gd", "pd")), GLIOMA.shown(("pd",))
        ({'t1gd': 1}, {'t1': 0})
        """
        names = [name for name in preferred if name in self.channels] or [self.channels[0]]
        return {name: self.channels.index(name) for name in names}

    def missing(self, channels: Iterable[str]) -> tuple[str, ...]:
        """Channels that are read and are not among `channels`."""
        there = set(channels)
        return tuple(name for name in self.channels if name not in there)

    def needed(self, channels: Iterable[str]) -> tuple[str, ...]:
        """What must be added before a patient with `channels` can be read: all of these, or any one of `enough`.

        >>> GLIOMA.needed(["t1", "flair"]), replace(GLIOMA, enough=("t1gd", "flair")).needed(["t1", "flair"])
        (('t1gd', 't2'), ())
        """
        there = set(channels)
        if not self.enough:
            return self.missing(there)
        return () if there.intersection(self.enough) else self.enough

    def without(self, channels: Iterable[str]) -> str | None:
        """What reading a patient with `channels` does without, as a sentence; None where nothing is missing."""
        if not (missing := self.missing(channels)):
            return None
        return f"{' and '.join(missing)} missing: read without, so that matches are less sure (see the model card)"

    def of_shape(self, *, channels: int, lesion_classes: int, anatomy_classes: int) -> bool:
        """Whether a network with these counts, background included, is what is described."""
        anatomy = len(self.anatomy) + 1 if self.anatomy else 0
        return (len(self.channels), len(self.lesion) + 1) == (channels, lesion_classes) and (
            anatomy_classes in (0, anatomy)
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        values = asdict(self)
        return values if self.enough else {name: value for name, value in values.items() if name != "enough"}

    @classmethod
    def from_json(cls, data: Any) -> Description:
        """Read what `to_json` gave, from a file that may come from a stranger; a `UsageError` says what is wrong."""
        try:
            view = data["field"]
            return cls(
                disease=str(data["disease"]),
                channels=tuple(str(name) for name in data["channels"]),
                lesion=tuple(class_of_json(one) for one in data["lesion"]),
                anatomy=tuple(class_of_json(one) for one in data["anatomy"]),
                codes=tuple((int(code), int(value)) for code, value in data["codes"]),
                size=(int(data["size"][0]), int(data["size"][1])),
                field=None if view is None else (float(view[0]), float(view[1])),
                enough=tuple(str(name) for name in data.get("enough", ())),
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise UsageError(f"description: damaged or incomplete ({error!r}); make the file again") from None


def described_by_counts(channels: int, lesion_classes: int, anatomy_classes: int) -> Description:
    """What a model of before there were descriptions is about: the glioma, or as much of it as the counts allow."""
    if (channels, lesion_classes) == (len(CHANNELS), len(GLIOMA_CLASSES) + 1):
        return GLIOMA if anatomy_classes else replace(GLIOMA, anatomy=())
    names = (*CHANNELS, *(f"channel {place}" for place in range(len(CHANNELS) + 1, channels + 1)))[:channels]
    whole = lesion_classes == len(GLIOMA_CLASSES) + 1
    lesion = GLIOMA_CLASSES if whole else classes_named([f"class {n}" for n in range(1, lesion_classes)])
    anatomy = BRAIN_ANATOMY if anatomy_classes == len(BRAIN_ANATOMY) + 1 else ()
    return Description(channels=names, lesion=lesion, anatomy=anatomy)


def classes_named(names: Sequence[str]) -> tuple[LabelClass, ...]:
    """Lesion classes 1, 2, … with these names, or `ABBREVIATION=name` each, and colours of our choice.

    >>> [(one.value, one.abbreviation, one.name) for one in classes_named(["core", "PEN=penumbra"])]
    [(1, 'core', 'core'), (2, 'PEN', 'penumbra')]
    """
    classes = []
    for value, text in enumerate(names, start=1):
        abbreviation, _, name = (part.strip() for part in text.partition("="))
        colour = SINGLE if len(names) == 1 else PALETTE[(value - 1) % len(PALETTE)]
        classes.append(LabelClass(value, name or abbreviation, abbreviation, colour))
    return tuple(classes)


def codes_of(mapping: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """A mapping from values of files to classes as `Description.codes` holds it."""
    return tuple(sorted(mapping.items()))


def class_of_json(data: Mapping[str, Any]) -> LabelClass:
    """A class from the plain values that `asdict` gives."""
    red, green, blue = (int(part) for part in data["colour"])
    return LabelClass(int(data["value"]), str(data["name"]), str(data["abbreviation"]), (red, green, blue))


def _check_name(what: str, name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{what} {name[:60]!r}: a name has 1 to 48 plain letters, digits, spaces or .,/()+'_- and begins with a "
            "letter or digit"
        )


def _check_classes(kind: str, classes: tuple[LabelClass, ...]) -> None:
    if [one.value for one in classes] != list(range(1, len(classes) + 1)) or len(classes) > MOST_CLASSES:
        raise UsageError(f"{kind} classes: values must be 1, 2, … without a gap, at most {MOST_CLASSES}")
    for one in classes:
        _check_name(f"{kind} class", one.name)
        _check_name(f"{kind} class", one.abbreviation)
        if any(not 0 <= part <= 255 for part in one.colour):
            raise UsageError(f"{kind} class {one.name}: its colour {one.colour} is not three numbers from 0 to 255")
    for part in ("name", "abbreviation"):
        names = [getattr(one, part).lower() for one in classes]
        if len(set(names)) != len(names):
            raise UsageError(f"{kind} classes: two have the same {part}; name each one differently")


STROKE = Description(disease="stroke", channels=("t1",), lesion=classes_named(["lesion"]))
"""Chronic stroke in T1, one class."""
GLIOMA = Description()
"""Adult glioma in four channels: what Diptych began with, and what files without a description are about."""
