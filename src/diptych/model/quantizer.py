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
    voice: Tensor | None = None
    """Whether a cell has anything to say, as logits `[B, h, w]`; None for a codebook without a quiet code."""


QUIET = 0
"""The id of the quiet code, where a codebook has one."""


class VectorQuantizer(nn.Module):
    """K codes of width D with their moving averages.

    With a quiet code, a linear gate tells which cells have anything to say. The others become code 0, which never
    moves, wherever they lie. The remaining codes are moved and replaced by living cells alone: those that the caller
    names as holding something worth a code.

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
        codebook = torch.empty(config.codebook_size, config.code_width)
        if not codebook.is_meta:  # drawing there would load torch's compiler: a second
            codebook.normal_()
        self.gate = nn.Linear(config.code_width, 1) if quiet else None
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
        if self.gate is not None:
            return self._gated(encoded, self._voice(encoded, self.gate), living)
        ids = self.nearest(encoded.detach())  # [B, h, w]
        code = self.lookup(ids)  # [B, D, h, w]
        if self.training:
            self._seen.append((_as_rows(encoded.detach()), ids.flatten()))
        through = encoded + (code - encoded).detach()
        return Quantized(ids=ids, code=through, error=F.mse_loss(encoded, code), encoded=encoded)

    def _gated(self, encoded: Tensor, voice: Tensor, living: Tensor | None) -> Quantized:
        """Cells with a voice get their nearest code, the others the quiet one.

        Gradients pass straight through to the encoder where a cell speaks; the gate feels in every cell what the
        difference between its code and the quiet one would make. Only living cells are held to their codes.
        """
        heard = voice > 0
        said_ids = self._nearest_loud(encoded.detach())  # [B, h, w]
        said = self.lookup(said_ids)  # [B, D, h, w]
        living = heard if living is None else living
        if self.training:
            chosen = living.flatten()
            self._seen.append((_as_rows(encoded.detach())[chosen], said_ids.flatten()[chosen]))
        off = (encoded - said).square().mean(dim=1)
        error = (off * living).sum() / living.sum().clamp_min(1)
        quiet = self.codebook[QUIET].view(1, -1, 1, 1)
        spoken = torch.where(heard.unsqueeze(1), encoded + (said - encoded).detach(), quiet)
        chance = voice.sigmoid()
        through = spoken + (chance - chance.detach()).unsqueeze(1) * (said - quiet)
        ids = torch.where(heard, said_ids, QUIET)
        return Quantized(ids=ids, code=through, error=error, encoded=encoded, voice=voice)

    def _voice(self, encoded: Tensor, gate: nn.Linear) -> Tensor:
        """The gate's logits `[B, h, w]`, in single precision."""
        batch, _, rows, columns = encoded.shape
        with torch.autocast(encoded.device.type, enabled=False):
            voice: Tensor = gate(_as_rows(encoded.float())).view(batch, rows, columns)
        return voice

    def nearest(self, encoded: Tensor) -> Tensor:
        """Ids `[B, h, w]` of the codes that stand for a grid `[B, D, h, w]`; ties go to the smaller id."""
        if self.gate is None:
            return _nearest(encoded, self.codebook)
        return torch.where(self._voice(encoded, self.gate) > 0, self._nearest_loud(encoded), QUIET)

    def _nearest_loud(self, encoded: Tensor) -> Tensor:
        """The nearest codes but the quiet one: what each cell would say."""
        return _nearest(encoded, self.codebook[QUIET + 1 :]) + QUIET + 1

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

    def fall_quiet(self, batches: list[Tensor], living: list[Tensor]) -> None:
        """Give a trained codebook its quiet code: the mean of cells that hold nothing, seen in `[B, D, h, w]` batches.

        The gate starts as a logistic regression on the cells; living cells give all other codes.
        """
        assert self.gate is not None, "asked for by the config"
        rows = torch.cat([_as_rows(encoded.detach().float()) for encoded in batches])
        alive = torch.cat([cells.flatten() for cells in living])
        lesion = rows[alive]
        centres = kmeans(lesion, len(self.codebook) - 1)
        self.codebook[QUIET], self.codebook[QUIET + 1 :] = rows[~alive].mean(dim=0), centres
        self.counts.fill_(len(lesion) / len(batches) / len(self.counts))
        self.sums.copy_(self.codebook * self.counts.unsqueeze(1))
        self.idle.zero_()
        _fit_gate(self.gate, rows, alive)

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


def _nearest(encoded: Tensor, codebook: Tensor) -> Tensor:
    """Which row of a codebook `[K, D]` is nearest in each cell of `[B, D, h, w]`.

    Distances are single precision whatever the pass around them is: bfloat16 would choose other ids in 3-5 %.
    """
    batch, _, rows, columns = encoded.shape
    with torch.autocast(encoded.device.type, enabled=False):
        products = _as_rows(encoded.float())
        distances = torch.addmm(codebook.square().sum(dim=1), products, codebook.T, alpha=-2.0)  # less |z|²
    return distances.argmin(dim=1).view(batch, rows, columns)


def _fit_gate(gate: nn.Linear, rows: Tensor, alive: Tensor) -> None:
    """Let a linear gate tell living rows `[N, D]` from others, both kinds counting as much."""
    mean, scale = rows.mean(dim=0), rows.std(dim=0).clamp_min(1e-6)
    scaled, truth = (rows - mean) / scale, alive.float()
    weight = torch.where(alive, 0.5 / truth.sum(), 0.5 / (1 - truth).sum())
    weights, offset = torch.zeros_like(mean, requires_grad=True), torch.zeros(1, device=mean.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, offset], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        logits = scaled @ weights + offset
        total = (F.binary_cross_entropy_with_logits(logits, truth, reduction="none") * weight).sum()
        total = total + 1e-4 * weights.square().sum()
        torch.autograd.backward(total)
        return float(total.detach())

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        gate.weight.copy_((weights / scale).unsqueeze(0))
        gate.bias.copy_(offset - (weights / scale) @ mean)


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
