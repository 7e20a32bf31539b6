"""Can a classifier tell from a decoded image that its original held a lesion? (section 4.4.3 and appendix D)

Knows images, labels and slice positions; nothing about where they come from. Patients are dealt into
groups and each group is judged by a classifier trained on the others, so that everybody is scored by one that never saw
them.

Two figures. The paper's is the positive predictive value over all slices; it is confounded, because most slices at the
height of the basal ganglia are diseased and few at the vertex are: a network that only knows height scores well. Ours
is the area under the ROC curve over pairs of one diseased and one healthy slice from the same height, 0.5 by chance.
Both slices of a pair are scored by the same classifier: one that was taught by patients with few lesions calls
everything healthier, and its own patients are then those with many, so that pairs across groups fall below 0.5 with no
leak at all. Healthy slices above and below a diseased one have the same say, for where in the window they lie is height
again (within a group but without that, 0.54).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from diptych.progress import Progress, silent

SAME_HEIGHT = 0.03
"""Slices within this difference in position count as of one height, as in training (`slices.sampling`)."""


@dataclass(frozen=True)
class ClassifierConfig:
    """Shape and training of the classifier; appendix D's at a size that fits a CPU."""

    side: int = 64
    """Rows and columns that images are averaged down to."""
    blocks: tuple[tuple[int, int], ...] = ((2, 8), (2, 16), (3, 32), (3, 32))
    """Convolutions and their width in each block, which ends with 2x2 max-pooling."""
    hidden: int = 64
    """Width of the layer before the last."""
    epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    groups: int = 5
    """Groups that patients are dealt into; the more, the more patients every classifier learns from."""


PAPER = ClassifierConfig(side=32, blocks=((2, 8), (2, 16), (3, 32)), epochs=12)
"""Appendix D at a size that runs here. Its own has 256x256 pixels, six blocks of 32 to 512 channels, which end at 4x4
positions as these do, 100 epochs of batches of 112 and steps of 1e-4."""


class Classifier(nn.Sequential):
    """Appendix D: blocks of 3x3 convolutions with ReLU and max-pooling, then two linear layers; one logit."""

    def __init__(self, config: ClassifierConfig, *, channels: int) -> None:
        layers: list[nn.Module] = []
        for count, width in config.blocks:
            for _ in range(count):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        left = config.side // 2 ** len(config.blocks)
        layers += [nn.Flatten(), nn.Linear(channels * left**2, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 1)]
        super().__init__(*layers)
        for layer in self:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.get_parameter("bias"))


