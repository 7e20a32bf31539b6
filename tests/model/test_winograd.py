"""Winograd's convolution equals the plain one, gradients included, and steps aside where it does not fit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from diptych.model import winograd
from diptych.model.winograd import Conv3x3, fits


def a_case(
    *, batch: int = 3, width_in: int = 24, width_out: int = 40, rows: int = 16, columns: int = 24
) -> list[Tensor]:
    """Images, filters and bias."""
    draw = torch.Generator().manual_seed(0)
    shapes = (batch, width_in, rows, columns), (width_out, width_in, 3, 3), (width_out,)
    x, weight, bias = (torch.randn(shape, generator=draw) for shape in shapes)
    return [x, weight / 15, bias]


def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv2d(x, weight, bias, padding=1)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_output_and_gradients_are_those_of_the_plain_convolution(
    threads: int, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    case = [tensor.requires_grad_() for tensor in a_case()]
    x, weight, bias = case
    out = winograd._Winograd.apply(x.contiguous(memory_format=layout), weight, bias)  # type: ignore[no-untyped-call]
    truth = plain(x, weight, bias)
    weights = torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))
    found = [out, *torch.autograd.grad(out, case, weights)]
    for ours, theirs in zip(found, [truth, *torch.autograd.grad(truth, case, weights)], strict=True):
        assert (ours - theirs).norm() < 1e-5 * theirs.norm()


def test_rounding_is_a_few_times_that_of_the_plain_convolution() -> None:
    x, weight, bias = a_case(width_in=128, width_out=64)
    truth = plain(x.double(), weight.double(), bias.double())
    error = (winograd.convolve(x, weight, bias) - truth).norm()
    assert error < 8 * (plain(x, weight, bias) - truth).norm()


def test_an_image_is_convolved_alike_in_any_company() -> None:
    x, weight, bias = a_case(batch=5)
    whole = winograd.convolve(x, weight, bias)
    assert torch.equal(winograd.convolve(x[3:4], weight, bias), whole[3:4])


@pytest.mark.parametrize(
    ("change", "expected"),
    [({}, True), ({"rows": 18}, False), ({"width_in": 12}, False), ({"width_out": 30}, False), ({"batch": 0}, False)],
)
def test_it_is_used_where_it_fits(change: dict[str, int], expected: bool) -> None:
    x, weight, _ = a_case(**change)
    assert fits(x, weight) is expected


def test_doubles_and_autocast_are_left_to_torch() -> None:
    x, weight, _ = a_case()
    assert not fits(x.double(), weight.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert not fits(x, weight)


@pytest.mark.parametrize("rows", [16, 18])
@pytest.mark.parametrize("learning", [True, False])
def test_the_layer_is_a_plain_layer_with_padding(rows: int, learning: bool) -> None:
    layer = Conv3x3(24, 40)
    x = a_case(rows=rows)[0]
    with torch.set_grad_enabled(learning):
        torch.testing.assert_close(layer(x), plain(x, layer.weight, layer.bias), rtol=1e-4, atol=1e-4)
    assert list(layer.state_dict()) == ["weight", "bias"]


@torch.no_grad()
def test_new_weights_are_noticed() -> None:
    layer, x = Conv3x3(24, 40), a_case()[0]
    before = layer(x)
    layer.load_state_dict({"weight": 2 * layer.weight, "bias": 2 * layer.bias})
    torch.testing.assert_close(layer(x), 2 * before)
    layer.weight.zero_()
    torch.testing.assert_close(layer(x), layer.bias.view(1, -1, 1, 1).expand_as(before))
