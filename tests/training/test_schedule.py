"""A run knows how long it is, and the learning rate is a function of the step and the saved plan."""

from __future__ import annotations

import pytest

from diptych.config import TrainingConfig
from diptych.errors import UsageError
from diptych.runs.run_length import Length, Plan
from diptych.training.step import learning_rate


def test_epochs_become_steps() -> None:
    assert Plan(Length(epochs=2.5), steps_per_epoch=10).steps == 25


@pytest.mark.parametrize("given", [{}, {"steps": 3, "minutes": 1.0}, {"epochs": -1.0}, {"minutes": 0.0}])
def test_impossible_lengths_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Length(**given)  # type: ignore[arg-type]


def walk(plan: Plan, *, seconds_per_step: float, until: int) -> None:
    for step in range(1, until + 1):
        plan.observe(step, seconds_per_step * step)


def test_minutes_become_steps_by_measured_speed() -> None:
    plan = Plan(Length(minutes=10), steps_per_epoch=10)
    walk(plan, seconds_per_step=0.5, until=40)
    assert plan.steps == 1200


def test_minutes_too_few_to_measure_end_the_run() -> None:
    plan = Plan(Length(minutes=0.01), steps_per_epoch=10)
    walk(plan, seconds_per_step=1.0, until=1)
    assert plan.done(1)


def test_plan_survives_a_checkpoint() -> None:
    plan, resumed = (Plan(Length(minutes=10), steps_per_epoch=10) for _ in range(2))
    walk(plan, seconds_per_step=0.5, until=40)
    resumed.restore(plan.state())
    resumed.observe(41, 500.0)
    assert resumed.steps == plan.steps


def test_plan_is_renewed_only_when_speed_changes_much() -> None:
    plan = Plan(Length(minutes=10), steps_per_epoch=10)
    walk(plan, seconds_per_step=0.5, until=100)
    plan.observe(200, 105.0)
    assert not plan.renew(200)
    plan.observe(300, 300.0)
    assert plan.renew(300)
    assert plan.steps == 600


def test_validates_at_the_end_and_some_times_before() -> None:
    plan = Plan(Length(steps=25), steps_per_epoch=10)
    assert [step for step in range(1, 26) if plan.validates(step, every=8)] == [*range(3, 25, 3), 25]


def test_rises_then_falls_to_the_final_fraction() -> None:
    config = TrainingConfig(learning_rate=2.0, warmup_steps=10, final_fraction=0.1)
    rates = [learning_rate(step, 200, config) for step in range(1, 201)]
    assert rates[0] == pytest.approx(0.2)
    assert max(rates) == rates[9] == 2.0
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[-1] == pytest.approx(0.2)


def test_papers_rate_is_constant() -> None:
    config = TrainingConfig(learning_rate=1e-4, warmup_steps=0, schedule="constant")
    assert {learning_rate(step, 50, config) for step in range(1, 51)} == {1e-4}


def test_a_run_ends_when_its_minutes_are_over_whatever_was_planned() -> None:
    plan = Plan(Length(minutes=1), steps_per_epoch=10)
    for step in range(1, 31):
        plan.observe(step, 0.1 * step)
    assert plan.steps is not None
    assert plan.steps > 500
    plan.observe(31, 60.0)  # every step has become slower since
    assert plan.done(31)
