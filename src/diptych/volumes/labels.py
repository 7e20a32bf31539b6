"""Label maps: from the codes of a file to the one set Diptych uses (`LESION_LABELS`, `ANATOMY_LABELS`).

Knows codes and file names, not geometry.

| release       | 1   | 2  | 3  | 4                     |
|---------------|-----|----|----|-----------------------|
| 2017 to 2022  | NET | ED | –  | ET                    |
| 2023          | NET | ED | ET | –                     |
| 2024 (GLI)    | NET | ED | ET | RC (resection cavity) |

So code 4 has two meanings. It is the cavity when code 3 is there too, or when the files carry the names used since
2023 (t1n, t1c, t2w, t2f); it is enhancing tumour when they carry the older names (t1, t1ce, t2, flair). With names
that say neither, 4 is read as enhancing tumour and a warning says so. A resection cavity is neither tumour nor
anatomy; it becomes background, with a warning. The paediatric releases (`BraTS-PED-…`) changed their codes from year
to year and are refused unless `lesion_codes` gives their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.description import GLIOMA, Description
from diptych.errors import LabelError
from diptych.volumes.layout import one_line, split_name
from diptych.volumes.volume import ANATOMY_LABELS, LESION_LABELS

NAMES_SINCE_2023 = {"t1n", "t1c", "t2w", "t2f"}
NAMES_UNTIL_2022 = {"t1", "t1ce", "t2", "flair"}
IDENTITY = {label: label for label in LESION_LABELS}


def unify_lesion(
    path: Path,
    codes: NDArray[np.uint8],
    images: Iterable[Path],
    about: Description = GLIOMA,
    lesion_codes: Mapping[int, int] | None = None,
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Turn a file's lesion codes into the classes of a description.

    Args:
        path: The label file, for messages.
        codes: Its values.
        images: The patient's channel files, whose names tell the release.
        about: The classes; its own codes, where it has any, say what values stand for.
        lesion_codes: Code to label, when the caller knows better; background may be left out.

    Returns:
        The labels, and warnings about anything that had to be decided.
    """
    counts = np.bincount(codes.reshape(-1), minlength=256)
    present = set(np.flatnonzero(counts).tolist())
    warnings: tuple[str, ...] = ()
    if lesion_codes is not None:
        mapping = {0: 0, **lesion_codes}
    elif about.follows_brats:
        mapping, warnings = _mapping(path, present, images, int(counts[4]))
    else:
        mapping = {0: 0, **{value: value for value in about.lesion_names}, **dict(about.codes)}
    if unknown := sorted(present - set(mapping)):
        raise LabelError(
            f"{one_line(path)}: label values {unknown} are not among the known {sorted(mapping)}; "
            f"give their meaning, such as --lesion-code {unknown[-1]}=1, or leave the labels out"
        )
    if all(mapping[code] == code for code in present):
        return codes, warnings
    table = np.zeros(256, dtype=np.uint8)
    for code, label in mapping.items():
        if not 0 <= label <= len(about.lesion):
            raise LabelError(f"lesion code {code} stands for class {label}; classes are 0 to {len(about.lesion)}")
        table[code] = label
    return table[codes], warnings


def check_anatomy(path: Path, codes: NDArray[np.uint8]) -> None:
    """Raise `LabelError` unless all values are `ANATOMY_LABELS`."""
    present = np.flatnonzero(np.bincount(codes.reshape(-1), minlength=256)).tolist()
    if unknown := sorted(set(present) - set(ANATOMY_LABELS)):
        raise LabelError(
            f"{one_line(path)}: label values {unknown} are not anatomy labels, which are "
            f"{min(ANATOMY_LABELS)} to {max(ANATOMY_LABELS)}; correct the file or leave it out"
        )


def _mapping(
    path: Path, present: set[int], images: Iterable[Path], fours: int
) -> tuple[dict[int, int], tuple[str, ...]]:
    """What each code means, told from the codes and the file names (the table above)."""
    if path.name.lower().startswith("brats-ped-"):
        raise LabelError(
            f"{one_line(path)}: paediatric releases changed their label codes from year to year; "
            "give their meaning as lesion_codes, or leave the labels out"
        )
    if 4 not in present:
        return IDENTITY, ()
    names = {named[1] for image in images if (named := split_name(image)) is not None}
    if 3 in present or (names & NAMES_SINCE_2023 and not names & NAMES_UNTIL_2022):
        return IDENTITY | {4: 0}, (f"{fours} voxels of resection cavity (label 4) are read as background.",)
    if names & NAMES_UNTIL_2022:
        return {0: 0, 1: 1, 2: 2, 4: 3}, ()
    return {0: 0, 1: 1, 2: 2, 4: 3}, ("Label 4 is read as enhancing tumour; the file names do not tell the release.",)
