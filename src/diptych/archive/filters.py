"""Which volumes: conditions on metadata such as `sex = 'F' and age > 60`, written as in SQL.

Knows nothing about SQLite: a condition is parsed here and asked of the checked metadata in memory, so no text of a
user ever reaches the database, and a damaged column cannot change an answer.

    condition   =  term (or term)*
    term        =  factor (and factor)*
    factor      =  not factor | ( condition ) | column comparison
    comparison  =  = != < <= > >= value  |  in (value, …)  |  is null  |  is not null

A comparison with an unknown value is unknown, and only what is true is kept. `tag = 'followup'` holds when one of a
volume's tags is that, `tag != 'followup'` when none is.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.archive.records import VolumeInfo
from diptych.errors import UsageError
from diptych.volumes.layout import one_line

COLUMNS: dict[str, type] = {
    "volume_key": str,
    "patient_key": str,
    "study_date": str,
    "sex": str,
    "age": float,
    "source": str,
    "tag": str,
    "lesion_source": str,
}
"""Columns a condition may name, and the type their values have."""

Verdict = bool | None
"""True, false, or unknown."""
Test = Callable[[VolumeInfo], Verdict]

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

MAX_LENGTH = 2000
"""Characters of a condition."""
MAX_DEPTH = 50
"""Brackets and `not`s inside one another."""

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|!=|<>|[=<>(),]))"
)


@dataclass(frozen=True)
class MetadataFilter:
    """A parsed condition; `keep` asks it of volumes."""

    text: str
    test: Test

    def keep(self, volumes: Iterable[VolumeInfo]) -> NDArray[np.bool_]:
        """Whether the condition is true of each volume, `[V]`."""
        return np.array([self.test(info) is True for info in volumes], dtype=np.bool_)


def parse_filter(text: str) -> MetadataFilter:
    """Parse a condition; an error names what was expected and where.

    >>> young = parse_filter("age < 50 and not sex = 'M'")
    >>> young.keep([VolumeInfo("A", "A", sex="F", age=40.0), VolumeInfo("B", "B", sex="F")]).tolist()
    [True, False]
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(
            f"filter of {len(text)} characters: at most {MAX_LENGTH} are read; list keys in a file instead"
        )
    parser = _Parser(text)
    test = parser.condition()
    if parser.tokens:
        parser.fail("'and', 'or' or the end")
    return MetadataFilter(text, test)


class _Parser:
    """Reads tokens from left to right; one method per line of the grammar above."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.depth = 0

    def condition(self) -> Test:
        tests = [self.term()]
        while self.accept("or"):
            tests.append(self.term())
        return tests[0] if len(tests) == 1 else lambda info: _any([test(info) for test in tests])

    def term(self) -> Test:
        tests = [self.factor()]
        while self.accept("and"):
            tests.append(self.factor())
        return tests[0] if len(tests) == 1 else lambda info: _not(_any([_not(test(info)) for test in tests]))

    def factor(self) -> Test:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UsageError(f"filter {self.text[:40]!r}…: is more than {MAX_DEPTH} levels deep; write it flatter")
        if self.accept("not"):
            inner = self.factor()
            test: Test = lambda info: _not(inner(info))  # noqa: E731 - every rule of the grammar ends in a lambda
        elif self.accept("("):
            test = self.condition()
            self.expect(")")
        else:
            test = self.comparison()
        self.depth -= 1
        return test

    def comparison(self) -> Test:
        kind, column = self.next("a column")
        if kind != "word" or column not in COLUMNS:
            raise UsageError(f"filter {self.text!r}: no column {column!r}; there are {', '.join(COLUMNS)}")
        if self.accept("is"):
            negated = self.accept("not")
            self.expect("null")
            return lambda info: bool(_values(info, column)) is negated
        if self.accept("in"):
            return self.membership(column)
        _, sign = self.next("a comparison")
        if sign not in COMPARISONS:
            self.fail("= != < <= > >= in is", found=sign)
        wanted = self.value(column)
        if sign in ("!=", "<>"):
            return lambda info: _not(_holds(info, column, lambda value: value == wanted))
        compare = COMPARISONS[sign]
        return lambda info: _holds(info, column, lambda value: compare(value, wanted))

    def membership(self, column: str) -> Test:
        self.expect("(")
        wanted = {self.value(column)}
        while self.accept(","):
            wanted.add(self.value(column))
        self.expect(")")
        return lambda info: _holds(info, column, wanted.__contains__)

    def value(self, column: str) -> str | float:
        kind, token = self.next("a value")
        if COLUMNS[column] is float and kind == "number":
            return float(token)
        if COLUMNS[column] is str and kind == "text":
            return token[1:-1].replace("''", "'")
        kind_wanted = "a number" if COLUMNS[column] is float else "text in 'single quotes'"
        raise UsageError(f"filter {self.text!r}: {column} is compared with {kind_wanted}, not {one_line(token[:60])}")

    def accept(self, word: str) -> bool:
        if self.tokens and self.tokens[0][0] != "text" and self.tokens[0][1].lower() == word:
            self.tokens.pop(0)
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.accept(word):
            self.fail(f"'{word}'")

    def next(self, what: str) -> tuple[str, str]:
        if not self.tokens:
            self.fail(what)
        return self.tokens.pop(0)

    def fail(self, expected: str, *, found: str | None = None) -> None:
        found = found or (self.tokens[0][1] if self.tokens else "the end")
        raise UsageError(
            f"filter {self.text!r}: expected {expected}, found {one_line(found[:60])}; example: sex = 'F' and age > 60"
        )


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise UsageError(
                f"filter {text!r}: cannot read {text[place:].strip()[:20]!r}; text stands in 'single quotes'"
            )
        tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
        place = match.end()
    return tokens


def _values(info: VolumeInfo, column: str) -> tuple[Any, ...]:
    """What a volume has in a column: nothing when unknown."""
    if column == "tag":
        return info.tags
    value = getattr(info, column)
    return () if value is None else (value,)


def _holds(info: VolumeInfo, column: str, test: Callable[[Any], bool]) -> Verdict:
    values = _values(info, column)
    if not values and column != "tag":
        return None
    return any(test(value) for value in values)


def _not(verdict: Verdict) -> Verdict:
    return None if verdict is None else not verdict


def _any(verdicts: list[Verdict]) -> Verdict:
    """True beats unknown beats false."""
    return True if True in verdicts else None if None in verdicts else False
