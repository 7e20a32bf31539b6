"""From a volume to its record: slices, the encoder, areas. What indexing, verification and queries share.

Knows nothing about files or SQLite. `Encoder` is all it asks of a model; `NetworkEncoder` makes one of a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from diptych.archive.metadata import HEALTHY
from diptych.archive.records import WITHOUT, CodeIdArray, ModelIdentity, VolumeInfo, VolumeRecord, id_type
from diptych.description import Description
from diptych.errors import MissingChannelError, VolumeError
from diptych.model.shipped import shipped_model_for
from diptych.model.stored_model import Identified
from diptych.slices import SliceGeometry, SliceStack, slice_volume
from diptych.volumes import Volume

if TYPE_CHECKING:
    from diptych.model import FeatureDecomposingNetwork


BATCH_SIZE = 32


class Encoder(Protocol):
    """What turns slices into ids."""

    @property
    def identity(self) -> ModelIdentity: ...

    @property
    def geometry(self) -> SliceGeometry: ...

    @property
    def description(self) -> Description:
        """Channels, in the order in which they are taken, and classes."""

    def encode(self, images: NDArray[np.float32]) -> tuple[CodeIdArray, CodeIdArray]:
        """Normal and abnormal ids `[B, h, w]` of images `[B, C, H, W]`; the same whatever B is."""

    def lesion_pixels(self, abnormal_ids: CodeIdArray) -> NDArray[np.int64]:
        """Pixels that the model's segmentation calls lesion, `[B]`, from abnormal ids `[B, h, w]`."""


def identity_of(model: Identified) -> ModelIdentity:
    """What an archive keeps of the model that made it."""
    config = model.config
    codes = config.codebook_size
    return ModelIdentity(model.fingerprint, config.latent_size, codes, codes, description=config.about)


class NetworkEncoder:
    """A feature decomposing network as an `Encoder`; it works on whatever device the network is on."""

    def __init__(self, network: FeatureDecomposingNetwork) -> None:
        config = network.config
        self.network = network.eval()
        self.identity = identity_of(network)
        self.geometry = SliceGeometry(size=config.image_size, field=config.field_mm)
        self.description = network.description

    def encode(self, images: NDArray[np.float32]) -> tuple[CodeIdArray, CodeIdArray]:
        import torch

        device = next(self.network.parameters()).device
        ids = self.network.encode(torch.from_numpy(np.ascontiguousarray(images)).to(device))
        kind = id_type(self.identity.normal_codes)
        return ids.normal.cpu().numpy().astype(kind), ids.abnormal.cpu().numpy().astype(kind)

    def lesion_pixels(self, abnormal_ids: CodeIdArray) -> NDArray[np.int64]:
        import torch

        device = next(self.network.parameters()).device
        with torch.no_grad():
            ids = torch.from_numpy(abnormal_ids.astype(np.int64)).to(device)
            logits = self.network.decode_lesion(ids)
            pixels: NDArray[np.int64] = (logits.argmax(dim=1) > 0).sum(dim=(1, 2)).cpu().numpy()
        return pixels


def encode_volume(
    volume: Volume,
    info: VolumeInfo,
    encoder: Encoder,
    *,
    batch_size: int = BATCH_SIZE,
    predict_lesions: bool = False,
) -> VolumeRecord:
    """Cut, encode and measure a volume; `info` comes back with its `lesion_source` and what was missing filled in.

    Lesion areas come from the label map where there is one, are nothing in people known to be healthy, come from the
    model with `predict_lesions`, or stay unknown.
    """
    stack = cut_slices(volume, encoder)
    missing = {WITHOUT + name for name in encoder.description.missing(volume.channels)}
    info = replace(info, tags=tuple(sorted({*info.tags, *missing})))
    starts = range(0, len(stack.images), batch_size)
    batches = [encoder.encode(stack.images[start : start + batch_size]) for start in starts]
    normal, abnormal = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    area = np.full(len(stack.images), np.nan, dtype=np.float32)
    if stack.lesion is not None:
        info = replace(info, lesion_source="labels")
        area = _area(stack, np.count_nonzero(stack.lesion, axis=(1, 2)))
    elif HEALTHY in info.tags:
        info = replace(info, lesion_source="labels")
        area = np.zeros(len(stack.images), dtype=np.float32)
    elif predict_lesions:
        info = replace(info, lesion_source="predicted")
        pixels = [encoder.lesion_pixels(abnormal[start : start + batch_size]) for start in starts]
        area = _area(stack, np.concatenate(pixels))
    return VolumeRecord(
        info=info,
        normal_ids=normal,
        abnormal_ids=abnormal,
        z_index=stack.z_index.astype(np.uint16),
        position=stack.position.astype(np.float32),
        z_mm=stack.z_mm.astype(np.float32),
        lesion_area=area,
        slice_affine=stack.affine,
    )


def cut_slices(volume: Volume, encoder: Encoder) -> SliceStack:
    """The slices of a volume as the encoder takes them: the channels that it knows by name, blank slices left out."""
    about = encoder.description
    without = about.without(volume.channels)
    with naming_another_model(volume.channels, about):
        known = volume.only(
            about.channels if about.needed(volume.channels) else _shared(about.channels, volume.channels)
        )
    stack = slice_volume(known, encoder.geometry, channels=about.channels, fill_missing=True).without_blank()
    if without and without not in stack.warnings:
        stack = replace(stack, warnings=(*stack.warnings, without))
    if len(stack.images) == 0:
        raise VolumeError(f"{volume.patient_key}: every slice is blank; check that the image shows a brain")
    return stack


@contextmanager
def naming_another_model(channels: Iterable[str], about: Description) -> Iterator[None]:
    """Let a refusal for a missing channel name the shipped model that reads what is there, if there is one."""
    try:
        yield
    except MissingChannelError as error:
        name = shipped_model_for(channels, about.disease)
        way = "" if name is None else f"; the shipped model {name} reads what is there: index with --model {name}"
        raise MissingChannelError(f"{error}{way}") from None


def _shared(wanted: tuple[str, ...], there: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in wanted if name in there)


def _area(stack: SliceStack, pixels: NDArray[np.int64]) -> NDArray[np.float32]:
    """Square millimetres."""
    rows, columns = stack.pixel_spacing
    return (pixels * (rows * columns)).astype(np.float32)
