"""Conditions on metadata mean what they mean in SQL, and nothing else gets through."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.archive.filters import COLUMNS, parse_filter
from diptych.archive.records import VolumeInfo
from diptych.errors import UsageError

VOLUMES = [
    VolumeInfo(f"V{i}", f"P{i // 2}", sex=sex, age=age, source=source, study_date=date)
    for i, (sex, age, source, date) in enumerate(
        [
            ("F", 61.0, "brats", "2001-05-01"),
            ("M", 30.5, None, None),
            (None, 61.0, "o'brien", "1999-12-31"),
            ("O", None, "brats", "2003-01-01"),
        ]
    )
]

comparisons = st.one_of(
    st.tuples(
        st.sampled_from(["sex", "source"]),
        st.sampled_from(["=", "!=", "<", ">="]),
        st.sampled_from(["'F'", "'brats'", "'o''brien'"]),
    ),
    st.tuples(st.just("age"), st.sampled_from(["=", "<>", "<=", ">"]), st.sampled_from(["61", "30.5", "-1"])),
    st.tuples(st.just("study_date"), st.sampled_from(["<", ">"]), st.just("'2001-01-01'")),
    st.tuples(st.sampled_from(["sex", "age"]), st.sampled_from(["is", "is not"]), st.just("null")),
    st.tuples(st.just("sex"), st.just("in"), st.sampled_from(["('F')", "('F', 'M')"])),
).map(" ".join)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
        inner.map(lambda text: f"not ({text})"),
        inner.map(lambda text: f"({text})"),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(conditions)
def test_a_condition_means_what_it_means_in_sql(text: str) -> None:
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE v (volume_key, sex, age REAL, source, study_date)")
        rows = [(v.volume_key, v.sex, v.age, v.source, v.study_date) for v in VOLUMES]
        database.executemany("INSERT INTO v VALUES (?, ?, ?, ?, ?)", rows)
        expected = {row[0] for row in database.execute(f"SELECT volume_key FROM v WHERE {text}")}
    database.close()
    kept = parse_filter(text).keep(VOLUMES)
    assert {v.volume_key for v, keep in zip(VOLUMES, kept, strict=True) if keep} == expected


def test_tags_match_one_by_one() -> None:
    volumes = [VolumeInfo("A", "A", tags=("a", "b")), VolumeInfo("B", "B")]
    assert parse_filter("tag = 'b'").keep(volumes).tolist() == [True, False]
    assert parse_filter("tag != 'b'").keep(volumes).tolist() == [False, True]


def test_an_unknown_column_names_all_columns() -> None:
    with pytest.raises(UsageError, match="no column 'weight'") as caught:
        parse_filter("weight > 3")
    assert all(column in str(caught.value) for column in COLUMNS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "age",
        "age >",
        "age > '60'",
        "sex = F",
        "sex = 'F' or",
        "(sex = 'F'",
        "sex = 'F'; drop table volumes",
        "sex = 'F' -- comment",
        "age > 1 union select 1",
        "sex like '%'",
        'sex = "F"',
        "(" * 900,
        "not " * 400 + "age > 1",
        "sex = 'F' and " * 300,
    ],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    assert "\n" not in str(caught.value)
