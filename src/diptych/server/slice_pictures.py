"""Slices as PNG: grey images in a window, labels and differences as transparent overlays, in the body's proportions.

Knows cases and Pillow; nothing about HTTP. All kinds of one slice have the same frame, so that they can be laid over
one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import distance_transform_edt, gaussian_filter

from diptych.description import Description
from diptych.drawing.tile import EDGE, tile_size
from diptych.retrieval.explanation import SlicePixels, SliceView
from diptych.server.cases import Case, Cases
from diptych.server.channel_images import Window
from diptych.server.problems import not_found
from diptych.slices import FILL

Kind = Literal["image", "reconstruction", "twin", "refined", "mask", "label", "anatomy", "difference", "thumbnail"]
KINDS: tuple[Kind, ...] = get_args(Kind)

CODES_WINDOW: Window = (-2.0, 3.5)
"""Z-scores shown black and white where only codes are known."""
BRIGHTER, DARKER = (190, 125, 255), (95, 220, 110)
"""Colours of a difference, violet and green: brighter and darker than the healthy twin. No class of lesion has them."""
NOTHING, FULL = 0.6, 2.4
"""Z-scores from which on a difference shows, and at which it is opaque."""
SMOOTH = 1.2
"""Pixels over which a difference is smoothed: fine texture, which no code can hold, is not disease."""
RIM = 5.0
"""Pixels from the brain's edge over which a difference fades: the twin's edge is never as sharp as the image's."""
COMPRESSION = 3


@dataclass(frozen=True)
class Drawing:
    """How a slice is drawn."""

    kind: Kind
    channel: str
    height: int
    window: Window | None = None
    """Signal shown black and white; by default what `channel_images` finds usual for the brain."""


def draw(cases: Cases, case: Case, z: int, drawing: Drawing) -> bytes:
    """A PNG of one slice of a case."""
    about = cases.library.current.description
    if drawing.kind in ("image", "thumbnail"):
        return _encode(_grey(_image(cases, case, z, drawing), window_for(cases, case, drawing)))
    if drawing.kind == "label":
        return _encode(_paint(_known(cases, case, z, drawing), about.lesion_colours))
    if drawing.kind == "mask":
        labels = cases.lesion(case, z)
        return _encode(_paint(_enlarged(labels, _size(labels.shape, case, drawing)), about.lesion_colours))
    if drawing.kind == "refined":
        return _encode(_grey(_refined(cases, case, z, drawing), window_for(cases, case, drawing)))
    scale, image = (0.0, 1.0), None
    if drawing.channel in case.files:
        signal = cases.signal(case, drawing.channel)
        scale = signal.mean, signal.deviation
        if drawing.kind == "difference":
            image = _z_scores(cases, case, z, drawing)
    size = _size(cases.library.image_size, case, drawing)
    channel = channel_place(cases, drawing.channel)
    return draw_decoded(
        cases.view(case, z),
        drawing,
        channel,
        about=about,
        size=size,
        scale=scale,
        window=window_for(cases, case, drawing),
        image=image,
    )


def draw_decoded(
    view: SliceView,
    drawing: Drawing,
    channel: int,
    *,
    about: Description,
    size: tuple[int, int],
    scale: tuple[float, float] = (0.0, 1.0),
    window: Window = CODES_WINDOW,
    image: NDArray[np.float32] | None = None,
) -> bytes:
    """A PNG of what codes decode to; `scale` is the mean and deviation that turn z-scores into signal."""
    if drawing.kind == "mask":
        return _encode(_paint(_enlarged(view.predicted_lesion, size), about.lesion_colours))
    if drawing.kind == "anatomy":
        if view.predicted_anatomy is None:
            raise not_found("anatomy: this model predicts none")
        return _encode(_paint(_enlarged(view.predicted_anatomy, size), about.anatomy_colours))
    if drawing.kind == "difference":
        seen = view.reconstruction[channel] if image is None else image
        return _encode(_heat(_resized(_difference(seen, view.healthy_twin[channel]), size)))
    decoded = view.healthy_twin if drawing.kind == "twin" else view.reconstruction
    mean, deviation = scale
    shown = _resized(decoded[channel], size)
    signal = np.where(shown > FILL + EDGE, shown * deviation + mean, window[0])  # a decoder is never quite at FILL
    return _encode(_grey(signal.astype(np.float32), window))


def window_for(cases: Cases, case: Case, drawing: Drawing) -> Window:
    """The asked window, or the one that suits the channel; the same for the image, its twin and all its slices."""
    if drawing.window is not None:
        return drawing.window
    return cases.signal(case, drawing.channel).window if drawing.channel in case.files else CODES_WINDOW


def channel_place(cases: Cases, channel: str) -> int:
    """Where a channel stands in the network's images."""
    names = cases.library.channels
    if channel not in names:
        raise not_found(f"channel {channel}: this model has {', '.join(names)}")
    return names.index(channel)


def _size(shape: tuple[int, ...], case: Case, drawing: Drawing) -> tuple[int, int]:
    return tile_size(shape, case.pixel_spacing, height=drawing.height)


def _image(cases: Cases, case: Case, z: int, drawing: Drawing) -> NDArray[np.float32]:
    case.place(z)
    shape = cases.library.image_size
    signal = cases.signal(case, drawing.channel)
    return signal.plane(case.record.slice_affine, z, shape=shape, size=_size(shape, case, drawing))


