"""Fitting learned tables: what each code holds, then what of it matters for ranking.

1. *Content.* For each code the mean share of every label in every quarter × quarter of its cell, over training
   patients: a non-negative vector. Products of two codes' contents, summed over the grid, count the pixels that two
   slices can be expected to share; divided by both lengths they are a Dice coefficient in all but name. This alone
   already ranks lesions better than the distances between code vectors, though not anatomy.
2. *Ranking.* From there contents and position weights follow the gradient of a listwise loss: among random slices of
   other patients, those that overlap best by label are to be nearest.

Minutes at most, on one core. Knows ids and labels; nothing about files.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from diptych.errors import InputError
from diptych.fitting.fit_data import LabelledSlices
from diptych.metrics.label_planes import Planes, row_distances
from diptych.metrics.learned_tables import LearnedTable, LearnedTables
from diptych.model import FeatureDecomposingNetwork
from diptych.progress import Progress, silent

PARTS = 4
"""A cell is looked at in so many rows and columns."""
ASKED_SHARE = 0.25
"""Slices are asked for whose lesion has more than this share of the patient's largest: what readers ask for."""
LARGEST_WEIGHT = 200
"""Position weights are whole numbers up to this one."""


@dataclass(frozen=True)
class FitSettings:
    """How the ranking is learnt."""

    steps: int = 400
    """Gradient steps; 0 leaves the contents as they were counted."""
    queries: int = 16
    """Slices with a lesion that each step asks for."""
    candidates: int = 256
    """Slices that each step chooses from."""
    temperature: float = 0.05
    """How far below the best overlap a slice still counts as a good answer."""
    learning_rate: float = 0.02
    """Of Adam; it falls to zero along a cosine."""
    seed: int = 0
    """Start of every random draw."""

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def fit_tables(
    network: FeatureDecomposingNetwork,
    slices: LabelledSlices,
    *,
    settings: FitSettings = FitSettings(),
    progress: Progress = silent,
) -> LearnedTables:
    """Fit a table for each codebook that there are labels for."""
    codes = network.config.codebook_size
    tables = {
        panel: fit_table(
            slices, panel, codes=codes, settings=settings, progress=_part(progress, place, len(slices.labels), panel)
        )
        for place, panel in enumerate(slices.labels)
    }
    facts = {"patients": len(slices.keys), "slices": len(slices), "settings": settings.to_json()}
    return LearnedTables(network.fingerprint, tables, facts)


def _part(progress: Progress, place: int, parts: int, name: str) -> Progress:
    """The progress of one of several equal parts of the work."""

    def report(done: int, total: int, note: str = "") -> None:
        progress(place * total + done, parts * total, f"{name} {note}")

    return report


def fit_table(
    slices: LabelledSlices,
    panel: str,
    *,
    codes: int,
    settings: FitSettings = FitSettings(),
    progress: Progress = silent,
) -> LearnedTable:
    """Fit the table of one panel's codebook to the labels of these slices."""
    if len(slices.keys) < 2 or not slices.lesion_area.any():
        raise InputError(f"{len(slices.keys)} patients: tables are fitted to two or more, with lesions; add patients")
    contents = code_contents(
        slices.ids[panel], slices.labels[panel], slices.grid, classes=slices.classes[panel], codes=codes
    )
    ranking = _Ranking(slices, panel, contents)
    ranking.learn(settings, progress)
    return ranking.table()


