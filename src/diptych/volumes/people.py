"""Who is one person. Everybody who must keep patients apart (splits, folds, searches, evaluation) asks here.

Two keys mean one person when they are time points of one subject or when anything else says so: a common name, the
same voxels. Knows names only, no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from diptych.volumes.bids import person_of

_TIME_POINT = re.compile(
    r"(BraTS-[A-Za-z]+-\d+|Intake-[0-9a-f]{10}|Anon-[0-9a-f]{12}|Phantom-\d{5}-\d{5})-(?:\d+|[0-9a-f]{6})",
    re.IGNORECASE,
)


def subject_of(patient_key: str) -> str:
    """The person behind a patient key: BraTS 2023 and later, and BIDS, name time points of one person at the end.

    >>> subject_of("BraTS-GLI-00020-001"), subject_of("BraTS20_Training_001"), subject_of("sub-07_ses-2")
    ('BraTS-GLI-00020', 'BraTS20_Training_001', 'sub-07')
    """
    match = _TIME_POINT.fullmatch(patient_key)
    return match[1] if match else person_of(patient_key) or patient_key


def names_of(patient_key: str) -> frozenset[str]:
    """Everything that an archive may call the person behind a key."""
    return frozenset({patient_key, subject_of(patient_key)})


def group_people(keys: Iterable[str], *identities: Mapping[str, str]) -> list[list[str]]:
    """Keys that belong to one person, directly or through a third key; in the order of their first keys.

    Args:
        keys: of patients.
        identities: by key, what else tells a person, such as the hash of the voxels.

    >>> group_people(["BraTS-GLI-7-000", "BraTS-GLI-7-001", "B", "C"], {"BraTS-GLI-7-001": "same", "C": "same"})
    [['BraTS-GLI-7-000', 'BraTS-GLI-7-001', 'C'], ['B']]
    """
    group_of = {key: [key] for key in keys}
    for identity in ({key: subject_of(key) for key in group_of}, *identities):
        first: dict[str, str] = {}
        for key in group_of:
            if key not in identity:
                continue
            other = first.setdefault(identity[key], key)
            if group_of[other] is not group_of[key]:
                group_of[other].extend(group_of[key])
                for member in group_of[key]:
                    group_of[member] = group_of[other]
    return list({id(group): group for group in group_of.values()}.values())
