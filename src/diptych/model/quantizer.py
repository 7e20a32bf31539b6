"""Vector quantisation: each vector of a latent grid becomes the id of its nearest code (section 3.1.2).

The codebook is a buffer trained by moving averages, never by gradients (van den Oord et al., 2017; Kaiser et al.,
2018). A forward pass in training mode only remembers what it saw; `update` then moves the codebook, once per
optimiser step, over all accumulated batches and all processes. Knows nothing about images.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from scipy.cluster.vq import kmeans2
from torch import Tensor, nn

from diptych.config import ModelConfig
from diptych.errors import TrainingError

MERGED_BELOW = 0.05
"""A code of a finished network is merged into the quiet one when fewer of its cells than this hold a lesion."""


@dataclass(frozen=True)
class Quantized:
    """A latent grid after quantisation."""

    ids: Tensor
    """Which code stands in each cell, int64 `[B, h, w]`, rows and columns as in the image."""
    code: Tensor
    """The code vectors `[B, D, h, w]` (z_q); gradients pass straight through to the encoder."""
    error: Tensor
    """Mean squared distance to the encoder's output, a scalar: the latent loss."""
    encoded: Tensor
    """The encoder's output `[B, D, h, w]` (z_e)."""
    quietness: Tensor | None = None
    """How much nearer the quiet code is than any other, as a difference of squared distances `[B, h, w]`; only in
    training, and only where there is a quiet code."""


QUIET = 0
"""The id of the quiet code, where a codebook has one."""


class VectorQuantizer(nn.Module):
    """K codes of width D with their moving averages.

    With a quiet code, code 0 never moves, and the others are moved and replaced by living cells alone: those that the
    caller names as holding something worth a code.

    With `config.codebook_start == "normal"` and no expiry this is the paper's plain variant. Its counts start at
    zero, so codes never chosen are divided by almost nothing, fly far away and fade to zero vectors over thousands of
    updates: what the paper calls compactness.
    """

    codebook: Tensor
    counts: Tensor
    sums: Tensor
    idle: Tensor
    updates: Tensor

    def __init__(self, config: ModelConfig, *, quiet: bool = False) -> None:
        super().__init__()
        self.config = config
        self.quiet = quiet
        codebook = torch.randn(config.codebook_size, config.code_width)
        if quiet:
            codebook[QUIET] = 0
        self.register_buffer("codebook", codebook)
        self.register_buffer("counts", torch.zeros(config.codebook_size))
        self.register_buffer("sums", codebook.clone())
        self.register_buffer("idle", torch.zeros(config.codebook_size, dtype=torch.int64))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self._seen: list[tuple[Tensor, Tensor]] = []

    def forward(self, encoded: Tensor, living: Tensor | None = None) -> Quantized:
        """Quantise `[B, D, h, w]`; `living` `[B, h, w]` says which cells may move a codebook with a quiet code."""
        encoded = encoded.float()  # [B, D, h, w]
        ids = self.nearest(encoded.detach())  # [B, h, w]
        code = self.lookup(ids)  # [B, D, h, w]
        error = F.mse_loss(encoded, code)
        quietness = None
        if self.training:
            self._seen.append(self._worth_learning(encoded.detach(), ids, living))
            quietness = self._quietness(encoded) if self.quiet else None
        through = encoded + (code - encoded).detach()
        return Quantized(ids=ids, code=through, error=error, encoded=encoded, quietness=quietness)

    def _worth_learning(self, encoded: Tensor, ids: Tensor, living: Tensor | None) -> tuple[Tensor, Tensor]:
        """Rows `[N, D]` and ids `[N]` that move the codebook; the quiet code learns from none."""
        rows, flat = _as_rows(encoded), ids.flatten()
        if not self.quiet:
            return rows, flat
        chosen = flat != QUIET if living is None else living.flatten()
        rows = rows[chosen]
        return rows, self._nearest_other(rows) + 1

    def _nearest_other(self, rows: Tensor) -> Tensor:
        """Which code but the quiet one is nearest to each row, counted from 0: what a living cell would use."""
        others = self.codebook[QUIET + 1 :]
        return torch.addmm(others.square().sum(dim=1), rows, others.T, alpha=-2.0).argmin(dim=1)

    def _quietness(self, encoded: Tensor) -> Tensor:
        batch, _, height, width = encoded.shape
        rows = _as_rows(encoded)
        other = self.codebook[QUIET + 1 :][self._nearest_other(rows.detach())]
        difference = (rows - other).square().sum(dim=1) - (rows - self.codebook[QUIET]).square().sum(dim=1)
        return difference.view(batch, height, width)

    def nearest(self, encoded: Tensor) -> Tensor:
        """Ids `[B, h, w]` of the codes nearest to a grid `[B, D, h, w]`; ties go to the smaller id.

        Distances are single precision whatever the pass around them is: bfloat16 would choose other ids in 3-5 %.
        """
        batch, _, rows, columns = encoded.shape
        squared_norms = self.codebook.square().sum(dim=1)
        with torch.autocast(encoded.device.type, enabled=False):
            products = _as_rows(encoded.float())
            distances = torch.addmm(squared_norms, products, self.codebook.T, alpha=-2.0)  # less |z|²
        return distances.argmin(dim=1).view(batch, rows, columns)

    def lookup(self, ids: Tensor) -> Tensor:
        """The code vectors `[B, D, h, w]` of a grid of ids `[B, h, w]`."""
        return F.embedding(ids, self.codebook).permute(0, 3, 1, 2)

    @torch.no_grad()
    def start(self, batches: list[Tensor]) -> None:
        """Begin with k-means centres of encoded batches `[B, D, h, w]`, as if each code had been used evenly."""
        rows = _gather_rows(torch.cat([_as_rows(encoded.float()) for encoded in batches]))
        centres = kmeans(rows, self.config.codebook_size)
        share = len(rows) / len(batches) / self.config.codebook_size
        self.codebook.copy_(centres)
        self.counts.fill_(share)
        self.sums.copy_(centres * share)

    @torch.no_grad()
    def fall_quiet(self, batches: list[Tensor], living: list[Tensor]) -> None:
        """Give a trained codebook its quiet code: the mean of cells that hold nothing, seen in `[B, D, h, w]` batches.

        Codes that stand for less than `MERGED_BELOW` living cells are merged into it; living cells take their places.
        """
        rows = torch.cat([_as_rows(encoded.float()) for encoded in batches])
        alive = torch.cat([cells.flatten() for cells in living])
        ids = torch.addmm(self.codebook.square().sum(dim=1), rows, self.codebook.T, alpha=-2.0).argmin(dim=1)
        cells, held = (torch.bincount(chosen, minlength=len(self.counts)) for chosen in (ids, ids[alive]))
        merged = held < MERGED_BELOW * cells.clamp_min(1)
        merged[QUIET] = True
        quiet, lesion = rows[~alive].mean(dim=0), rows[alive]
        share = len(lesion) / len(batches) / len(self.counts)
        places = torch.randint(len(lesion), (int(merged.sum()),), generator=torch.Generator().manual_seed(0))
        self.codebook[merged] = lesion[places.to(lesion.device)]
        self.codebook[QUIET] = quiet
        self.counts.fill_(share)
        self.sums.copy_(self.codebook * share)
        self.idle.zero_()

    @torch.no_grad()
    def update(self) -> None:
        """Move the codebook towards everything seen since the last update, then replace codes that died."""
        if not self._seen:
            return
        rows = torch.cat([rows for rows, _ in self._seen])  # [N, D]
        ids = torch.cat([ids for _, ids in self._seen])  # [N]
        self._seen.clear()
        decay = self.config.ema_decay
        chosen = _all_reduce(torch.bincount(ids, minlength=len(self.counts)).float())
        self.idle.add_(1).masked_fill_(chosen > 0, 0)
        self.counts.lerp_(chosen, 1 - decay)
        self.sums.lerp_(_all_reduce(torch.zeros_like(self.sums).index_add_(0, ids, rows)), 1 - decay)
        quiet = self.codebook[QUIET].clone()
        self.codebook.copy_(self.sums / self._smoothed_counts().unsqueeze(1))
        self.updates += 1
        if self.quiet:
            self.codebook[QUIET], self.idle[QUIET] = quiet, 0
        if self.config.expire_after > 0:
            self._replace_dead(rows)

    def forget(self) -> None:
        """Drop what was seen since the last update, for a step that is given up."""
        self._seen.clear()

    def _smoothed_counts(self) -> Tensor:
        total, epsilon = self.counts.sum(), self.config.ema_epsilon
        return (self.counts + epsilon) / (total + len(self.counts) * epsilon) * total

    def _replace_dead(self, rows: Tensor) -> None:
        """Put random recent vectors in place of dead codes and reset their averages, alike on every process.

        Dead is told by idle updates, not by moving counts: those take hundreds of updates to fade, and the codes of
        the k-means start die together within thirty, when the encoder begins to learn.
        """
        even_share = self.counts.sum() / len(self.counts)
        dead = (self.idle >= self.config.expire_after).nonzero().flatten()
        rows = _gather_rows(rows)
        if len(dead) == 0 or len(rows) == 0:
            return
        generator = torch.Generator().manual_seed(int(self.updates))
        chosen = rows[torch.randint(len(rows), (len(dead),), generator=generator).to(rows.device)]
        self.codebook[dead] = chosen
        self.idle[dead] = 0
        self.counts[dead] = even_share
        self.sums[dead] = chosen * even_share


