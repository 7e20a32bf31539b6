"""Inpainting: healthy tissue is taken out in the shape of lesions; how near do refiner and simpler fills come to it?

As in the BraTS inpainting challenge, but slice by slice at the model's resolution, so figures compare with one another
and not with the challenge's. For phantoms the refined twin is compared with the true one as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from skimage.restoration import inpaint_biharmonic
from torch import Tensor

from diptych.evaluation.bootstrap import CELLS, summarise
from diptych.evaluation.context import Context
from diptych.evaluation.part import Block, Cell, Figure, Part, Section, Table, left_out
from diptych.evaluation.result_strip import Tile, draw_panel
from diptych.fitting.refiner_fit import Fill, Inpainting, Voided, healthy_voids, judge_fill
from diptych.model.refiner import filled
from diptych.progress import Progress
from diptych.retrieval.refined_twin import TwinRefiner, decoded_guide
from diptych.slices import FILL, SliceDataset, SliceStore

SLICES = 110
IMAGES = ("image", "decoded twin", "refined twin")
CAPTION = (
    "Means over {count} lesion-free slices, inside voids that have the shape of other slices' lesions. "
    " Pixels are above the background, the slice's own span is 1. SSIM has an 11 x 11 window."
)


def run(context: Context, progress: Progress) -> Section:
    refiner = TwinRefiner.open(context.model, context.network)
    if refiner is None:
        return left_out("the model has no refiner; make one with 'diptych fit refiner'")
    homes = list(dict.fromkeys(context.homes[key] for key in context.queries))
    voided = healthy_voids(SliceDataset(homes, context.queries), count=SLICES, seed=context.seed)
    if not voided:
        return left_out("no slice without a lesion has room for a void")
    found: dict[str, Inpainting] = {}
    fills = _fills(refiner)
    for done, (name, fill) in enumerate(fills.items(), 1):
        found[name] = judge_fill(fill, voided)
        progress(done, len(fills), name)
    channels = context.network.description.channels
    blocks: list[Block] = [_table(found, channels, len(voided))]
    numbers: dict[str, object] = {name: vars(one) for name, one in found.items()}
    blocks += _against_true_twins(context, refiner)
    best = found["refiner"]
    headline = (("refined twin in voids, SSIM by channel", "  ".join(f"{value:.2f}" for value in best.ssim)),)
    return Section(tuple(blocks), numbers, headline)


def _fills(refiner: TwinRefiner) -> dict[str, Fill]:
    return {
        "mean of the brain": lambda given: filled(given.images, given.void, FILL),
        "mirror image": lambda given: _inside(given, given.images.flip(-1)),
        "biharmonic": _biharmonic,
        "decoded twin of the voided image": lambda given: _inside(
            given, decoded_guide(refiner.network, given.images, given.void)
        ),
        "refiner": lambda given: refiner.paint(given.images, given.void),
    }


def _inside(given: Voided, paint: Tensor) -> Tensor:
    return torch.where(given.void.unsqueeze(1), paint, given.images)


def _biharmonic(given: Voided) -> Tensor:
    slices = []
    for image, void in zip(given.images.numpy(), given.void.numpy(), strict=True):
        smooth = inpaint_biharmonic(np.where(void, 0.0, image), void, channel_axis=0)
        slices.append(torch.from_numpy(np.asarray(smooth, dtype=np.float32)))
    return torch.stack(slices)


def _table(found: dict[str, Inpainting], channels: Iterable[str], count: int) -> Table:
    rows: list[list[Cell]] = [
        [name, channel, one.ssim[place], one.psnr[place], one.mse[place]]
        for place, channel in enumerate(channels)
        for name, one in found.items()
    ]
    return Table.of(
        "Inside voids of healthy tissue",
        ("fill", "channel", "SSIM", "PSNR, dB", "MSE"),
        rows,
        caption=CAPTION.format(count=count),
        formats={"PSNR, dB": ".1f", "MSE": ".4f"},
    )


@dataclass(frozen=True, eq=False)
class _Phantom:
    """A phantom's slice with the largest lesion, with and without it, and how far all its slices are off the truth."""

    key: str
    off: NDArray[np.float64]
    """Of the image itself, the decoded and the refined twin, inside the lesion."""
    shown: dict[str, NDArray[np.float32]]
    """The last channel by name."""
    pixel_spacing: tuple[float, float]


def _against_true_twins(context: Context, refiner: TwinRefiner) -> list[Block]:
    """Phantoms alone: the known lesion is painted over, and compared with the same brain without it."""
    found = [one for key in context.queries if (one := _compare_phantom(context.homes[key], key, refiner)) is not None]
    if not found:
        return []
    off = np.array([phantom.off for phantom in found])
    table = Table.of(
        "Against the true healthy twin, inside the lesion",
        ("image", *CELLS),
        [(name, *summarise(values).cells) for name, values in zip(IMAGES, off.T, strict=True)],
        caption="Mean absolute difference in z-scores over phantoms, with 95 % bootstrap interval.",
    )
    order = np.argsort(off[:, 2])
    places = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    tiles = [Tile(name, f"off by {found[place].off[2]:.2f}", found[place].shown, {}) for name, place in places.items()]
    picture = draw_panel(tiles, colours={}, pixel_spacing=found[0].pixel_spacing)
    return [table, Figure.of_image("The best, the median and the worst phantom", picture)]


def _compare_phantom(store: SliceStore, key: str, refiner: TwinRefiner) -> _Phantom | None:
    twin, lesion = store.twin(key), np.asarray(store.lesion(key)) > 0
    if twin is None or not lesion.any():
        return None
    network, largest, rows = refiner.network, int(lesion.sum(axis=(1, 2)).argmax()), []
    shown: dict[str, NDArray[np.float32]] = {}
    for place in np.flatnonzero(lesion.any(axis=(1, 2))).tolist():
        image, truth = (np.array(images[place], dtype=np.float32) for images in (store.images(key), twin))
        decoded = network.decode_twin(network.encode(torch.from_numpy(image)[None]).normal)[0].numpy()
        made = dict(zip(IMAGES, (image, decoded, refiner(image, lesion[place].astype(np.uint8))), strict=True))
        rows.append([float(np.abs(one - truth)[:, lesion[place]].mean()) for one in made.values()])
        if place == largest:
            shown = {name: one[-1] for name, one in {**made, "true twin": truth}.items()}
    return _Phantom(key, np.mean(rows, axis=0), shown, store.patients[key].pixel_spacing)


PART = Part(
    "inpainting",
    "The refined healthy twin",
    "How near does the refiner come to healthy tissue that was taken out?",
    run,
    by_default=False,
    settings={"version": 1},
)
