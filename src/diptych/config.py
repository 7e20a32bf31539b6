"""What a network is and how it is trained, as plain values: dataclasses and the named presets.

Knows nothing about torch, files or patients. The `paper-*` presets follow the text of the paper wherever it speaks
(docs/explanation/the-network.md lists where it does not); the others depart from it where a measurement showed that
something else works better. Every field says in one sentence what it does; `--help` shows the same sentence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from diptych.description import Description, described_by_counts
from diptych.errors import ModelError, UsageError

LABEL_GRID = (32, 32)
"""Rows and columns of the label maps that codes decode to."""


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a feature decomposing network; all sizes of all layers follow from it."""

    image_size: tuple[int, int] = (128, 128)
    """Rows and columns of the input."""
    field_mm: tuple[float, float] | None = (200.0, 160.0)
    """Millimetres that the rows and columns cover, around the brain; None takes the whole frame of the scan."""
    latent_size: tuple[int, int] = (8, 8)
    """Rows and columns of the two code grids; the input divided by a power of two."""
    widths: tuple[int, ...] = (12, 24, 48, 64, 96)
    """Channels at full resolution and after each halving; decoders use them backwards."""
    code_width: int = 64
    """Length of a code vector (the paper's D)."""
    codebook_size: int = 256
    """Vectors in each codebook (the paper's K)."""
    channels: int = 4
    """Channels of the input image (the paper's C)."""
    lesion_classes: int = 4
    """Classes of the segmentation decoder, background included (the paper's S)."""
    anatomy_classes: int = 7
    """Classes of the anatomy head, background included; 0 leaves the head out."""
    decoder_entry: Literal["conv", "block"] = "conv"
    """How decoders take in a code: by a 3x3 convolution of their own, or in their first block, as table C.2 has it."""
    spade_norm: Literal["group", "batch"] = "group"
    """Normalisation inside the image decoder: group is ours, batch is the paper's."""
    output_gain: float = 0.1
    """Factor on the initial weights of the decoders' last convolutions; 1 is He et al.'s initialisation."""
    condition_on_background: bool = False
    """Whether the predicted background probability is part of the image decoder's condition."""
    codebook_start: Literal["kmeans", "normal"] = "kmeans"
    """How codebooks begin: centres of the first encoded batches, or draws from N(0, 1)."""
    expire_after: int = 30
    """Replace a code that nothing chose in this many updates; 0 never replaces any."""
    ema_decay: float = 0.99
    """Decay of the moving averages that train the codebooks."""
    ema_epsilon: float = 1e-5
    """Laplace smoothing of the code counts."""
    description: Description | None = None
    """Channels and classes by name; None for models of before there were descriptions (see `about`)."""
    quiet_code: bool = False
    """Whether abnormal code 0 is fixed and means "nothing here": healthy cells go to it, lesions move the others."""
    sufficient_channels: tuple[int, ...] = ()
    """Channels of which one is enough: the network was shown images without the others. Empty: all must be there."""
    deeper: int = 0
    """Residual blocks that follow each branch of the encoder; they begin as nothing, so a network can be given some."""

    def __post_init__(self) -> None:
        (rows, columns), (grid_rows, grid_columns) = self.image_size, self.latent_size
        if grid_rows < 1 or grid_columns < 1 or rows * grid_columns != columns * grid_rows or rows % grid_rows:
            raise UsageError(
                f"image {rows}x{columns}, latent {grid_rows}x{grid_columns}: "
                "both sides must shrink by the same whole factor; change one of the two sizes"
            )
        factor = rows // grid_rows
        if factor < 2 or factor & (factor - 1):
            raise UsageError(
                f"image {rows}x{columns}, latent {grid_rows}x{grid_columns}: the factor {factor} between them "
                "must be a power of two and at least 2"
            )
        if len(self.widths) != self.halvings + 1:
            raise UsageError(
                f"widths {self.widths}: {self.halvings} halvings need {self.halvings + 1} widths, one per resolution"
            )

        sizes = (*self.widths, self.code_width, self.codebook_size, self.channels, self.lesion_classes - 1)
        if min(sizes) < 1:
            raise UsageError(f"{sizes}: widths, codebook, channels and lesion classes must all be positive")
        if self.description is not None and not self.description.of_shape(**self._counts):
            raise UsageError(
                f"description ({self.description.sentence()}): does not have {self.channels} channels, "
                f"{self.lesion_classes} lesion and {self.anatomy_classes} anatomy classes, background included"
            )
        if any(not 0 <= channel < self.channels for channel in self.sufficient_channels):
            raise UsageError(
                f"sufficient channels {self.sufficient_channels}: must be among the {self.channels} channels"
            )

    @property
    def _counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("channels", "lesion_classes", "anatomy_classes")}

    @property
    def about(self) -> Description:
        """The description, with this network's own geometry; the glioma's for a model that brings none."""
        named = self.description or described_by_counts(**self._counts)
        anatomy = named.anatomy if self.anatomy_classes else ()
        enough = tuple(named.channels[place] for place in self.sufficient_channels)
        return replace(named, size=self.image_size, field=self.field_mm, anatomy=anatomy, enough=enough)

    def describing(self, description: Description) -> ModelConfig:
        """The same network for other channels and classes; one without an anatomy head stays without."""
        anatomy = len(description.anatomy) + 1 if description.anatomy and self.anatomy_classes else 0
        return replace(
            self,
            channels=len(description.channels),
            lesion_classes=len(description.lesion) + 1,
            anatomy_classes=anatomy,
            description=description,
            sufficient_channels=tuple(c for c in self.sufficient_channels if c < len(description.channels)),
        )

    @property
    def halvings(self) -> int:
        """Times the encoder halves its input on the way to the latent grid."""
        return (self.image_size[0] // self.latent_size[0]).bit_length() - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values that survive JSON; `from_dict` reads them back."""
        values = asdict(self)
        if self.description is not None:
            values["description"] = self.description.to_json()
        return {name: value for name, value in values.items() if name not in _LATER or _LATER[name] != value}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModelConfig:
        """Read what `to_dict` wrote; unknown or missing fields are refused."""
        names = {field.name for field in fields(cls)}
        values = {**_LATER, **values}
        if wrong := sorted(names ^ values.keys()):
            raise ModelError(f"model config: unknown or missing fields {', '.join(wrong)}; export the model again")
        plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        if plain["description"] is not None:
            plain["description"] = Description.from_json(plain["description"])
        return cls(**plain)


_LATER: dict[str, Any] = {
    "decoder_entry": "conv",
    "description": None,
    "quiet_code": False,
    "sufficient_channels": (),
    "deeper": 0,
}
"""Fields that models of earlier releases lack, with what they were; left out of a description that has just that, so
that a model keeps its fingerprint."""


@dataclass(frozen=True)
class LossConfig:
    """Weights and settings of the training objective (the paper's section 3.1.5)."""

    latent_weight: float = 0.25
    """Weight of the commitment term (λ₁)."""
    segmentation_weight: float = 10.0
    """Weight of generalised Dice plus focal loss (λ₂)."""
    reconstruction_weight: float = 5.0
    """Weight of squared error plus structural dissimilarity (λ₃)."""
    regulariser_weight: float = 3e-3
    """Weight of distribution matching in the network's loss (λ₄); 0 trains without a critic."""
    critic_weight: float = 1.0
    """Factor on the critic's own loss (λ₅), which Adam mostly cancels."""
    anatomy_weight: float = 4.0
    """Weight of the anatomy head's loss, counted only where a patient has anatomy labels."""
    twin_weight: float = 25.0
    """Weight of the healthy twin's error inside the lesion, counted only where the true twin is known."""
    quiet_weight: float = 0.0
    """Weight of the term that draws healthy cells to the quiet code and lesions away from it."""
    label_weight: float = 0.0
    """Weight of small label maps read out of both codes, as `diptych fit labels` reads them from a finished network."""
    teacher_weight: float = 0.0
    """Weight of the distance to the normal grids that the model it began with gives the unchanged slices."""
    critic_steps: int = 5
    """Critic updates before each update of the network (m)."""
    gradient_penalty: float = 10.0
    """Weight of the critic's gradient penalty (λ_gp)."""
    penalised_slope: Literal["norm", "squared"] = "norm"
    """What the penalty draws towards 1: the norm of the critic's gradient (Gulrajani et al.), or its square."""
    focal_gamma: float = 2.0
    """Exponent of the focal loss (γ)."""
    dice_floor: float = 64.0
    """Pixels that a class counts at least in its Dice weight; 0 is the paper's weight, unbounded for absent classes."""
    data_range: float = 8.0
    """Span of pixel values that SSIM assumes: z-scores are clipped to [-3, 5]."""

    @property
    def distribution_matching(self) -> bool:
        """Whether a critic is trained at all."""
        return self.regulariser_weight > 0

    @property
    def paints(self) -> bool:
        """Whether any term looks at decoded images or anatomy; otherwise their decoder is neither run nor trained."""
        return max(self.reconstruction_weight, self.anatomy_weight, self.twin_weight) > 0


@dataclass(frozen=True)
class TrainingConfig:
    """How long, how fast and on what batches a network is trained."""

    batch_size: int = 32
    """Slices per update."""
    micro_batch: int = 0
    """Slices per pass, with gradients accumulated up to the batch size; 0 takes the whole batch at once. Batch
    normalisation, where a network has it, and Dice then see so many slices."""
    epochs: int = 40
    """Passes over the training slices."""
    learning_rate: float = 1e-3
    """Adam's step size for the network, at its peak."""
    critic_learning_rate: float = 1e-3
    """Adam's step size for the critic."""
    weight_decay: float = 1e-5
    """Adam's weight decay."""
    adam_betas: tuple[float, float] = (0.9, 0.999)
    """Decay of Adam's two moving averages, for network and critic."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """How the step size falls after warm-up."""
    warmup_steps: int = 100
    """Updates over which the step size rises from zero."""
    final_fraction: float = 0.02
    """Share of the peak step size left at the end of the cosine."""
    clip_norm: float = 1.0
    """Largest norm of the network's gradient; 0 does not clip."""
    match_position: bool = True
    """Whether a batch is made of pairs, a healthy and a diseased slice from the same height; otherwise slices come as
    they are shuffled, each one once per epoch."""
    blank_slices: bool = False
    """Whether to train on slices that show no brain as well; the store must have them ('diptych prepare --blank')."""
    rotation_degrees: float = 10.0
    """Largest random rotation of a training slice."""
    flip: bool = True
    """Whether half the training slices are mirrored left to right."""
    contrast_changes: float = 1.0
    """How far contrast, brightness, gamma and noise of training slices vary: 1 as scanners do, 0 not at all."""
    degradations: float = 0.0
    """How far training slices are degraded as on other scanners (bias, blur, thick slices, ghosts, …); 0 not at all."""
    degraded_share: float = 1.0
    """Share of training slices that may be degraded; the others stay as they were scanned."""
    channel_dropout: float = 0.0
    """Share of training slices that lack channels; one of the network's sufficient channels always stays."""
    paint_every: int = 1
    """One update in so many decodes images and anatomy, which takes most of the time; the others do without."""
    graft_share: float = 0.25
    """Share of diseased slices that become a lesion grafted on a healthy slice, whose healthy twin is then known."""
    average_decay: float = 0.998
    """Decay of the moving average of the weights, which is what is judged and exported; 0 takes the weights."""
    exported: Literal["best", "last"] = "best"
    """Which network a run exports: the best on validation so far, or the last."""
    codebook_batches: int = 8
    """Batches whose codes the k-means start looks at."""
    validate_every: int = 500
    """Updates between looks at the validation patients."""
    seed: int = 0
    """Start of every random draw."""


@dataclass(frozen=True)
class Preset:
    """A named, complete choice: network with its slice geometry, losses and training."""

    name: str
    summary: str
    """One sentence for lists of presets."""
    model: ModelConfig
    losses: LossConfig
    training: TrainingConfig


def _paper_preset(side: int, *, matching: bool) -> Preset:
    """Section 4.3.1 and appendix C: 256x256 whole frames, D = 64, K = 512, no later inventions."""
    halvings = (256 // side).bit_length() - 1
    weight = 1e-4 if side <= 8 else 5e-4
    return Preset(
        name=f"paper-{side}x{side}" + ("" if matching else "-nodm"),
        summary=f"the paper's {side}x{side} network, {'with' if matching else 'without'} distribution matching",
        model=ModelConfig(
            image_size=(256, 256),
            field_mm=None,
            latent_size=(side, side),
            widths=(32, 64, *[128] * (halvings - 1)),
            code_width=64,
            codebook_size=512,
            anatomy_classes=0,
            spade_norm="batch",
            decoder_entry="block",
            output_gain=1.0,
            condition_on_background=True,
            codebook_start="normal",
            expire_after=0,
        ),
        losses=LossConfig(
            segmentation_weight=5.0,
            regulariser_weight=weight if matching else 0.0,
            critic_weight=weight,
            anatomy_weight=0.0,
            twin_weight=0.0,
            penalised_slope="squared",
            dice_floor=0.0,
        ),
        training=TrainingConfig(
            batch_size=112,
            epochs=400,
            learning_rate=1e-4,
            critic_learning_rate=1e-4,
            weight_decay=1e-5,
            schedule="constant",
            warmup_steps=0,
            clip_norm=0.0,
            match_position=False,
            blank_slices=True,
            contrast_changes=0.0,
            graft_share=0.0,
            average_decay=0.0,
            exported="last",
        ),
    )


def _our_presets() -> list[Preset]:
    cpu = Preset(
        name="cpu-8x8",
        summary="128x128 slices on two CPU cores: about an hour to a usable model",
        model=ModelConfig(),
        losses=LossConfig(),
        training=TrainingConfig(),
    )
    fine = replace(
        cpu,
        name="cpu-16x16",
        summary="128x128 slices with four times the cells: finer labels, a larger archive",
        model=ModelConfig(latent_size=(16, 16), widths=(12, 24, 48, 96)),
        losses=LossConfig(segmentation_weight=12.0, anatomy_weight=16.0, regulariser_weight=3e-4),
    )
    small = replace(
        cpu,
        name="cpu-8x8-small",
        summary="64x64 slices, half a million parameters: minutes, for trying things out",
        model=ModelConfig(image_size=(64, 64), widths=(8, 16, 32, 64), code_width=32, codebook_size=128),
        training=TrainingConfig(epochs=20),
    )
    gpu = replace(
        cpu,
        name="gpu-8x8",
        summary="256x256 slices at the paper's widths, with our corrections, for a GPU",
        model=ModelConfig(image_size=(256, 256), widths=(32, 64, 128, 128, 128, 128), codebook_size=512),
        training=TrainingConfig(batch_size=64, epochs=100, learning_rate=5e-4, critic_learning_rate=5e-4),
    )
    return [cpu, fine, _adapting(fine), small, gpu]


def _adapting(fine: Preset) -> Preset:
    """What teaches a finished network new conditions: its normal panel is held near, its codes are read as labels."""
    return replace(
        fine,
        name="adapt-16x16",
        summary="makes a cpu-16x16 model (--from) hold elsewhere: other scanners, missing channels, quiet lesion panel",
        model=replace(fine.model, quiet_code=True, sufficient_channels=(1, 3), deeper=2),
        losses=replace(
            fine.losses,
            regulariser_weight=0.0,
            quiet_weight=3.0,
            label_weight=4.0,
            teacher_weight=8.0,
        ),
        training=TrainingConfig(
            batch_size=16,
            epochs=12,
            learning_rate=6e-4,
            warmup_steps=100,
            degradations=1.0,
            degraded_share=0.5,
            channel_dropout=0.3,
            paint_every=4,
            exported="last",
        ),
    )


_PAPER_SIDES = (4, 8, 16, 32)

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in [
        *_our_presets(),
        *(_paper_preset(side, matching=matching) for side in _PAPER_SIDES for matching in (True, False)),
    ]
}
"""Every preset by name, ours first."""


def get_preset(name: str) -> Preset:
    """The preset called `name`.

    >>> get_preset("paper-8x8").model.codebook_size
    512
    """
    if name not in PRESETS:
        raise UsageError(f"preset {name!r}: there is none of that name; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