def _z_scores(cases: Cases, case: Case, z: int, drawing: Drawing) -> NDArray[np.float32]:
    """The image as large as the network sees it, on the network's scale."""
    H, W = cases.library.image_size
    signal = cases.signal(case, drawing.channel)
    plane = signal.plane(case.record.slice_affine, z, shape=(H, W), size=(W, H))
    scores = np.clip((plane - signal.mean) / signal.deviation, -3.0, 5.0)
    return np.where(plane > 0, scores, -3.0).astype(np.float32)


def slice_pixels(cases: Cases, case: Case, z: int) -> SlicePixels | None:
    """A slice as the network sees it, without cutting all the others too.

    None where only codes are known.
    """
    names = cases.library.channels
    if not all(name in case.files for name in names):
        return None
    case.place(z)
    image = np.stack([_z_scores(cases, case, z, Drawing("image", name, 1)) for name in names])
    H, W = cases.library.image_size
    labels = {
        role: cases.signal(case, role).labels(case.record.slice_affine, z, shape=(H, W), size=(W, H))
        for role in ("lesion", "anatomy")
        if role in case.files
    }
    return SlicePixels(image, labels.get("lesion"), labels.get("anatomy"))


def _refined(cases: Cases, case: Case, z: int, drawing: Drawing) -> NDArray[np.float32]:
    """The scan at full size, with the refiner's pixels where the lesion is, blended over a pixel's width."""
    refiner = cases.library.current.refiner
    if refiner is None:
        raise not_found("refined twin: this model has no refiner; see 'diptych fit refiner'")
    if (pixels := slice_pixels(cases, case, z)) is None:
        raise not_found(f"refined twin: {case.info.volume_key} has no images of all the model's channels here")
    channel, lesion = channel_place(cases, drawing.channel), cases.lesion(case, z)
    scan, signal = _image(cases, case, z, drawing), cases.signal(case, drawing.channel)
    size = scan.shape[1], scan.shape[0]
    painted = refiner(pixels.image, lesion)[channel]
    changed = _resized((painted != pixels.image[channel]).astype(np.float32), size).clip(0.0, 1.0)
    healthy = _resized(painted, size) * signal.deviation + signal.mean
    return np.asarray(scan * (1 - changed) + healthy * changed, dtype=np.float32)


def _known(cases: Cases, case: Case, z: int, drawing: Drawing) -> NDArray[np.uint8]:
    case.place(z)
    shape = cases.library.image_size
    signal = cases.signal(case, "lesion")
    return signal.labels(case.record.slice_affine, z, shape=shape, size=_size(shape, case, drawing))


def _resized(image: NDArray[np.floating], size: tuple[int, int]) -> NDArray[np.float32]:
    grey = Image.fromarray(np.ascontiguousarray(image, dtype=np.float32))
    return np.asarray(grey.resize(size, Image.Resampling.BICUBIC))


def _enlarged(labels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Labels at another size with smooth edges: every class is resized, and the strongest wins."""
    classes = [int(value) for value in np.unique(labels)]
    shares = [_resized((labels == value).astype(np.float32), size) for value in classes]
    return np.asarray(np.array(classes, dtype=np.uint8)[np.argmax(shares, axis=0)])


def _grey(image: NDArray[np.float32], window: Window) -> Image.Image:
    low, high = window
    shown = np.clip((image - low) / max(high - low, 1e-6), 0.0, 1.0)
    return Image.fromarray((shown * 255.0 + 0.5).astype(np.uint8))


def _paint(labels: NDArray[np.uint8], colours: Mapping[int, tuple[int, int, int]]) -> Image.Image:
    """Opaque colours on a transparent ground; how strongly they show is the viewer's business."""
    table = np.zeros((256, 4), dtype=np.uint8)
    for value, colour in colours.items():
        table[value] = (*colour, 255)
    return Image.fromarray(table[labels])


def paint_labels(
    labels: NDArray[np.uint8], size: tuple[int, int], colours: Mapping[int, tuple[int, int, int]]
) -> bytes:
    """Labels as an overlay of a size (width, height)."""
    return _encode(_paint(_enlarged(labels, size), colours))


def _difference(seen: NDArray[np.float32], twin: NDArray[np.float32]) -> NDArray[np.float32]:
    """How much brighter an image is than its twin, in z-scores, where both show brain."""
    brain = (seen > FILL + EDGE) & (twin > FILL + EDGE)
    inside = np.clip(distance_transform_edt(np.pad(brain, 1))[1:-1, 1:-1] / RIM, 0.0, 1.0)
    smooth = gaussian_filter(np.where(brain, seen - twin, 0.0), SMOOTH)
    return np.asarray(smooth * inside, dtype=np.float32)


def _heat(difference: NDArray[np.float32]) -> Image.Image:
    strength = np.clip((np.abs(difference) - NOTHING) / (FULL - NOTHING), 0.0, 1.0)
    colour = np.where(difference[..., None] > 0, BRIGHTER, DARKER)
    return Image.fromarray(np.concatenate([colour, strength[..., None] * 255.0], axis=2).astype(np.uint8))


def _encode(image: Image.Image) -> bytes:
    buffer = BytesIO()
    image.save(buffer, "PNG", compress_level=COMPRESSION)
    return buffer.getvalue()
