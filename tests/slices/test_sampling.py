"""Matched sampling: balanced, matched in height, reproducible, the same however it is divided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from diptych.errors import UsageError
from diptych.slices import MatchedSampler, SliceDataset, load_batches
from diptych.slices.augment import ROBUST_AUGMENTATION
from diptych.slices.dataset import SliceTable
from diptych.slices.sampling import WINDOW
from tests.slices.making import make_store, make_volume


def make_table(patients: int = 30, slices: int = 50, seed: int = 0) -> SliceTable:
    """Lesions sit in the upper middle of the brain, as gliomas do."""
    rng = np.random.default_rng(seed)
    position = np.tile(np.linspace(0, 1, slices, dtype=np.float32), patients)
    middle = np.repeat(rng.normal(0.55, 0.1, patients), slices)
    reach = np.repeat(rng.uniform(0.05, 0.25, patients), slices)
    return SliceTable(
        patient=np.repeat(np.arange(patients), slices),
        row=np.tile(np.arange(slices), patients),
        position=position,
        diseased=np.abs(position - middle) < reach,
    )


def draws(sampler: MatchedSampler, steps: range) -> NDArray[np.int64]:
    return np.concatenate([sampler.draw(step).indices for step in steps])


def test_each_pair_has_one_healthy_and_one_diseased_slice() -> None:
    table = make_table()
    drawn = draws(MatchedSampler(table, batch_size=16, seed=0), range(50)).reshape(-1, 2)
    assert np.all(table.diseased[drawn].sum(axis=1) == 1)


def test_pairs_are_near_in_position_and_from_two_patients() -> None:
    table = make_table()
    first, second = draws(MatchedSampler(table, batch_size=16, seed=0), range(100)).reshape(-1, 2).T
    gap = np.abs(table.position[first] - table.position[second])
    assert np.median(gap) <= WINDOW
    assert np.all(table.patient[first] != table.patient[second])


def test_matching_hides_health_in_position() -> None:
    table = make_table()
    height = np.abs(table.position - 0.55)

    def auc(diseased: NDArray[np.int64], healthy: NDArray[np.int64]) -> float:
        return float((height[diseased][:, None] < height[healthy][None]).mean())

    drawn = draws(MatchedSampler(table, batch_size=16, seed=0), range(100))
    before = auc(np.flatnonzero(table.diseased), np.flatnonzero(~table.diseased))
    after = auc(drawn[table.diseased[drawn]], drawn[~table.diseased[drawn]])
    assert before > 0.85
    assert after < 0.65


def test_without_matching_an_epoch_shows_every_slice_once() -> None:
    table = make_table()
    sampler = MatchedSampler(table, batch_size=16, seed=0, match_position=False)
    drawn = draws(sampler, range(sampler.steps_per_epoch))[: len(table.row)]
    assert sorted(drawn) == list(range(len(table.row)))


def test_every_slice_is_drawn_within_two_epochs() -> None:
    table = make_table()
    sampler = MatchedSampler(table, batch_size=16, seed=0)
    assert set(draws(sampler, range(2 * sampler.steps_per_epoch))) == set(range(len(table.row)))


def test_partners_are_those_within_the_window_or_the_nearest() -> None:
    table = make_table()
    sampler = MatchedSampler(table, batch_size=2, seed=0)
    for position in (0.0, 0.31, 0.5, 1.0):
        fewest = sampler._kinds[1].fewest
        near = set(sampler._kinds[1].near(position).tolist())
        diseased = np.flatnonzero(table.diseased)
        gap = np.abs(table.position[diseased] - position)
        within = set(diseased[gap < WINDOW].tolist())
        if len(within) >= fewest:
            assert near == within
        else:
            assert len(near) == fewest
            assert gap[np.isin(diseased, list(near))].max() <= np.sort(gap)[fewest - 1]


def test_a_step_is_a_function_of_seed_and_step() -> None:
    table = make_table()
    forward, straight = (MatchedSampler(table, batch_size=16, seed=1) for _ in range(2))
    for step in range(200):
        forward.draw(step)
    np.testing.assert_array_equal(forward.draw(123).indices, straight.draw(123).indices)
    np.testing.assert_array_equal(forward.draw(123).seeds, straight.draw(123).seeds)


def test_another_seed_draws_something_else() -> None:
    table = make_table()
    one, two = (MatchedSampler(table, batch_size=16, seed=seed).draw(0) for seed in (1, 2))
    assert one.indices.tolist() != two.indices.tolist()
    assert not set(one.seeds) & set(two.seeds)


@pytest.mark.parametrize("one_kind", [False, True], ids=["matched", "one kind only"])
def test_processes_share_one_global_batch(one_kind: bool) -> None:
    table = make_table()
    if one_kind:
        table.diseased[:] = False
    whole = MatchedSampler(table, batch_size=24, seed=0).draw(7)
    parts = [MatchedSampler(table, batch_size=24, seed=0, rank=rank, world_size=3).draw(7) for rank in range(3)]
    assert np.concatenate([part.indices for part in parts]).tolist() == whole.indices.tolist()
    assert np.concatenate([part.seeds for part in parts]).tolist() == whole.seeds.tolist()


def test_parts_of_a_draw_stay_balanced() -> None:
    table = make_table()
    draw = MatchedSampler(table, batch_size=22, seed=0).draw(0)
    assert [len(part) for part in draw.parts(8)] == [8, 8, 6]
    assert all(table.diseased[part.indices].mean() == 0.5 for part in draw.parts(8))


@pytest.mark.parametrize("diseased", [False, True])
def test_slices_of_one_kind_are_shuffled_and_it_is_said(diseased: bool) -> None:
    table = make_table(patients=4, slices=8)
    table.diseased[:] = diseased
    sampler = MatchedSampler(table, batch_size=8, seed=0)
    assert not sampler.paired
    assert sorted(draws(sampler, range(sampler.steps_per_epoch))) == list(range(32))


def test_one_patient_is_paired_with_itself() -> None:
    table = make_table(patients=1)
    drawn = MatchedSampler(table, batch_size=4, seed=0).draw(0).indices
    assert table.diseased[drawn].sum() == 2


@pytest.mark.parametrize(("batch_size", "world_size"), [(7, 1), (0, 1), (6, 2)])
def test_batches_that_cannot_be_halved_are_refused(batch_size: int, world_size: int) -> None:
    with pytest.raises(UsageError, match="must be a multiple of"):
        MatchedSampler(make_table(), batch_size=batch_size, seed=0, world_size=world_size)


def test_no_slices_are_refused() -> None:
    with pytest.raises(UsageError, match="no slices"):
        MatchedSampler(make_table(patients=0), batch_size=2, seed=0)


@pytest.mark.slow
def test_workers_load_the_same_batches(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [make_volume(f"p{i}", seed=i) for i in range(4)])
    dataset = SliceDataset(store, augmentation=ROBUST_AUGMENTATION)
    sampler = MatchedSampler(dataset.table, batch_size=8, seed=0)
    alone = list(load_batches(dataset, sampler, range(5, 9)))
    helped = list(load_batches(dataset, sampler, range(5, 9), workers=2))
    assert all(torch.equal(one.image, two.image) for one, two in zip(alone, helped, strict=True))
    assert [batch.index.tolist() for batch in alone] == [sampler.draw(step).indices.tolist() for step in range(5, 9)]
