"""One phantom from its seed: head, lesion, push, tissue, growth, images. The order of this file is the whole story."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diptych.description import GLIOMA, STROKE
from diptych.errors import UsageError
from diptych.phantom.atlas import Atlas, load_atlas
from diptych.phantom.brain import Head, Tissue, draw_head, render_tissue
from diptych.phantom.glioma import Lesion, LesionPlan, grow_lesion, plan_lesion, push_field
from diptych.phantom.phantom_config import Disease, PhantomConfig
from diptych.phantom.sequences import Scanner, acquire, draw_scanner
from diptych.phantom.stroke import StrokePlan, grow_stroke, plan_stroke
from diptych.volumes.volume import CHANNELS, Volume


@dataclass(frozen=True, eq=False)
class Phantom:
    """A synthetic patient, its true healthy twin, and how both came about."""

    volume: Volume
    """The patient; `volume.twin` is the same brain, equally pushed, without the lesion's tissue."""
    plan: LesionPlan | StrokePlan | None
    """The lesion's biology; `None` in a healthy phantom."""
    head: Head
    scanner: Scanner
    config: PhantomConfig

    @cached_property
    def before(self) -> Volume:
        """The brain before the tumour: no lesion and no mass effect. Made when first asked for."""
        tissue = render_tissue(self.head, load_atlas(), None, self.config)
        return Volume(
            patient_key=self.volume.patient_key,
            channels=CHANNELS,
            array=acquire(tissue, None, self.scanner, self.config),
            affine=self.volume.affine,
            lesion=np.zeros(self.config.shape, dtype=np.uint8),
            anatomy=tissue.anatomy,
        )


def make_phantom(seed: int, *, index: int = 0, config: PhantomConfig = PhantomConfig()) -> Phantom:
    """Make patient number `index` of the series that `seed` names.

    Anatomy, lesion and scanner have independent random streams derived from `(seed, index)`, so the result does not
    depend on which process makes it nor on what else is made.

    >>> phantom = make_phantom(1, config=PhantomConfig(voxel_mm=8, samples=1))
    >>> phantom.volume.array.shape
    (4, 30, 30, 20)
    """
    if seed < 0 or index < 0:
        raise UsageError(f"seed {seed}, patient {index}: neither may be negative")
    anatomy_rng, lesion_rng, scanner_rng = map(np.random.default_rng, np.random.SeedSequence((seed, index)).spawn(3))
    atlas = load_atlas()
    head = draw_head(anatomy_rng, atlas, config)
    scanner = draw_scanner(scanner_rng, config)
    plan = _plan(lesion_rng, head, atlas, config) if lesion_rng.random() >= config.healthy else None
    push = push_field(plan, head, atlas, config) if isinstance(plan, LesionPlan) else None
    tissue = render_tissue(head, atlas, push, config)
    lesion = _grow(plan, tissue, config) if plan else None
    twin = acquire(tissue, None, scanner, config)
    volume = Volume(
        patient_key=phantom_key(seed, index, disease=config.disease),
        channels=CHANNELS,
        array=acquire(tissue, lesion, scanner, config) if lesion else twin.copy(),
        affine=_affine(config),
        lesion=_labels(lesion, config),
        anatomy=tissue.anatomy,
        twin=twin,
        description=STROKE if config.disease == "stroke" else GLIOMA,
    )
    return Phantom(volume=volume, plan=plan, head=head, scanner=scanner, config=config)


def phantom_key(seed: int, index: int, *, disease: Disease = "glioma") -> str:
    """Name of a phantom, in the form of BraTS 2023 names."""
    return f"Phantom{'Stroke' if disease == 'stroke' else ''}-{seed:05d}-{index:05d}"


def _plan(rng: np.random.Generator, head: Head, atlas: Atlas, config: PhantomConfig) -> LesionPlan | StrokePlan:
    return plan_stroke(rng) if config.disease == "stroke" else plan_lesion(rng, head, atlas, config)


def _grow(plan: LesionPlan | StrokePlan, tissue: Tissue, config: PhantomConfig) -> Lesion:
    return grow_stroke(plan, tissue, config) if isinstance(plan, StrokePlan) else grow_lesion(plan, tissue, config)


def _affine(config: PhantomConfig) -> NDArray[np.float64]:
    """Voxel index to RAS+ millimetres, as BraTS volumes have it: LPS axes, 1-mm voxel (0, 239, 0) at the origin."""
    voxel = config.voxel_mm
    affine = np.diag([-voxel, -voxel, voxel, 1.0])
    affine[:3, 3] = (0.5 - 0.5 * voxel, 239.5 - 0.5 * voxel, 0.5 * voxel - 0.5)
    return affine


def _labels(lesion: Lesion | None, config: PhantomConfig) -> NDArray[np.uint8]:
    return np.zeros(config.shape, dtype=np.uint8) if lesion is None else lesion.labels
