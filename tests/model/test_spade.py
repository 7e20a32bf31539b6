"""SPADE in tiles equals SPADE evaluated plainly at every pixel, gradients included."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from diptych.model.blocks import LesionTiles, Spade


def plain_spade(spade: Spade, x: Tensor, level_map: Tensor) -> Tensor:
    """The definition: pad the map, convolve it everywhere, modulate every pixel."""
    hidden = F.relu(spade.hidden(F.pad(level_map, (2, 2, 2, 2))))
    gamma, beta = spade.scale_and_shift(hidden).chunk(2, dim=1)
    out: Tensor = spade.norm(x) * (1 + gamma) + beta
    return out


def a_spade(norm: Literal["group", "batch"] = "group") -> Spade:
    torch.manual_seed(0)
    spade = Spade(12, 3, norm=norm)
    for parameter in spade.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return spade


def a_map(*, rows: int = 16, columns: int = 24) -> Tensor:
    """A lesion inside the first image, one in the corner of the second, none in the third."""
    level_map = torch.zeros(3, 3, rows, columns)
    level_map[0, :, 7:10, 9:15] = torch.rand(3, 3, 6)
    level_map[1, :, :2, :3] = 0.5
    return level_map


@pytest.mark.parametrize("columns", [24, 20, 18])
def test_tiles_equal_plain_evaluation(columns: int) -> None:
    spade, level_map = a_spade(), a_map(columns=columns)
    x = torch.randn(3, 12, 16, columns)
    torch.testing.assert_close(spade(x, LesionTiles.cut(level_map)), plain_spade(spade, x, level_map))


def test_images_beyond_the_map_have_the_null_condition() -> None:
    spade, level_map = a_spade(), a_map()
    x = torch.randn(5, 12, 16, 24)
    whole_map = torch.cat([level_map, torch.zeros(2, 3, 16, 24)])
    torch.testing.assert_close(spade(x, LesionTiles.cut(level_map)), plain_spade(spade, x, whole_map))


def test_null_condition_is_exact_up_to_the_border() -> None:
    spade = a_spade()
    x = torch.randn(2, 12, 16, 24)
    nothing = torch.zeros(2, 3, 16, 24)
    torch.testing.assert_close(spade(x, LesionTiles.cut(nothing[:0])), plain_spade(spade, x, nothing))


def test_gradients_equal_those_of_plain_evaluation() -> None:
    spade, level_map = a_spade(), a_map()
    x = torch.randn(3, 12, 16, 24, requires_grad=True)
    weights = torch.randn(3, 12, 16, 24)
    wanted = [x, *spade.parameters()]
    fast = torch.autograd.grad((spade(x, LesionTiles.cut(level_map)) * weights).sum(), wanted)
    plain = torch.autograd.grad((plain_spade(spade, x, level_map) * weights).sum(), wanted)
    torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-4)


def test_batch_statistics_are_those_of_one_condition_at_a_time() -> None:
    spade = a_spade("batch")
    level_map = a_map()
    x = torch.randn(3, 12, 16, 24)
    both = spade(torch.cat([x, 2 * x + 1]), LesionTiles.cut(level_map))
    separate = [plain_spade(spade, x, level_map), plain_spade(spade, 2 * x + 1, torch.zeros_like(level_map))]
    torch.testing.assert_close(both, torch.cat(separate))


def test_few_tiles_are_cut_for_a_small_lesion() -> None:
    level_map = torch.zeros(4, 3, 64, 64)
    level_map[0, 0, 20, 20] = 1.0
    assert len(LesionTiles.cut(level_map).patches) == 1