def code_contents(
    ids: NDArray[np.int64],
    labels: NDArray[np.uint8],
    grid: tuple[int, int],
    *,
    classes: int,
    codes: int,
    doubt: float = 5.0,
) -> NDArray[np.float32]:
    """Mean share of each label in each part of a cell, by code, `[K, classes * PARTS²]`.

    A rare code's content leans towards the mean of all cells, as if it had been seen there `doubt` times.
    """
    rows, columns = grid
    n, height, width = labels.shape
    tall, wide = _parts(height, rows), _parts(width, columns)
    which = ids.reshape(-1)
    counts = np.bincount(which, minlength=codes)
    sums = []
    for label in range(1, classes + 1):
        shares = (labels == label).reshape(n, rows * tall, height // rows // tall, columns * wide, -1).mean(axis=(2, 4))
        cells = shares.reshape(n, rows, tall, columns, wide).transpose(0, 1, 3, 2, 4).reshape(-1, tall * wide)
        sums += [np.bincount(which, weights=part, minlength=codes) for part in cells.T]
    total = np.stack(sums, axis=1)  # [K, classes * parts]
    usual = total.sum(axis=0) / max(len(which), 1)
    return np.asarray((total + doubt * usual) / (counts + doubt)[:, None], dtype=np.float32)


def _parts(pixels: int, cells: int) -> int:
    """Into how many parts a cell is divided along one axis: as many as fit, up to `PARTS`."""
    within = pixels // cells
    return next(parts for parts in range(min(PARTS, within), 0, -1) if within % parts == 0)


def small_labels(labels: NDArray[np.uint8], *, size: int = 32) -> NDArray[np.uint8]:
    """Every n-th pixel of label maps `[N, H, W]`: enough to rank by."""
    down, across = (max(1, pixels // size) for pixels in labels.shape[1:])
    return labels[:, down // 2 :: down, across // 2 :: across]


class _Ranking:
    """Contents `[K, d]` and position weights `[P]` that learn to rank as label overlap does."""

    def __init__(self, slices: LabelledSlices, panel: str, contents: NDArray[np.float32]) -> None:
        self.ids = torch.from_numpy(slices.ids[panel])
        self.planes = Planes.of_labels(small_labels(slices.labels[panel]), classes=slices.classes[panel])
        self.volume = slices.volume
        largest = np.zeros(len(slices.keys), dtype=np.int64)
        np.maximum.at(largest, slices.volume, slices.lesion_area)
        self.askable = np.flatnonzero(slices.lesion_area > ASKED_SHARE * largest[slices.volume])
        self.findable = np.flatnonzero(slices.lesion_area) if panel == "abnormal" else np.arange(len(slices))
        start = torch.from_numpy(contents)
        self.contents = torch.nn.Parameter(start / start.norm(dim=1).mean().clamp_min(1e-6))
        self.weights = torch.nn.Parameter(torch.zeros(self.ids.shape[1]))
        self.sharpness = torch.nn.Parameter(torch.tensor(2.3))

    def learn(self, settings: FitSettings, progress: Progress) -> None:
        rng = np.random.default_rng(settings.seed)
        rates = {"contents": settings.learning_rate, "weights": settings.learning_rate, "sharpness": 0.03}
        optimiser = torch.optim.Adam([{"params": [getattr(self, name)], "lr": rate} for name, rate in rates.items()])
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(settings.steps, 1))
        for step in range(settings.steps):
            asked = rng.choice(self.askable, min(settings.queries, len(self.askable)), replace=False)
            found = rng.choice(self.findable, min(settings.candidates, len(self.findable)), replace=False)
            loss = self.loss(asked, found, settings.temperature)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                self.contents.clamp_(min=0)
            progress(step + 1, settings.steps, f"loss {loss.item():.3f}")

    def loss(self, asked: NDArray[np.int64], found: NDArray[np.int64], temperature: float) -> Tensor:
        """Cross-entropy from what overlaps best to what is nearest; slices of the query's own patient do not count."""
        own = torch.from_numpy(self.volume[asked][:, None] == self.volume[found])
        wanted = torch.from_numpy(self.overlaps(asked, found) / temperature).masked_fill(own, -1e9).softmax(dim=1)
        cosines = self.vectors(asked) @ self.vectors(found).T
        given = (cosines * self.sharpness.exp()).masked_fill(own, -1e9).log_softmax(dim=1)
        return -(wanted * given).sum(dim=1).mean()

    def vectors(self, slices: NDArray[np.int64]) -> Tensor:
        """Weighted contents of slices at unit length, `[n, P * d]`."""
        held = F.embedding(self.ids[slices], self.contents)  # [n, P, d]
        return F.normalize((held * self.position_weights().sqrt()[:, None]).flatten(1), dim=1)

    def position_weights(self) -> Tensor:
        return self.weights.exp()

    def overlaps(self, asked: NDArray[np.int64], found: NDArray[np.int64]) -> NDArray[np.float32]:
        """Mean label Dice, `[asked, found]`."""
        others, whole = self.planes.take(found), (np.array([0]), np.array([len(found)]))
        distances = np.empty((len(asked), len(found)))
        for row, one in enumerate(asked):
            words, areas = self.planes.words[one], self.planes.areas[one]
            row_distances(words, areas, others.words, others.areas, *whole, distances[row])
        return (1 - distances).astype(np.float32)

    def table(self) -> LearnedTable:
        with torch.no_grad():
            contents = self.contents.numpy().astype(np.float64)
            weights = self.position_weights().numpy()
        products = (contents @ contents.T).astype(np.float32)
        products = np.maximum(products, products.T)  # alike to the last bit
        whole = np.maximum(np.rint(weights / weights.max() * LARGEST_WEIGHT), 1)
        return LearnedTable(products, whole.astype(np.int32))
