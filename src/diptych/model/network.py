"""The feature decomposing network: the paper's section 3.1 from the top.

    image ── encoder ──┬─ normal grid ──── quantise ── normal code ──┬── image decoder, no lesion ── healthy twin x̂⁻
                       │                                             └── image decoder, lesion ──── reconstruction x̂⁺
                       └─ abnormal grid ── quantise ── abnormal code ─── segmentation decoder ───── lesion ŷ

`forward` is for training, `encode` is all that an archive needs, `decode` is the way back from ids, `decompose` is
everything there is to see. Knows nothing about losses, optimisers or files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from diptych.config import ModelConfig
from diptych.description import Description
from diptych.errors import UsageError
from diptych.model import stored_model
from diptych.model.blocks import he_init_
from diptych.model.decoders import AnatomyHead, ImageDecoder, SegmentationDecoder, semantic_map
from diptych.model.encoder import Encoder
from diptych.model.quantizer import Quantized, VectorQuantizer

ENCODE_CHUNK = 8
"""Images that `encode` passes at a time, always exactly so many: rounding, and with it every id, is then the same
however many images the caller brings."""


@dataclass(frozen=True)
class ForwardResult:
    """Everything that the losses need."""

    normal: Quantized
    abnormal: Quantized
    lesion_logits: Tensor
    """`[B, S, H, W]`, background first."""
    anatomy_logits: Tensor | None
    """`[B, A, H, W]`, background first; None without an anatomy head."""
    reconstruction: Tensor | None
    """x̂⁺ `[B, C, H, W]`; None where images were not asked for."""
    healthy_twin: Tensor | None
    """x̂⁻ `[B, C, H, W]`; None where images were not asked for."""


@dataclass(frozen=True)
class CodeIds:
    """What an archive stores of an image: two int64 grids `[B, h, w]`."""

    normal: Tensor
    abnormal: Tensor


@dataclass(frozen=True)
class Decoding:
    """What two grids of ids look like."""

    lesion_probabilities: Tensor
    """`[B, S, H, W]`, background first; from the abnormal ids alone."""
    anatomy_probabilities: Tensor | None
    """`[B, A, H, W]`, background first; from the normal ids alone; None without an anatomy head."""
    reconstruction: Tensor
    """x̂⁺ `[B, C, H, W]`, the image decoded from both."""
    healthy_twin: Tensor
    """x̂⁻ `[B, C, H, W]`, from the normal ids alone."""


@dataclass(frozen=True)
class Decomposition:
    """An image read as two panels."""

    normal_ids: Tensor
    """`[B, h, w]`, exactly what `encode` gives."""
    abnormal_ids: Tensor
    """`[B, h, w]`, exactly what `encode` gives."""
    normal_code: Tensor
    """`[B, D, h, w]`."""
    abnormal_code: Tensor
    """`[B, D, h, w]`."""
    lesion_probabilities: Tensor
    """`[B, S, H, W]`, background first."""
    anatomy_probabilities: Tensor | None
    """`[B, A, H, W]`, background first; None without an anatomy head."""
    reconstruction: Tensor
    """x̂⁺ `[B, C, H, W]`, the image decoded from both codes."""
    healthy_twin: Tensor
    """x̂⁻ `[B, C, H, W]`, the generated normal-appearing image."""
    normal_error: Tensor
    """Squared distance between encoder output and normal code in each cell, `[B, h, w]`."""
    abnormal_error: Tensor
    """Squared distance between encoder output and abnormal code in each cell, `[B, h, w]`."""


class FeatureDecomposingNetwork(nn.Module):
    """Encoder, two quantisers, segmentation decoder, image decoder and, where asked for, an anatomy head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self._fingerprint: tuple[object, str] | None = None
        self.encoder = Encoder(config)
        self.normal_quantizer = VectorQuantizer(config)
        self.abnormal_quantizer = VectorQuantizer(config, quiet=config.quiet_code)
        self.segmentation_decoder = SegmentationDecoder(config)
        self.image_decoder = ImageDecoder(config)
        self.anatomy_head = AnatomyHead(config) if config.anatomy_classes else None
        self.apply(he_init_)
        self.encoder.begin_as_nothing(config.deeper)
        with torch.no_grad():
            self.segmentation_decoder.out.weight *= config.output_gain
            self.image_decoder.out.weight *= config.output_gain
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def description(self) -> Description:
        """Channels, classes and slice geometry, by name."""
        return self.config.about

    @property
    def fingerprint(self) -> str:
        """The identity of these weights and this config; kept until a weight is changed."""
        state = self.state_dict()
        versions = tuple((tensor.data_ptr(), tensor._version) for tensor in state.values())  # torch counts changes
        if self._fingerprint is None or self._fingerprint[0] != versions:
            self._fingerprint = versions, fingerprint(self.config, state)
        return self._fingerprint[1]

    @property
    def codebooks(self) -> dict[str, NDArray[np.float32]]:
        """By panel, `[K, D]`, as arrays."""
        return {panel: quantizer.codebook.detach().cpu().numpy() for panel, quantizer in self.quantizers.items()}

    @property
    def quantizers(self) -> dict[str, VectorQuantizer]:
        """By panel."""
        return {"normal": self.normal_quantizer, "abnormal": self.abnormal_quantizer}

    def forward(self, images: Tensor, lesion: Tensor | None = None, *, painted: bool = True) -> ForwardResult:
        """One training pass over `[B, C, H, W]`: the first six lines of Algorithm 1.

        Args:
            images: what to read.
            lesion: labels `[B, H, W]`; where a quiet code is trained, they say which cells move the other codes.
            painted: whether to decode the two images and the anatomy, which cost more than all the rest.
        """
        normal_grid, abnormal_grid = self.encoder(self._checked(images))
        normal = self.normal_quantizer(normal_grid)
        living = None if lesion is None else lesion_cells(lesion, self.config.latent_size)
        abnormal = self.abnormal_quantizer(abnormal_grid, living)
        lesion_logits = self.segmentation_decoder(abnormal.code)
        if not painted:
            return ForwardResult(normal, abnormal, lesion_logits, None, None, None)
        reconstruction, healthy_twin, anatomy_logits = self._paint(normal.code, lesion_logits)
        return ForwardResult(normal, abnormal, lesion_logits, anatomy_logits, reconstruction, healthy_twin)

    @torch.no_grad()
    def encode(self, images: Tensor) -> CodeIds:
        """The two id grids of `[B, C, H, W]`; runs the encoder and nothing else."""
        ids, _, _ = self._encode(images)
        return ids

    @torch.no_grad()
    def decode(self, ids: CodeIds) -> Decoding:
        """Labels, reconstruction and healthy twin from two id grids `[B, h, w]`; call it in evaluation mode."""
        lesion_logits = self.decode_lesion(ids.abnormal)
        normal_code = self.normal_quantizer.lookup(ids.normal)
        reconstruction, healthy_twin, anatomy_logits = self._paint(normal_code, lesion_logits)
        return Decoding(
            lesion_probabilities=lesion_logits.softmax(dim=1),
            anatomy_probabilities=None if anatomy_logits is None else anatomy_logits.softmax(dim=1),
            reconstruction=reconstruction,
            healthy_twin=healthy_twin,
        )

    @torch.no_grad()
    def decode_lesion(self, abnormal_ids: Tensor) -> Tensor:
        """Logits of the lesion classes, `[B, classes, H, W]`, from abnormal ids `[B, h, w]` alone."""
        logits: Tensor = self.segmentation_decoder(self.abnormal_quantizer.lookup(abnormal_ids))
        return logits

    @torch.no_grad()
    def decode_anatomy(self, normal_ids: Tensor) -> Tensor:
        """Logits of the anatomy classes from normal ids alone, with no lesion painted; needs an anatomy head."""
        assert self.anatomy_head is not None, "ask the config before"
        logits: Tensor = self.anatomy_head(self._healthy_features(normal_ids))
        return logits

    @torch.no_grad()
    def decode_twin(self, normal_ids: Tensor) -> Tensor:
        """The healthy twin `[B, C, H, W]` from normal ids `[B, h, w]`, and nothing else."""
        twin: Tensor = self.image_decoder.out(self._healthy_features(normal_ids))
        return twin

    def _healthy_features(self, normal_ids: Tensor) -> Tensor:
        """What the image decoder paints from normal ids where no lesion is given."""
        config, decoder = self.config, self.image_decoder
        channels = config.lesion_classes if config.condition_on_background else config.lesion_classes - 1
        nothing = torch.zeros(0, channels, *config.image_size, device=normal_ids.device)
        return decoder.paint(decoder.stem(self.normal_quantizer.lookup(normal_ids)), nothing)

    @torch.no_grad()
    def decompose(self, images: Tensor) -> Decomposition:
        """Ids, codes, labels, reconstruction and healthy twin of `[B, C, H, W]`; call it in evaluation mode."""
        ids, normal_grid, abnormal_grid = self._encode(images)
        normal_code = self.normal_quantizer.lookup(ids.normal)
        abnormal_code = self.abnormal_quantizer.lookup(ids.abnormal)
        return Decomposition(
            normal_ids=ids.normal,
            abnormal_ids=ids.abnormal,
            normal_code=normal_code,
            abnormal_code=abnormal_code,
            **vars(self.decode(ids)),
            normal_error=(normal_grid - normal_code).square().sum(dim=1),
            abnormal_error=(abnormal_grid - abnormal_code).square().sum(dim=1),
        )

    @torch.no_grad()
    def start_codebooks(self, batches: Iterable[Tensor]) -> None:
        """Fit both codebooks to the first batches of images, where the config asks for that."""
        if self.config.codebook_start == "kmeans":
            grids = [self.encoder(self._checked(images)) for images in batches]
            self.normal_quantizer.start([normal for normal, _ in grids])
            self.abnormal_quantizer.start([abnormal for _, abnormal in grids])

    @torch.no_grad()
    def fall_quiet(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Give a trained network its quiet abnormal code, from images `[B, C, H, W]` and lesion labels `[B, H, W]`."""
        pairs = [
            (self.encoder(self._checked(images))[1], lesion_cells(lesion, self.config.latent_size))
            for images, lesion in batches
        ]
        self.abnormal_quantizer.fall_quiet([grid for grid, _ in pairs], [cells for _, cells in pairs])

    def update_codebooks(self, *, normal: bool = True) -> None:
        """Move both codebooks, or the abnormal one alone, towards what was seen since the last call; once per step."""
        if normal:
            self.normal_quantizer.update()
        else:
            self.normal_quantizer.forget()
        self.abnormal_quantizer.update()

    def _paint(self, normal_code: Tensor, lesion_logits: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """x̂⁺, x̂⁻ and anatomy logits, in one pass of the image decoder over both conditions.

        An image in which no lesion is predicted has the null condition anyway, so its reconstruction *is* its healthy
        twin and is not painted twice. (Not with batch statistics, which tie the images of a batch together.)
        """
        decoder = self.image_decoder
        semantics = semantic_map(lesion_logits, with_background=self.config.condition_on_background)
        lesioned = semantics.flatten(1).any(dim=1)
        if self.config.spade_norm == "batch":
            lesioned = torch.ones_like(lesioned)
        places = lesioned.nonzero().flatten()

        stem = decoder.stem(normal_code)
        painted = decoder.paint(torch.cat([stem.index_select(0, places), stem]), semantics[places])
        twin_features = painted[len(places) :]
        anatomy_logits = None if self.anatomy_head is None else self.anatomy_head(twin_features)

        images = decoder.out(painted)
        lesioned_images, healthy_twin = images[: len(places)], images[len(places) :]
        return healthy_twin.index_copy(0, places, lesioned_images), healthy_twin, anatomy_logits

    def _encode(self, images: Tensor) -> tuple[CodeIds, Tensor, Tensor]:
        """Ids and continuous grids `[B, D, h, w]`, from passes that always have the same shape."""
        images = self._checked(images)
        count = len(images)
        filled = torch.cat([images, images.new_zeros(-count % ENCODE_CHUNK, *images.shape[1:])])
        parts = []
        for chunk in torch.split(filled, ENCODE_CHUNK):
            normal, abnormal = self.encoder(_channels_last(chunk))
            ids = self.normal_quantizer.nearest(normal), self.abnormal_quantizer.nearest(abnormal)
            parts.append((*ids, normal, abnormal))
        normal_ids, abnormal_ids, normal, abnormal = (torch.cat(part)[:count] for part in zip(*parts, strict=True))
        return CodeIds(normal_ids, abnormal_ids), normal, abnormal

    def _checked(self, images: Tensor) -> Tensor:
        expected = (self.config.channels, *self.config.image_size)
        if images.ndim != 4 or images.shape[1:] != expected:
            raise UsageError(
                f"images {tuple(images.shape)}: this network takes [B, {', '.join(map(str, expected))}]; "
                "prepare slices with the preset of the model"
            )
        return _channels_last(images)


def lesion_cells(lesion: Tensor, grid: tuple[int, int]) -> Tensor:
    """Which cells of a `grid` hold any lesion pixel of labels `[B, H, W]`, bool `[B, h, w]`."""
    return F.adaptive_max_pool2d((lesion > 0).float().unsqueeze(1), grid).squeeze(1) > 0


def _channels_last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def fingerprint(config: stored_model.Describable, *states: Mapping[str, Tensor]) -> str:
    """The identity of a config with the weights of one or several networks; see `stored_model.fingerprint`."""
    arrays = [{name: tensor.detach().cpu().numpy() for name, tensor in state.items()} for state in states]
    return stored_model.fingerprint(config, *arrays)
