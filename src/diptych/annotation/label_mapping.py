"""What the ids of a label map mean among the six anatomy labels: FreeSurfer's, or those of a user's mapping file.

A mapping file has one line per id or range of ids, the label as its number or name; `#` starts a comment:

    2         left cerebrum
    41        right cerebrum
    251-255   cerebrum            # both sides share the id: each voxel joins the side nearest to it
    16        0                   # background

FreeSurfer's own ids (aseg, aparc+aseg, wmparc; SynthSeg and FastSurfer use the same) need no file. An id without a
meaning is refused rather than dropped. Knows arrays of ids, not images.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.errors import InputError, LabelError
from diptych.phantom.atlas import BY_SIDE, CEREBELLUM, CEREBRUM_LEFT, CEREBRUM_RIGHT, STEM_AND_MIDLINE, VENTRICLE
from diptych.volumes import ANATOMY_LABELS
from diptych.volumes.layout import one_line

LARGEST_ID = 100_000
EITHER_SIDE = {"cerebrum": -1, "cerebellum": -3, "lateral ventricle": -5}
"""Meanings without a side: minus the label of the left half; the right half is one more."""
NUMBERS = {name: label for label, name in ANATOMY_LABELS.items()} | EITHER_SIDE
_LINE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?[\s,:=]+(\S.*)")


@dataclass(frozen=True)
class LabelMapping:
    """Ids and what they mean."""

    meanings: dict[int, int]
    """Id to one of `ANATOMY_LABELS`, or to one of `EITHER_SIDE`."""

    def apply(self, ids: NDArray[np.int32], *, source: str = "label map") -> NDArray[np.uint8]:
        """The six labels of an array of ids; `source` names it in messages.

        >>> FREESURFER.apply(np.array([[[2, 251, 41, 16]]])).tolist()
        [[[1, 1, 2, 0]]]
        """
        present = np.unique(ids).tolist()
        if unknown := [number for number in present if number not in self.meanings]:
            shown = ", ".join(map(str, unknown[:8])) + (", …" if len(unknown) > 8 else "")
            raise LabelError(
                f"{source}: ids {shown} have no meaning among the anatomy labels; give a mapping file that names them"
            )
        meanings = np.array([self.meanings[number] for number in present], dtype=np.int8)
        labels = meanings[np.searchsorted(present, ids)]
        for left in EITHER_SIDE.values():
            if (unsided := labels == left).any():
                labels[unsided] = _nearest_side(labels, -left, unsided, source)
        return labels.astype(np.uint8)


def _nearest_side(labels: NDArray[np.int8], left: int, unsided: NDArray[np.bool_], source: str) -> NDArray[np.int8]:
    """For each voxel without a side, the label of the nearest voxel of the same structure that has one."""
    sided = (labels == left) | (labels == left + 1)
    if not sided.any():
        raise LabelError(
            f"{source}: no voxel is {ANATOMY_LABELS[left]} or {ANATOMY_LABELS[left + 1]}, so ids that both sides share "
            "cannot be told apart; map some ids to each side"
        )
    nearest = ndimage.distance_transform_edt(~sided, return_distances=False, return_indices=True)
    assert isinstance(nearest, np.ndarray)
    return np.asarray(labels[tuple(nearest[:, unsided])], dtype=np.int8)


def read_mapping(path: Path) -> LabelMapping:
    """Read a mapping file (see above); background need not be named."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{one_line(path)}: the mapping file cannot be read ({error})") from None
    meanings = {0: 0}
    for number, line in enumerate(text.splitlines(), start=1):
        if words := line.split("#")[0].strip():
            meanings |= _read_line(f"{one_line(path)}, line {number}", words)
    if not any(label for label in meanings.values()):
        raise LabelError(f"{one_line(path)}: names no anatomy label; write lines such as '2 left cerebrum'")
    return LabelMapping(meanings)


def _read_line(place: str, words: str) -> dict[int, int]:
    match = _LINE.fullmatch(words)
    if match is None:
        raise LabelError(f"{place}: '{one_line(words)[:60]}' is no mapping; write an id and a label: '2 left cerebrum'")
    first, last = int(match[1]), int(match[2] or match[1])
    name = " ".join(match[3].lower().split())
    label = NUMBERS.get(name, int(name) if name.isdecimal() else None)
    if label is None or label not in {*ANATOMY_LABELS, *EITHER_SIDE.values()}:
        raise LabelError(f"{place}: '{one_line(name)[:40]}' is no label; labels are 0 to 6, {', '.join(NUMBERS)}")
    if not first <= last <= LARGEST_ID:
        raise LabelError(f"{place}: ids run from low to high and at most to {LARGEST_ID}")
    return dict.fromkeys(range(first, last + 1), label)


def _freesurfer() -> LabelMapping:
    """FreeSurfer's colour table, as far as whole-brain segmentations use it."""
    # Besides brain stem and midline: fifth ventricle, substantia nigra, parts of the stem, skull, what lies outside.
    outside = (0, *STEM_AND_MIDLINE, 72, 27, 59, 165, 170, 173, 174, 175, 178, 257, 258, 259)
    left = (*CEREBRUM_LEFT, 3, 9, 19, 20, 25, 30, 78, 81, 96, 5001, *_parcels(1000, 3000, 11100, 13100))
    right = (*CEREBRUM_RIGHT, 42, 48, 55, 56, 57, 62, 79, 82, 97, 5002, *_parcels(2000, 4000, 12100, 14100))
    groups: dict[int, Iterable[int]] = {
        0: outside,
        1: left,
        2: right,
        3: (*CEREBELLUM["left"], 6),
        4: (*CEREBELLUM["right"], 45),
        5: VENTRICLE["left"],
        6: VENTRICLE["right"],
        EITHER_SIDE["cerebrum"]: (*BY_SIDE, 192),
        EITHER_SIDE["cerebellum"]: (172,),
    }
    return LabelMapping({number: label for label, numbers in groups.items() for number in numbers})


def _parcels(*starts: int) -> list[int]:
    """Ids of the cortex and of the white matter below it: a hundred from each start."""
    return [number for start in starts for number in range(start, start + 100)]


FREESURFER = _freesurfer()
