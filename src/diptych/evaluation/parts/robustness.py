"""What changes of the image do to codes, lesions and searches: noise, brightness, bias, rotation, lost channels, and
the shifts between scanners (`slices.degradations`) at two strengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.figure import Figure as Plot
from numpy.typing import NDArray
from torch import Tensor

from diptych.evaluation.bootstrap import plain
from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.context import Context
from diptych.evaluation.part import Figure, Part, Section, Table
from diptych.evaluation.retrieval_score import score
from diptych.evaluation.survey import dice
from diptych.metrics.searcher import DEFAULT
from diptych.model import CodeIds, FeatureDecomposingNetwork
from diptych.progress import Progress
from diptych.search import Filter, Query
from diptych.slices import CLIP, FILL, Batch, SliceDataset
from diptych.slices.augment import Changes, apply_changes
from diptych.slices.degradations import CHANGES, Dice

OTHERS = 3
"""Slices of each patient besides the one with the largest lesion."""
CAPTION = (
    "Of each query patient the slice with the largest lesion and {others} more, evenly spaced. Ids kept: share of grid "
    "cells with the same code as before. Dice: whole lesion decoded from the changed image against the label (turned "
    "with the image). Found: points of oracle (in per cent) that the first {top} volumes found by the changed "
    "largest-lesion slice among unchanged references lose, by the default metric ({metric}), classes absent in both "
    "left out. A lost channel is filled with the value outside the brain. Mild and strong shifts are half and all of "
    "what training with degradations expects."
)
STRENGTHS = {"mild": 0.5, "strong": 1.0}
"""Of each shift."""


@dataclass(frozen=True, eq=False)
class _Reading:
    """What the network makes of one version of the slices."""

    normal: NDArray[np.int64]
    """`[B, h, w]`."""
    abnormal: NDArray[np.int64]
    dice: float
    """Whole lesion, mean over patients."""
    retrieval: dict[str, float]
    """Mean Dice of what is found, by panel."""

    def kept(self, clean: _Reading) -> tuple[float, float]:
        """Share of ids that stay, normal and abnormal."""
        return float(np.mean(self.normal == clean.normal)), float(np.mean(self.abnormal == clean.abnormal))


def run(context: Context, progress: Progress) -> Section:
    trial = context.trial(progress)
    asking = [trial.slices.keys[volume] for volume in trial.slices.volume[trial.queries]]
    dataset = SliceDataset(context.stores, asking)
    places, is_query = sampled_slices([context.records[key].lesion_pixels or () for key in asking])
    changes = perturbations(dataset.channels, seed=context.seed)
    readings: dict[str, _Reading] = {}
    for done, change in enumerate(changes, start=1):
        readings[change.name] = _read(
            context.network, trial, change.apply(dataset.batch(places)), places, is_query, dataset
        )
        progress(done, len(changes), change.name)
    clean = readings["none"]
    numbers = {}
    for name, reading in readings.items():
        normal, abnormal = reading.kept(clean)
        lost = {f"lost_{by[5:]}": clean.retrieval[by] - found for by, found in reading.retrieval.items()}
        numbers[name] = {
            "normal_ids": normal, "abnormal_ids": abnormal, "dice": reading.dice, **reading.retrieval, **lost
        }  # fmt: skip
    stable = numbers["2 % noise of the signal"]
    headline = (
        ("ids kept under 2 % noise: normal, abnormal", f"{stable['normal_ids']:.1%}  {stable['abnormal_ids']:.1%}"),
    )
    worst = {kind: _most_lost(numbers, kind) for kind in STRENGTHS}
    shifts = tuple((f"most points of oracle lost, {kind} shifts", text) for kind, text in worst.items())
    defaults = [f"{trial.searcher.default_for(by)} by {by}" for by in trial.bys]
    table = _table(numbers, trial.longest, ", ".join(defaults))
    return Section((table, _plot(numbers)), plain(numbers), (*headline, *shifts))


def _most_lost(numbers: dict[str, dict[str, float]], kind: str) -> str:
    """By which shift the most is lost, and how much, over all ways of searching."""
    lost = {
        name: max(value for key, value in figures.items() if key.startswith("lost_"))
        for name, figures in numbers.items()
        if name.endswith(f", {kind}")
    }
    worst = max(lost, key=lost.__getitem__)
    return f"{100 * lost[worst]:.1f} ({worst.removesuffix(f', {kind}')})"


def sampled_slices(lesion_pixels: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Places in the slices of all patients together, and which of them is the largest lesion of its patient.

    >>> places, is_query = sampled_slices([[0, 0, 4, 9, 1]])
    >>> places.tolist(), is_query.tolist()
    ([3, 1, 2], [True, False, False])
    """
    chosen, is_query, start = [], [], 0
    for pixels in lesion_pixels:
        largest = int(np.argmax(pixels))
        spread = np.linspace(0, len(pixels) - 1, OTHERS + 2).round().astype(int)[1:-1].tolist()
        places = [largest, *(place for place in dict.fromkeys(spread) if place != largest)]
        chosen += [start + place for place in places]
        is_query += [True, *[False] * (len(places) - 1)]
        start += len(pixels)
    return np.array(chosen, dtype=np.int64), np.array(is_query, dtype=np.bool_)


