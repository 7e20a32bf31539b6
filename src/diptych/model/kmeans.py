"""k-means centres for the start of a codebook: SciPy's, with a fixed seed and a bound on the work."""

from __future__ import annotations

import warnings

import torch
from scipy.cluster.vq import kmeans2
from torch import Tensor

from diptych.errors import TrainingError

__all__ = ["kmeans"]

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