def _as_rows(grid: Tensor) -> Tensor:
    """`[B, D, h, w]` to `[B·h·w, D]`, in image order."""
    return grid.permute(0, 2, 3, 1).reshape(-1, grid.shape[1])


def _all_reduce(total: Tensor) -> Tensor:
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(total)
    return total


def _gather_rows(rows: Tensor) -> Tensor:
    """The rows of all processes, sorted, so that it does not matter how batches were spread over processes."""
    if dist.is_available() and dist.is_initialized():
        rows = torch.cat(_rows_by_rank(rows))
    return rows[rows[:, 0].argsort(stable=True)]


def _rows_by_rank(rows: Tensor) -> list[Tensor]:
    """What each process holds, which may be a different number of rows."""
    lengths = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor([len(rows)], device=rows.device))
    longest = int(max(lengths))
    padded = F.pad(rows, (0, 0, 0, longest - len(rows)))
    gathered = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(gathered, padded)
    return [part[: int(length)] for part, length in zip(gathered, lengths, strict=True)]


ROWS_PER_CENTRE = 64
"""Rows looked at per centre; more do not move the centres of a start noticeably."""


def kmeans(rows: Tensor, centres: int, *, iterations: int = 10, seed: int = 0) -> Tensor:
    """Centres `[centres, D]` of rows `[N, D]`, the same for the same rows in any order."""
    rows = torch.unique(rows, dim=0)  # sorted, too
    if len(rows) < centres:
        raise TrainingError(
            f"k-means start: {len(rows)} different vectors cannot give {centres} codes; encode more batches"
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(rows), generator=generator)[: centres * ROWS_PER_CENTRE]
    sample = rows[chosen.to(rows.device)].double().cpu().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty cluster keeps its old centre, which is what we want
        found, _ = kmeans2(sample, centres, iter=iterations, minit="++", rng=seed)
    return torch.from_numpy(found).to(rows)
