"""Several processes training one network: who am I, sum this, gather that. With one process all of it is free.

Knows nothing about networks. Gradients are averaged by hand after the backward passes instead of through
`DistributedDataParallel`: the critic's gradient penalty is a second derivative, the main loss comes in several
backward passes, and one explicit all-reduce is easier to reason about than hooks inside either.

Started by `torchrun`, which sets RANK, WORLD_SIZE and LOCAL_RANK. Every process must hold the same weights and
draw the same random numbers; both follow from starting alike and averaging the gradients.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Workers:
    """This process among those that train together."""

    rank: int
    count: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and draws progress."""
        return self.rank == 0

    def average(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its mean over processes, in place, with one message."""
        if self.count == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.count
        for tensor, mean in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(mean.view(tensor.shape))

    def gather(self, tensor: Tensor) -> Tensor:
        """Rows of all processes, in the order of their ranks; every process must bring equally many."""
        if self.count == 1:
            return tensor
        parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self.count)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.count == 1:
            return flag
        votes = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(votes, dist.ReduceOp.MAX)
        return bool(votes.item())

    def same(self, value: float) -> float:
        """The main process's value, so that all processes decide alike."""
        if self.count == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, src=0)
        return float(shared)

    def wait(self) -> None:
        """Go on when all processes have come here."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def start_workers() -> Iterator[Workers]:
    """Join the processes that torchrun started, or be the only one."""
    rank, count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if count == 1:
        yield Workers(rank=0, count=1, device=device)
        return
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Workers(rank=rank, count=count, device=device)
    finally:
        dist.destroy_process_group()
