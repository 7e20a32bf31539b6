"""GroupNorm and LeakyReLU in one go equal torch's two, gradients included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.model.cpu.fused_norm import normalise


def a_norm(width: int, *, affine: bool = True) -> nn.GroupNorm:
    torch.manual_seed(0)
    norm = nn.GroupNorm(4, width, affine=affine)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm


def an_image(width: int, *, batch: int = 3) -> Tensor:
    """Not square, with a mean that is large beside its spread."""
    return 3 + torch.randn(batch, width, 10, 14, generator=torch.Generator().manual_seed(1))


def gradients(out: Tensor, x: Tensor, norm: nn.GroupNorm) -> list[Tensor]:
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    return list(torch.autograd.grad((out * weights).sum(), [x, *norm.parameters()]))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [8, 12, 40])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_output_and_gradients_are_those_of_torch(
    width: int, layout: torch.memory_format, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    norm, x = a_norm(width), an_image(width).contiguous(memory_format=layout).requires_grad_()
    ours, plain = normalise(norm, x, slope=0.2), F.leaky_relu(norm(x), 0.2)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients(ours, x, norm), gradients(plain, x, norm), rtol=1e-4, atol=1e-4)


def test_without_slope_and_affine_it_is_a_plain_norm() -> None:
    norm, x = a_norm(12, affine=False), an_image(12).requires_grad_()
    ours, plain = normalise(norm, x), norm(x)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients(ours, x, norm), gradients(plain, x, norm), rtol=1e-4, atol=1e-4)


def test_an_image_is_normalised_alike_in_any_company() -> None:
    norm, x = a_norm(12), an_image(12, batch=5)
    assert torch.equal(normalise(norm, x[3:4], slope=0.2), normalise(norm, x, slope=0.2)[3:4])


def test_doubles_are_left_to_torch() -> None:
    norm, x = a_norm(12).double(), an_image(12).double()
    assert torch.equal(normalise(norm, x, slope=0.2), F.leaky_relu(norm(x), 0.2))
