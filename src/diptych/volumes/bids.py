"""File names after the Brain Imaging Data Structure (BIDS): who, which visit, and what a file shows.

    sub-01/ses-2/anat/sub-01_ses-2_T1w.nii.gz                     T1 of person sub-01 at visit ses-2
    sub-01/anat/sub-01_ce-gadolinium_T1w.nii.gz                   T1Gd
    derivatives/lesions/sub-01/anat/sub-01_label-lesion_mask.nii.gz   its lesion

Knows names only. A brain mask is no lesion. Masks may lie anywhere in the data set; images below `derivatives` count
only where the rest of the data set has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_KEY = re.compile(r"(?P<subject>sub-[A-Za-z0-9]+)(?:_(?P<session>ses-[A-Za-z0-9]+))?")
_NAME = re.compile(
    rf"(?P<key>{_KEY.pattern})(?P<entities>(?:_[A-Za-z0-9]+-[A-Za-z0-9]+)*)_(?P<suffix>[A-Za-z0-9]+)\.nii(?:\.gz)?"
)
_PANELS = {"T1w": "t1", "T2w": "t2", "FLAIR": "flair", "lesion": "lesion", "mask": "lesion", "roi": "lesion"}
STRIPPED = ("brain", "strip")
"""Words in `desc-…` that say of an image that the skull is gone, and of a mask that it is no lesion."""


@dataclass(frozen=True)
class BidsName:
    """What a name spells."""

    key: str
    """Person and, where there are several, visit: `sub-01_ses-2`."""
    panel: str
    """A channel, or lesion."""
    stripped: bool
    """Whether the name says that the skull was removed."""


def parse_name(name: str) -> BidsName | None:
    """What a file's name says, or None where it is not of this kind or of no use here.

    >>> parse_name("sub-01_ses-2_ce-gd_T1w.nii.gz")
    BidsName(key='sub-01_ses-2', panel='t1gd', stripped=False)
    """
    match = _NAME.fullmatch(name)
    if match is None or match["suffix"] not in _PANELS:
        return None
    entities = dict(part.split("-", 1) for part in match["entities"].split("_") if part)
    panel = _PANELS[match["suffix"]]
    about = " ".join(entities.get(name, "") for name in ("desc", "label")).lower()
    stripped = any(word in about for word in STRIPPED)
    if panel == "lesion" and stripped and "lesion" not in about:
        return None
    if panel == "t1" and "ce" in entities:
        panel = "t1gd"
    return BidsName(match["key"], panel, stripped)


def person_of(key: str) -> str | None:
    """The person behind `sub-01_ses-2`; None for keys of another kind."""
    match = _KEY.fullmatch(key)
    return None if match is None else match["subject"]


def is_derived(path: Path, source: Path) -> bool:
    """Whether a file lies below a folder of derivatives inside `source`."""
    return "derivatives" in path.relative_to(source).parts


def participants_table(source: Path) -> Path | None:
    """The table of persons at the root of a data set, where there is one."""
    table = Path(source) / "participants.tsv"
    return table if table.is_file() else None
