"""The quantiser against brute force, a hand-written update, and itself in two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diptych.errors import TrainingError
from diptych.model import VectorQuantizer
from diptych.model.quantizer import QUIET, kmeans
from tests.model.tiny import TINY

PLAIN = replace(TINY, codebook_start="normal", expire_after=0)


def a_quantizer(*, plain: bool = True) -> VectorQuantizer:
    torch.manual_seed(0)
    return VectorQuantizer(PLAIN if plain else TINY)


def a_grid(batch: int = 3, *, seed: int = 1) -> Tensor:
    """`[B, D, h, w]`, not square."""
    return torch.randn(batch, 8, 4, 6, generator=torch.Generator().manual_seed(seed))


def test_nearest_is_the_nearest_in_image_orientation() -> None:
    quantizer, grid = a_quantizer(), a_grid()
    ids = quantizer.nearest(grid)
    for image in range(3):
        for row in range(4):
            for column in range(6):
                distances = (quantizer.codebook - grid[image, :, row, column]).square().sum(dim=1)
                assert ids[image, row, column] == distances.argmin()


def test_distances_are_single_precision_whatever_surrounds_them() -> None:
    quantizer, grid = a_quantizer(), a_grid()
    with torch.autocast("cpu", torch.bfloat16):
        found = quantizer.nearest(grid)
    assert torch.equal(found, quantizer.nearest(grid))


def test_equal_codes_give_the_smaller_id() -> None:
    quantizer = a_quantizer()
    quantizer.codebook[7] = quantizer.codebook[3]
    assert quantizer.nearest(quantizer.codebook[7].view(1, 8, 1, 1)).item() == 3


def test_quantising_looked_up_codes_gives_their_ids_back() -> None:
    quantizer = a_quantizer()
    ids = torch.randint(16, (3, 4, 6), generator=torch.Generator().manual_seed(2))
    assert torch.equal(quantizer.nearest(quantizer.lookup(ids)), ids)


def test_code_is_the_looked_up_vector() -> None:
    quantizer = a_quantizer()
    found = quantizer(a_grid())
    torch.testing.assert_close(found.code, quantizer.lookup(found.ids))


def test_gradient_passes_straight_through() -> None:
    grid = a_grid().requires_grad_()
    weights = a_grid(seed=3)
    (a_quantizer()(grid).code * weights).sum().backward()
    torch.testing.assert_close(grid.grad, weights)


def test_error_is_the_commitment_term() -> None:
    quantizer, grid = a_quantizer(), a_grid().requires_grad_()
    found = quantizer(grid)
    (gradient,) = torch.autograd.grad(found.error, grid)
    difference = (grid - quantizer.lookup(found.ids)).detach()
    torch.testing.assert_close(found.error.item(), difference.square().mean().item())
    torch.testing.assert_close(gradient, 2 * difference / difference.numel())


def test_update_equals_the_moving_averages_by_hand() -> None:
    quantizer = a_quantizer()
    codebook, grid = quantizer.codebook.clone(), a_grid()
    ids = quantizer(grid).ids
    quantizer.update()
    counts = torch.tensor([0.01 * int((ids == code).sum()) for code in range(16)])
    smoothed = (counts + 1e-5) / (counts.sum() + 16 * 1e-5) * counts.sum()
    for code in range(16):
        chosen = grid.permute(0, 2, 3, 1)[ids == code].sum(dim=0)
        expected = (0.99 * codebook[code] + 0.01 * chosen) / smoothed[code]
        torch.testing.assert_close(quantizer.codebook[code], expected, rtol=1e-4, atol=1e-4)


def test_two_micro_batches_update_like_one_batch() -> None:
    whole, halves = a_quantizer(), a_quantizer()
    grid = a_grid(4)
    whole(grid)
    halves(grid[:2])
    halves(grid[2:])
    whole.update()
    halves.update()
    torch.testing.assert_close(whole.codebook, halves.codebook)


def test_evaluation_leaves_the_codebook_alone() -> None:
    quantizer = a_quantizer().eval()
    before = quantizer.codebook.clone()
    quantizer(a_grid())
    quantizer.update()
    assert torch.equal(quantizer.codebook, before)


def test_dead_codes_come_back_to_life_with_fresh_averages() -> None:
    quantizer = a_quantizer(plain=False)
    quantizer.counts.fill_(1.0)
    quantizer.idle[5] = quantizer.config.expire_after - 1
    quantizer.codebook[5] = quantizer.sums[5] = 1e6
    grid = a_grid()
    quantizer(grid)
    quantizer.update()
    assert (grid.permute(0, 2, 3, 1).reshape(-1, 8) == quantizer.codebook[5]).all(dim=1).any()
    torch.testing.assert_close(quantizer.sums[5] / quantizer.counts[5], quantizer.codebook[5])


def test_a_code_in_use_is_never_replaced() -> None:
    quantizer = a_quantizer(plain=False)
    quantizer.idle.fill_(quantizer.config.expire_after - 1)
    grid = a_grid()
    used = quantizer(grid).ids.unique()
    quantizer.update()
    assert not quantizer.idle[used].any()


def test_the_plain_variant_lets_codes_die() -> None:
    quantizer = a_quantizer()
    quantizer.codebook[5] = quantizer.sums[5] = 1e6
    quantizer(a_grid())
    quantizer.update()
    assert quantizer.codebook[5].abs().min() > 1e6


def test_kmeans_start_finds_well_separated_clusters() -> None:
    centres = 10 * torch.randn(16, 8, generator=torch.Generator().manual_seed(4))
    rows = centres.repeat(20, 1) + 0.01 * torch.randn(320, 8, generator=torch.Generator().manual_seed(5))
    found = kmeans(rows, 16)
    assert torch.cdist(centres, found).min(dim=1).values.max() < 0.1


def test_kmeans_start_needs_enough_vectors() -> None:
    with pytest.raises(TrainingError, match="10 different vectors cannot give 16 codes"):
        kmeans(torch.randn(10, 8), 16)


def test_kmeans_start_does_not_count_equal_vectors_twice() -> None:
    with pytest.raises(TrainingError, match="10 different vectors"):
        kmeans(torch.randn(10, 8).repeat(5, 1), 16)


def test_start_lowers_the_error() -> None:
    quantizer, grid = a_quantizer(plain=False), a_grid(8)
    before = quantizer(grid).error
    quantizer.start([grid])
    assert quantizer(grid).error < 0.8 * before


WORKER = """
import sys, torch, torch.distributed as dist
from tests.model.test_quantizer import a_grid, a_quantizer
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
torch.set_num_threads(1)
quantizer = a_quantizer(plain=False)
grid = a_grid(6)
share = grid[2:] if rank == 0 else grid[:2]
quantizer.start([share])
quantizer.counts[5] = 0.0
quantizer(share)
quantizer.update()
torch.save(quantizer.codebook, f"{folder}/{rank}.pt")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_update_like_one(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(rank), str(tmp_path)], env=environment) for rank in (0, 1)
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    alone = a_quantizer(plain=False)
    alone.start([a_grid(6)])
    alone.counts[5] = 0.0
    alone(a_grid(6))
    alone.update()
    for rank in (0, 1):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt", weights_only=True), alone.codebook)