def _read(
    network: FeatureDecomposingNetwork,
    trial: Trial,
    batch: Batch,
    places: NDArray[np.int64],
    is_query: NDArray[np.bool_],
    dataset: SliceDataset,
) -> _Reading:
    ids = network.encode(batch.image)
    predicted = _lesions(network, ids)
    patient = dataset.table.patient[places]
    true = batch.lesion.numpy() > 0
    pixels = np.stack([np.count_nonzero(mask, axis=(1, 2)) for mask in (true & predicted, predicted, true)], axis=1)
    overlap = np.array([pixels[patient == person].sum(axis=0) for person in np.unique(patient)], dtype=np.float64)
    normal, abnormal = ids.normal.numpy(), ids.abnormal.numpy()
    found = found_of_oracle(trial, normal[is_query], abnormal[is_query])
    return _Reading(normal, abnormal, float(np.nanmean(dice(overlap))), found)


@torch.no_grad()
def _lesions(network: FeatureDecomposingNetwork, ids: CodeIds) -> NDArray[np.bool_]:
    """Where any lesion is predicted, `[B, H, W]`."""
    parts = torch.split(ids.abnormal, 32)
    return torch.cat([network.decode_lesion(part).argmax(dim=1) > 0 for part in parts]).numpy()


def found_of_oracle(trial: Trial, normal: NDArray[np.int64], abnormal: NDArray[np.int64]) -> dict[str, float]:
    """Share of the oracle that the first volumes reach which queries with these ids find, by panel; default metric."""
    means = {}
    for by in trial.bys:
        rows = []
        for place, own_normal, own_abnormal in zip(trial.queries, normal, abnormal, strict=True):
            own = int(trial.person[trial.slices.volume[place]])
            query = Query(
                normal=own_normal,
                abnormal=own_abnormal,
                by=by,  # type: ignore[arg-type]
                metric=DEFAULT,
                top=trial.longest,
                where=Filter(exclude_patients=(own,), volumes=trial.references),
            )
            rows.append([match.slice for match in trial.searcher.search(query)])
        scored = score(np.array(rows), trial.truths()[by], tops=(trial.longest,))
        means[f"find_{by}"] = scored.of_oracle()[trial.longest]
    return means


def _table(numbers: dict[str, dict[str, float]], top: int, metric: str) -> Table:
    searches = [name for name in numbers["none"] if name.startswith("lost_")]
    lost = tuple(f"lost by {s[5:]}" for s in searches)
    columns = ("change", "normal ids kept", "abnormal ids kept", "Dice", *lost)
    rows = [
        (name, v["normal_ids"], v["abnormal_ids"], plain(v["dice"]), *(100 * v[search] for search in searches))
        for name, v in numbers.items()
    ]
    return Table.of(
        "Robustness",
        columns,
        rows,
        caption=CAPTION.format(others=OTHERS, top=top, metric=metric),
        formats={"normal ids kept": ".1%", "abnormal ids kept": ".1%", **dict.fromkeys(lost, ".1f")},
    )


def _plot(numbers: dict[str, dict[str, float]]) -> Figure:
    plot = Plot(figsize=(8, 4.6), layout="constrained")
    left, right = plot.subplots(1, 2, sharey=True)
    names = [name for name in numbers if name != "none"][::-1]
    heights = np.arange(len(names))
    left.barh(heights + 0.2, [numbers[name]["normal_ids"] for name in names], 0.38, label="normal")
    left.barh(heights - 0.2, [numbers[name]["abnormal_ids"] for name in names], 0.38, label="abnormal")
    left.set_yticks(heights, names)
    left.set_xlabel("share of ids that stay")
    left.set_xlim(0, 1)
    left.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    for key, offset, label in (("dice", 0.25, "Dice of the lesion"), ("find_normal", 0.0, "found by normal"),
                               ("find_abnormal", -0.25, "found by abnormal")):  # fmt: skip
        if key in numbers["none"]:
            shares = [numbers[name][key] / max(numbers["none"][key], 1e-9) for name in names]
            right.barh(heights + offset, shares, 0.23, label=label)
    right.axvline(1, color="0.6", linewidth=0.8, linestyle="--")
    right.set_xlabel("relative to the unchanged image")
    right.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return Figure.of_plot("What changes of the image change", plot)


PART = Part(
    "robustness",
    "Robustness",
    "What noise, brightness, bias field, rotation and a lost channel do to codes, lesions and searches.",
    run,
    settings={"version": 3},
)


