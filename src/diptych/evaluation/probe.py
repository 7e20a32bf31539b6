"""What a panel's codes know of labels that are not its own: a small probe, cell by cell.

Where a cell lies in the frame and how high its slice lies tell much already. The probe asks what the code adds: tables
of how often each label stands in a cell at that height (`place`), and with each code (`code`), are counted on one third
of the patients; a logistic regression that weighs the two is fitted on the second third; the last third judges. The
figure is the share of the uncertainty left by the place that the code removes: 0 when codes know nothing more, 1 when
they know all. Knows ids and labels as arrays; nothing about models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

HEIGHTS = 8
"""Layers that slices are put into by their position."""
SMOOTHING = 2.0
"""Cells of the overall kind that every table is begun with."""
LAYER_SMOOTHING = 20.0
"""Cells of its place at any height that the table of each height is begun with."""
GROUPS = 3


@dataclass(frozen=True, eq=False)
class Cells:
    """N slices cut into P cells."""

    ids: NDArray[np.integer]
    """`[N, P]`."""
    labels: NDArray[np.integer]
    """The label that fills most of each cell, or any at all where presence is asked for, `[N, P]`."""
    height: NDArray[np.integer]
    """Layer of each slice, `[N]`."""
    patient: NDArray[np.integer]
    """`[N]`."""


def what_codes_know(cells: Cells, *, codes: int, classes: int, seed: int = 0) -> float:
    """The share of the uncertainty about labels that codes remove beyond place and height, over all patients."""
    patients = np.random.default_rng(seed).permutation(np.unique(cells.patient))
    group = np.empty(int(cells.patient.max()) + 1, dtype=np.int64)
    group[patients] = np.arange(len(patients)) % GROUPS
    group = group[cells.patient]
    with_code = without = 0.0
    for turn in range(GROUPS):
        counted, fitted, judged = (group == (turn + step) % GROUPS for step in range(GROUPS))
        tables = _count(cells, counted, codes=codes, classes=classes)
        features = {name: _features(cells, rows, tables) for name, rows in (("fit", fitted), ("judge", judged))}
        for use_code in (False, True):
            weights = _fit(*features["fit"], use_code=use_code)
            loss = float(_loss(weights, *features["judge"], use_code=use_code).sum())
            with_code, without = (with_code + loss, without) if use_code else (with_code, without + loss)
    return 1 - with_code / max(without, 1e-12)


def _count(
    cells: Cells, rows: NDArray[np.bool_], *, codes: int, classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log p(label | height, cell) `[heights, P, L]` and log p(label | code) `[K, L]`."""
    ids, labels, height = cells.ids[rows], cells.labels[rows], cells.height[rows]
    places = ids.shape[1]
    overall = np.bincount(labels.ravel(), minlength=classes) / labels.size
    by_code = np.bincount((ids.astype(np.int64) * classes + labels).ravel(), minlength=codes * classes)
    spot = height[:, None].astype(np.int64) * places + np.arange(places)
    by_place = np.bincount((spot * classes + labels).ravel(), minlength=HEIGHTS * places * classes)
    layered = by_place.reshape(HEIGHTS, places, classes).astype(np.float64)
    cell = layered.sum(axis=0) + SMOOTHING * overall + 1e-6  # [P, L]
    layered = layered + LAYER_SMOOTHING * cell / cell.sum(axis=-1, keepdims=True)
    coded = by_code.reshape(codes, classes) + SMOOTHING * overall + 1e-6
    place, code = (np.log(table / table.sum(axis=-1, keepdims=True)) for table in (layered, coded))
    return place, code


def _features(
    cells: Cells, rows: NDArray[np.bool_], tables: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> tuple[Tensor, Tensor, Tensor]:
    """By place and by code `[M, L]`, and the labels `[M]`."""
    place, code = tables
    by_place = place[cells.height[rows]]  # [n, P, L]
    by_code = code[cells.ids[rows]]
    flat = (torch.from_numpy(part.reshape(-1, part.shape[-1])).float() for part in (by_place, by_code))
    return *flat, torch.from_numpy(cells.labels[rows].reshape(-1).astype(np.int64))  # type: ignore[return-value]


def _loss(weights: Tensor, place: Tensor, code: Tensor, labels: Tensor, *, use_code: bool) -> Tensor:
    """Cross-entropy of each cell; `weights` are those of place and code, then an offset per label."""
    logits = weights[0] * place + weights[2:]
    if use_code:
        logits = logits + weights[1] * code
    return F.cross_entropy(logits, labels, reduction="none")


def _fit(place: Tensor, code: Tensor, labels: Tensor, *, use_code: bool) -> Tensor:
    start = torch.zeros(2 + place.shape[1])
    start[0] = 1.0
    weights = start.requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=30, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = _loss(weights, place, code, labels, use_code=use_code).mean()
        torch.autograd.backward(loss)
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach()