def a_quiet_quantizer() -> VectorQuantizer:
    torch.manual_seed(0)
    quantizer = VectorQuantizer(replace(TINY, quiet_code=True, expire_after=2), quiet=True)
    quantizer.counts.fill_(1)
    return quantizer


def test_the_quiet_code_never_moves_and_only_living_cells_move_the_others() -> None:
    quantizer, grid = a_quiet_quantizer(), a_grid()
    living = torch.zeros(3, 4, 6, dtype=torch.bool)
    living[0, 1, 2] = True
    for _ in range(5):
        quantizer(grid, living)
        quantizer.update()
    assert torch.equal(quantizer.codebook[QUIET], torch.zeros(8))
    row = grid[0, :, 1, 2]
    replaced = [code for code in quantizer.codebook[1:] if torch.allclose(code, row, atol=1e-3)]
    assert len(replaced) == 15  # the code it used lies there, the others died and were replaced by it


def test_cells_without_a_voice_get_the_quiet_code_wherever_they_lie() -> None:
    quantizer, grid = a_quiet_quantizer(), a_grid()
    found = quantizer(grid)
    assert quantizer.gate is not None
    assert found.voice is not None
    torch.testing.assert_close(found.voice[2, 3, 4], quantizer.gate(grid[2, :, 3, 4])[0])
    assert torch.equal(found.voice <= 0, found.ids == QUIET)
    assert 0 < int((found.ids == QUIET).sum()) < found.ids.numel()
    loud = (quantizer.codebook[1:] - grid[..., None].movedim(1, -1)).square().sum(dim=-1).argmin(dim=-1) + 1
    assert torch.equal(found.ids[found.voice > 0], loud[found.voice > 0])
    assert torch.equal(quantizer.nearest(grid), found.ids)
    torch.testing.assert_close(found.code.detach(), quantizer.lookup(found.ids))


def test_the_gate_feels_what_its_cells_would_say() -> None:
    quantizer, grid = a_quiet_quantizer(), a_grid().requires_grad_()
    found = quantizer(grid)
    torch.autograd.backward(found.code[found.ids.unsqueeze(1).expand_as(found.code) == QUIET].sum())
    assert quantizer.gate is not None
    assert quantizer.gate.weight.grad is not None
    assert quantizer.gate.weight.grad.abs().min() > 0


def test_falling_quiet_tells_living_cells_from_others() -> None:
    torch.manual_seed(0)
    quantizer = VectorQuantizer(replace(TINY, quiet_code=True), quiet=True)
    grid, living = torch.randn(4, 8, 8, 8), torch.rand(4, 8, 8) < 0.2
    grid[:, 3] += 8 * living
    quantizer.fall_quiet([grid], [living])
    healthy = grid.movedim(1, -1)[~living]
    torch.testing.assert_close(quantizer.codebook[QUIET], healthy.mean(dim=0))
    assert torch.equal(quantizer.nearest(grid) != QUIET, living)