@dataclass(frozen=True)
class Perturbation:
    """One change of images (and, for rotations, of their labels)."""

    name: str
    apply: Callable[[Batch], Batch]


def perturbations(channels: tuple[str, ...], *, seed: int = 0) -> list[Perturbation]:
    """All changes that robustness is measured under, the unchanged images first."""
    return [
        Perturbation("none", lambda batch: batch),
        Perturbation("2 % noise of the signal", lambda batch: relative_noise(batch, 0.02, seed=seed)),
        Perturbation("noise of 0.2 sd", lambda batch: noise(batch, 0.2, seed=seed)),
        Perturbation("brighter by 0.3 sd", lambda batch: brighten(batch, 0.3)),
        Perturbation("darker by 0.3 sd", lambda batch: brighten(batch, -0.3)),
        Perturbation("bias field of ±20 %", lambda batch: bias_field(batch, 0.2)),
        Perturbation("rotated by 10°", lambda batch: rotate(batch, 10.0)),
        Perturbation("rotated by -10°", lambda batch: rotate(batch, -10.0)),
        *(Perturbation(f"without {name}", _without(place)) for place, name in enumerate(channels)),
        *_few_channels(channels),
        *(
            Perturbation(f"{name}, {kind}", _shift(name, strength, seed))
            for name in CHANGES
            for kind, strength in STRENGTHS.items()
        ),
    ]


def _few_channels(channels: tuple[str, ...]) -> list[Perturbation]:
    """Images that have T1Gd and FLAIR alone, or FLAIR alone."""
    left = [kept for kept in (("t1gd", "flair"), ("flair",)) if set(kept) < set(channels)]
    return [Perturbation(f"{' and '.join(kept)} alone", with_only(channels, kept)) for kept in left]


def with_only(channels: tuple[str, ...], kept: Sequence[str]) -> Callable[[Batch], Batch]:
    """Blanks all channels but some."""

    def change(batch: Batch) -> Batch:
        for place, name in enumerate(channels):
            batch = batch if name in kept else drop_channel(batch, place)
        return batch

    return change


def _shift(name: str, strength: float, seed: int) -> Callable[[Batch], Batch]:
    """A shift of the same strength on every slice; where and which way is drawn slice by slice."""

    def change(batch: Batch) -> Batch:
        dice = Dice.throw([seed + int(place) for place in batch.index], batch.image.shape[1])
        changed = CHANGES[name](batch.image, torch.full((len(batch),), strength), dice)
        return replace(batch, image=changed)

    return change


def relative_noise(batch: Batch, share: float, *, seed: int) -> Batch:
    """Gaussian noise whose deviation is a share of each pixel's signal."""
    return _in_brain(batch, lambda image: FILL + (image - FILL) * (1 + share * _normal(image, seed)))


def noise(batch: Batch, deviation: float, *, seed: int) -> Batch:
    """Gaussian noise of one deviation everywhere in the brain."""
    return _in_brain(batch, lambda image: image + deviation * _normal(image, seed))


def brighten(batch: Batch, offset: float) -> Batch:
    """Add to all channels, as when z-scoring went by other voxels."""
    return _in_brain(batch, lambda image: image + offset)


def bias_field(batch: Batch, strength: float) -> Batch:
    """Multiply the signal by a field that falls from the front left corner to the back right one."""
    H, W = batch.image.shape[2:]
    down, across = torch.linspace(-1, 1, H)[:, None], torch.linspace(-1, 1, W)[None, :]
    field = 1 + strength * (down + across) / 2  # [H, W]
    return _in_brain(batch, lambda image: FILL + (image - FILL) * field)


def rotate(batch: Batch, degrees: float) -> Batch:
    """Turn images and labels about the middle of the frame."""
    count, channels = batch.image.shape[:2]
    ones = torch.ones(count, channels)
    angle = torch.full((count,), math.radians(degrees))
    changes = Changes(angle, torch.zeros(count, dtype=torch.bool), ones, torch.zeros_like(ones), ones, None)
    return apply_changes(batch, changes)


def drop_channel(batch: Batch, place: int) -> Batch:
    """Blank one channel, as if it had not been scanned."""
    image = batch.image.clone()
    image[:, place] = FILL
    return replace(batch, image=image)


def _without(place: int) -> Callable[[Batch], Batch]:
    return lambda batch: drop_channel(batch, place)


def _in_brain(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """Change what shows brain and keep within the range of z-scores; the rest stays as it is."""
    brain = batch.image > FILL
    return replace(batch, image=torch.where(brain, change(batch.image).clamp(*CLIP), batch.image))


def _normal(image: Tensor, seed: int) -> Tensor:
    return torch.randn(image.shape, generator=torch.Generator().manual_seed(seed))
