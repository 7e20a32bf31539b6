"""How good a network is on patients it was not trained on: Dice by volume, errors of both images, use of the codebooks.

Knows the network and the dataset; nothing about training. Conventions:

- Dice is taken over a patient's whole volume, per class and for the whole lesion, then averaged over patients. A class
  that a patient neither has nor is predicted to have is left out of that average. `dice_anatomy` is the mean over the
  anatomy labels, for networks with an anatomy head and patients with such labels.
- Errors are mean absolute differences in z-scores over brain pixels and channels. `twin_error` is |x̂⁻ − true twin|
  inside the lesion, for phantoms; `twin_error_of_input` is the same for the input itself, so a healthy twin that is
  worth anything lies well below it. `lesion_change` is |x̂⁻ − x| inside the lesion, which must not be near zero.
- The best network is the one with the highest `score` = whole-lesion Dice − reconstruction error, and, where twins are
  known, − twin_error / twin_error_of_input: a lesion that leaks into the healthy twin costs as much as one not found;
  where anatomy is judged, + dice_anatomy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from diptych.model import Decomposition, FeatureDecomposingNetwork
from diptych.slices import FILL, Batch, SliceDataset

CRITERION = (
    "whole-lesion Dice plus anatomy Dice minus reconstruction error minus what is left of lesions in known twins, "
    "on validation"
)
"""What makes a network the best one, as reports state it."""

BATCH = 32


def validate(network: FeatureDecomposingNetwork, dataset: SliceDataset, *, device: torch.device) -> dict[str, float]:
    """Run the network over every slice of `dataset`; return named figures, not a number where undefined."""
    was_training = network.training
    network.eval()
    tally = _Tally.empty(network, patients=len(dataset.keys))
    for batch in dataset.in_order(BATCH):
        patients = torch.from_numpy(dataset.table.patient[batch.index.numpy()])
        moved = batch.to(device)
        tally.add(moved, network.decompose(moved.image), patients)
    network.train(was_training)
    return tally.figures()


def evenly_spaced(keys: tuple[str, ...], count: int) -> tuple[str, ...]:
    """At most `count` of `keys`, spread over the list.

    >>> evenly_spaced(("a", "b", "c", "d", "e"), 2)
    ('a', 'd')
    """
    if len(keys) <= count:
        return keys
    return tuple(keys[round(place * len(keys) / count)] for place in range(count))


@dataclass
class _Mean:
    """A sum of values under a mask, and how many there were."""

    total: float = 0.0
    count: float = 0.0

    def add(self, values: Tensor, mask: Tensor) -> None:
        """Add `values` `[B, C, H, W]` where `mask` `[B, H, W]` holds."""
        self.total += float((values * mask.unsqueeze(1)).sum(dtype=torch.float64))
        self.count += float(mask.sum()) * values.shape[1]

    def value(self) -> float:
        """The mean, or not a number where nothing was added."""
        return self.total / self.count if self.count else math.nan


@dataclass
class _Tally:
    """Sums over all batches, from which the figures follow."""

    regions: dict[str, tuple[int, ...]]
    """Lesion classes that a Dice is taken of, by name, the whole lesion first."""
    overlap: Tensor
    """Pixels shared, predicted and true, per patient and class (whole lesion first), `[P, 1 + classes, 3]`."""
    anatomy: Tensor
    """The same for anatomy labels, `[P, labels, 3]`; nothing where they are not known or not predicted."""
    code_counts: dict[str, Tensor]
    means: dict[str, _Mean] = field(default_factory=dict)

    @classmethod
    def empty(cls, network: FeatureDecomposingNetwork, *, patients: int) -> _Tally:
        about, codes = network.description, network.config.codebook_size
        regions = {name.lower(): labels for name, labels in reversed(about.regions.items())}
        counts = {panel: torch.zeros(codes, dtype=torch.int64) for panel in ("normal", "abnormal")}
        lesion, anatomy = (
            torch.zeros(patients, classes, 3, dtype=torch.float64) for classes in (len(regions), len(about.anatomy))
        )
        return cls(regions, lesion, anatomy, counts)

    def add(self, batch: Batch, found: Decomposition, patients: Tensor) -> None:
        lesion = found.lesion_probabilities.argmax(dim=1)
        pairs = [(_among(batch.lesion, labels), _among(lesion, labels)) for labels in self.regions.values()]
        _add_overlap(self.overlap, pairs, patients)
        if found.anatomy_probabilities is not None:
            anatomy, known = found.anatomy_probabilities.argmax(dim=1), batch.has_anatomy.view(-1, 1, 1)
            labels = [(known & (batch.anatomy == label), known & (anatomy == label)) for label in self._anatomy_labels]
            _add_overlap(self.anatomy, labels, patients)
        self._add_errors(batch, found)
        for panel, ids in (("normal", found.normal_ids), ("abnormal", found.abnormal_ids)):
            counts = self.code_counts[panel]
            counts += torch.bincount(ids.flatten().cpu(), minlength=len(counts))

    @property
    def _anatomy_labels(self) -> range:
        return range(1, self.anatomy.shape[1] + 1)

    def _add_errors(self, batch: Batch, found: Decomposition) -> None:
        brain = (batch.image > FILL).any(dim=1)
        lesion = (batch.lesion > 0) & brain
        off_twin = (found.healthy_twin - batch.image).abs()
        self._mean("reconstruction_error").add((found.reconstruction - batch.image).abs(), brain)
        self._mean("healthy_error").add(off_twin, brain & ~lesion)
        self._mean("lesion_change").add(off_twin, lesion)
        if batch.twin is not None and bool(batch.has_twin.any()):
            known = lesion & batch.has_twin.view(-1, 1, 1)
            self._mean("twin_error").add((found.healthy_twin - batch.twin).abs(), known)
            self._mean("twin_error_of_input").add((batch.image - batch.twin).abs(), known)

    def _mean(self, name: str) -> _Mean:
        return self.means.setdefault(name, _Mean())

    def figures(self) -> dict[str, float]:
        """All named figures."""
        dice = _dice(self.overlap)
        named = {f"dice_{name}": float(value) for name, value in zip(self.regions, dice, strict=True)}
        if self.anatomy.any():
            named["dice_anatomy"] = float(_dice(self.anatomy).nanmean())
        errors = {name: mean.value() for name, mean in self.means.items()}
        score = (0.0 if math.isnan(named["dice_whole"]) else named["dice_whole"]) - errors["reconstruction_error"]
        if errors.get("twin_error_of_input", 0) > 0:
            score -= errors["twin_error"] / errors["twin_error_of_input"]
        score += named.get("dice_anatomy", 0.0)
        return {"score": score, **named, **errors, **self._codebook_figures()}

    def _codebook_figures(self) -> dict[str, float]:
        figures = {}
        for panel, counts in self.code_counts.items():
            frequencies = counts / counts.sum().clamp_min(1)
            figures[f"{panel}_usage"] = float((counts > 0).double().mean())
            figures[f"{panel}_perplexity"] = float(torch.special.entr(frequencies).sum().exp())
        return figures


def _among(labels: Tensor, values: tuple[int, ...]) -> Tensor:
    return torch.isin(labels, torch.tensor(values, device=labels.device))


def _add_overlap(overlap: Tensor, pairs: list[tuple[Tensor, Tensor]], patients: Tensor) -> None:
    """Count pixels shared, predicted and true of pairs of masks `[B, H, W]`, true and guessed, patient by patient."""
    for place, (true, guess) in enumerate(pairs):
        pixels = torch.stack([mask.flatten(1).sum(dim=1) for mask in (true & guess, guess, true)], dim=1)  # [B, 3]
        overlap[:, place].index_add_(0, patients, pixels.cpu().double())


def _dice(overlap: Tensor) -> Tensor:
    """Mean over patients, by class; a class that a patient neither has nor is said to have is left out (0 / 0)."""
    shared, predicted, true = overlap.unbind(dim=2)  # [P, classes] each
    return (2 * shared / (predicted + true)).nanmean(dim=0)
