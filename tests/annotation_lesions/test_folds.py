"""One person is never in two folds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.annotation.lesions.lesion_cases import deal_folds
from diptych.errors import UsageError
from diptych.volumes import subject_of

KEYS = st.builds("BraTS-GLI-{:05d}-{:03d}".format, st.integers(0, 30), st.integers(0, 3))


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(KEYS, st.sampled_from("abcdefghijklmnopqrst"), min_size=12), st.integers(2, 5), st.integers(0, 9)
)
def test_no_person_leaks(voxels: dict[str, str], folds: int, seed: int) -> None:
    try:
        dealt = deal_folds(voxels, folds, seed=seed)
    except UsageError:
        return
    assert sorted(key for fold in dealt for key in fold) == sorted(voxels)
    for identity in (subject_of, voxels.__getitem__):
        homes: dict[str, int] = {}
        for number, fold in enumerate(dealt):
            assert all(homes.setdefault(identity(key), number) == number for key in fold)


def test_folds_are_of_nearly_equal_size() -> None:
    dealt = deal_folds({f"p{number}": str(number) for number in range(88)}, 5, seed=0)
    assert sorted(map(len, dealt)) == [17, 17, 18, 18, 18]


def test_seed_decides() -> None:
    voxels = {f"p{number}": str(number) for number in range(20)}
    assert deal_folds(voxels, 5, seed=1) == deal_folds(voxels, 5, seed=1) != deal_folds(voxels, 5, seed=2)


def test_fewer_people_than_folds() -> None:
    with pytest.raises(UsageError, match="2 labelled patients that can be used, but 5 folds"):
        deal_folds({"a": "1", "b": "2", "c": "2"}, 5, seed=0)


def test_one_fold_is_no_cross_validation() -> None:
    with pytest.raises(UsageError, match="at least 2"):
        deal_folds({"a": "1"}, 1, seed=0)