def score_slices(
    images: NDArray[np.float16],
    diseased: NDArray[np.bool_],
    patient: NDArray[np.integer],
    *,
    config: ClassifierConfig = ClassifierConfig(),
    seed: int = 0,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Probability of each slice `[N, C, side, side]` to stem from a diseased one, by a classifier of other patients."""
    group = deal_patients(patient, groups=config.groups, seed=seed)
    groups = np.unique(group).tolist()
    scores = np.full(len(images), np.nan)
    for number in groups:

        def report(done: int, total: int, note: str = "", number: int = number) -> None:
            progress(number * total + done, len(groups) * total, note)

        judged = group == number
        scores[judged] = score_others(
            images[~judged], diseased[~judged], images[judged], config=config, seed=seed + number, progress=report
        )
    return scores


def score_others(
    images: NDArray[np.float16],
    diseased: NDArray[np.bool_],
    others: NDArray[np.float16],
    *,
    config: ClassifierConfig,
    seed: int = 0,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Probability of `others` to stem from diseased slices, by a classifier that learns from `images`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _trained(images, diseased, config, seed, progress)
    return _predict(network, others)


def deal_patients(patient: NDArray[np.integer], *, groups: int, seed: int) -> NDArray[np.integer]:
    """The group of each slice, the same for all slices of a patient, about as many patients in each."""
    people, numbers = np.unique(patient, return_inverse=True)
    dealt = np.random.default_rng(seed).permutation(len(people)) % groups
    return np.asarray(dealt[numbers])


def shrink(images: NDArray[np.float16], side: int) -> NDArray[np.float16]:
    """Average `[Z, C, H, W]` down (or stretch) to `side` x `side`."""
    tensor = torch.from_numpy(images.astype(np.float32))
    return np.asarray(F.interpolate(tensor, (side, side), mode="area").to(torch.float16).numpy())


def height_scores(
    diseased: NDArray[np.bool_],
    position: NDArray[np.floating],
    *,
    group: NDArray[np.integer],
) -> NDArray[np.float64]:
    """What height alone tells: the share of diseased slices about the same height in the other groups' patients."""
    scores = np.full(len(position), np.nan)
    for number in np.unique(group):
        judged, others = np.flatnonzero(group == number), np.flatnonzero(group != number)
        apart = (position[judged, None] - position[others]) / SAME_HEIGHT  # [judged, others]
        nearness = np.exp(-0.5 * np.square(apart)) + 1e-12
        scores[judged] = nearness @ diseased[others] / nearness.sum(axis=1)
    return scores


def positive_predictive_value(scores: NDArray[np.float64], diseased: NDArray[np.bool_]) -> float:
    """Share of slices called diseased (above one half) that are.

    >>> positive_predictive_value(np.array([0.9, 0.8, 0.2]), np.array([True, False, True]))
    0.5
    """
    called = scores > 0.5
    return float(diseased[called].mean()) if called.any() else float("nan")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a diseased and a healthy slice, counted by the patients they come from."""

    right: NDArray[np.float64]
    """Pairs in which the diseased slice scores higher, ties counted half, `[P, P]`: diseased patient, healthy one."""
    total: NDArray[np.float64]
    """All pairs, `[P, P]`."""

    @property
    def auroc(self) -> float:
        """Share of pairs in the right order."""
        return float(self.right.sum() / self.total.sum()) if self.total.any() else float("nan")

    def interval(self, *, draws: int = 1000, seed: int = 0) -> tuple[float, float]:
        """95 % of bootstrap samples over patients lie between these."""
        rng = np.random.default_rng(seed)
        count = len(self.total)
        weights = rng.multinomial(count, np.full(count, 1 / count), size=draws).astype(np.float64)  # [draws, P]
        totals = np.einsum("di,ij,dj->d", weights, self.total, weights, optimize=True)
        rights = np.einsum("di,ij,dj->d", weights, self.right, weights, optimize=True)
        low, high = np.percentile(rights[totals > 0] / totals[totals > 0], (2.5, 97.5))
        return float(low), float(high)


def matched_pairs(
    scores: NDArray[np.float64],
    diseased: NDArray[np.bool_],
    position: NDArray[np.floating],
    patient: NDArray[np.integer],
    *,
    group: NDArray[np.integer] | None = None,
    window: float = SAME_HEIGHT,
) -> Pairs:
    """Pairs of a diseased and a healthy slice whose positions differ by at most `window`.

    Both belong to the same `group`, that is, were scored by the same classifier (default: one scored all). The healthy
    slices below and those above a diseased one weigh the same, as much as the fewer of them.
    """
    people, numbers = np.unique(patient, return_inverse=True)
    right, total = np.zeros((2, len(people), len(people)))
    judge = np.zeros(len(scores), np.int64) if group is None else group
    healthy = {number: np.flatnonzero(~diseased & (judge == number)) for number in np.unique(judge)}
    for place in np.flatnonzero(diseased):
        candidates = healthy[judge[place]]
        offset = position[candidates] - position[place]
        near, offset = candidates[np.abs(offset) <= window], offset[np.abs(offset) <= window]
        weight = _even_sides(offset) if np.isfinite(window) else np.ones(len(near))
        wins = (scores[place] > scores[near]) + 0.5 * (scores[place] == scores[near])
        total[numbers[place]] += np.bincount(numbers[near], weights=weight, minlength=len(people))
        right[numbers[place]] += np.bincount(numbers[near], weights=weight * wins, minlength=len(people))
    return Pairs(right, total)


def _even_sides(offset: NDArray[np.floating]) -> NDArray[np.float64]:
    """Weights by which slices below (negative) and above count alike; those at the very height count one each.

    >>> _even_sides(np.array([-1.0, 1.0, 2.0, 0.0])).tolist()
    [1.0, 0.5, 0.5, 1.0]
    """
    below, above = offset < 0, offset > 0
    fewer = min(below.sum(), above.sum())
    return np.where(below, fewer / max(below.sum(), 1), np.where(above, fewer / max(above.sum(), 1), 1.0))


def _trained(
    images: NDArray[np.float16],
    diseased: NDArray[np.bool_],
    config: ClassifierConfig,
    seed: int,
    progress: Progress,
) -> Classifier:
    """Train on all slices; every second one of a batch is mirrored, which changes nothing about its health."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = Classifier(config, channels=images.shape[1])
    network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(network.parameters(), config.learning_rate, weight_decay=config.weight_decay)
    truth = torch.from_numpy(diseased.astype(np.float32)).to(device)
    rng = np.random.default_rng(seed)
    for epoch in range(config.epochs):
        order = rng.permutation(len(images))
        for start in range(0, len(order) - 1, config.batch_size):
            chosen = order[start : start + config.batch_size]
            batch = _as_tensor(images[chosen], device)
            batch[::2] = batch[::2].flip(3)
            loss = F.binary_cross_entropy_with_logits(network(batch)[:, 0], truth[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        progress(epoch + 1, config.epochs, "epochs of the classifier")
    network.eval()
    return network


@torch.no_grad()
def _predict(network: Classifier, images: NDArray[np.float16]) -> NDArray[np.float64]:
    device = next(network.parameters()).device
    batches = [_as_tensor(images[at : at + 64], device) for at in range(0, len(images), 64)]
    return np.concatenate([network(batch)[:, 0].sigmoid().double().cpu().numpy() for batch in batches])


def _as_tensor(images: NDArray[np.float16], device: torch.device) -> Tensor:
    return torch.from_numpy(images.astype(np.float32)).to(device).contiguous(memory_format=torch.channels_last)
