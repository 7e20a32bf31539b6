"""What did not pay is not tried again at once, and not given up for good."""

from __future__ import annotations

from diptych.search.engine import PAUSE, Habit


def test_a_kind_never_seen_is_tried() -> None:
    assert Habit().tries("kind")


def test_what_paid_is_tried_again() -> None:
    habit = Habit()
    habit.note("kind", paid=True)
    assert habit.tries("kind")


def test_what_did_not_pay_is_tried_again_after_a_pause() -> None:
    habit = Habit()
    habit.note("kind", paid=False)
    assert [habit.tries("kind") for _ in range(PAUSE + 1)] == [False] * PAUSE + [True]


def test_kinds_are_kept_apart() -> None:
    habit = Habit()
    habit.note("kind", paid=False)
    assert habit.tries("other")
