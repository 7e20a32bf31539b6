"""A lesion painted by hand as a question: label map → abnormal ids, through the model's label encoder.

    sketcher = Sketcher.of(archive)
    answer = ask_sketch(archive, sketcher, read_sketch("lesion.png"))

A label map has the size of the network's input, rows from anterior to posterior, columns from the patient's right to
the left: 0 background, 1 NET, 2 ED, 3 ET. The label encoder lies beside the model as `sketch.safetensors`, belongs to
exactly one model and is never part of its fingerprint. Fitting one is `sketch_fitting.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from nibabel.orientations import apply_orientation
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from diptych.errors import LabelError, ModelError, UsageError
from diptych.metrics.model_file import Companion
from diptych.model import FeatureDecomposingNetwork
from diptych.model.label_networks import LabelEncoder
from diptych.retrieval.answer import Answer
from diptych.retrieval.archive import Archive
from diptych.retrieval.encoded_slice import EncodedSlice
from diptych.retrieval.question import Question
from diptych.search.query import panel_word
from diptych.volumes import Limits
from diptych.volumes.geometry import to_canonical
from diptych.volumes.nifti import read_nifti

SKETCH_FILE = "sketch.safetensors"
LABEL_ENCODER = Companion(
    file=SKETCH_FILE,
    format="diptych-sketch",
    version="2",
    called="a label encoder",
    command="diptych fit sketch STORE --model MODEL",
)


@dataclass(frozen=True, eq=False)
class Sketcher:
    """A network with the label encoder that was fitted to it."""

    network: FeatureDecomposingNetwork
    encoder: LabelEncoder

    @classmethod
    def open(cls, folder: Path | str, network: FeatureDecomposingNetwork) -> Sketcher:
        """Read the label encoder in a model's folder; one that was fitted to another model is refused."""
        path = Path(folder) / SKETCH_FILE
        found = LABEL_ENCODER.read(Path(folder), fingerprint=network.fingerprint)
        if found is None:
            raise ModelError(f"{path}: not there; make it with 'diptych fit sketch STORE --model {folder}'")
        state = {name: torch.from_numpy(array) for name, array in found[0].items()}
        encoder = LabelEncoder(network.config)
        try:
            encoder.load_state_dict(state)
        except RuntimeError:
            raise ModelError(f"{path}: its tensors do not fit the model; {LABEL_ENCODER.way_out}") from None
        return cls(network, encoder.eval())

    @classmethod
    def of(cls, archive: Archive) -> Sketcher:
        """The label encoder beside the model of an archive."""
        if archive.model_folder is None:
            raise UsageError("sketch: this archive was opened with a network; open it with the folder of its model")
        return cls.open(archive.model_folder, archive.network)

    def save(self, folder: Path | str) -> Path:
        """Write the label encoder beside its model, whole or not at all."""
        state = {name: tensor.detach().cpu().numpy() for name, tensor in self.encoder.state_dict().items()}
        return LABEL_ENCODER.write(Path(folder), state, fingerprint=self.network.fingerprint)

    def ids(self, labels: NDArray[np.integer]) -> NDArray[np.int64]:
        """Abnormal ids `[h, w]` of a label map `[H, W]`."""
        self._check(labels)
        painted = torch.from_numpy(np.ascontiguousarray(labels, dtype=np.int64))[None]
        codebook = self.network.abnormal_quantizer.codebook
        return np.asarray(self.encoder.ids(painted.to(codebook.device), codebook)[0].cpu().numpy())

    def _check(self, labels: NDArray[np.integer]) -> None:
        size = self.network.config.image_size
        if labels.shape != size:
            shape = "x".join(map(str, labels.shape))
            raise LabelError(f"sketch of {shape} pixels: this model takes {size[0]}x{size[1]}; paint it on a slice")
        about = self.network.description
        known = range(len(about.lesion) + 1)
        if unknown := sorted({*np.unique(labels).tolist()} - {*known}):
            names = ", ".join(f"{label} {name}" for label, name in {0: "background", **about.lesion_names}.items())
            raise LabelError(f"sketch with labels {unknown[:5]}: the labels are {names}; use only these")
        if not np.any(labels):
            raise LabelError("sketch without any lesion: every label is 0; paint at least one pixel")


def sketch_slice(
    archive: Archive, sketcher: Sketcher, labels: NDArray[np.integer], *, anatomy: EncodedSlice | None = None
) -> EncodedSlice:
    """The painted lesion as a subject of questions, in the anatomy of a slice or in the archive's commonest."""
    ids = sketcher.ids(labels)
    if anatomy is not None:
        name, base = f"sketch in the anatomy of {anatomy.name}", anatomy
    else:
        (H, W), field = archive.encoder.geometry.size, archive.encoder.geometry.field
        spacing = (1.0, 1.0) if field is None else (field[0] / H, field[1] / W)
        name, base = "sketch", EncodedSlice("", _typical_anatomy(archive), ids, frozenset(), pixel_spacing=spacing)
    painted = labels.astype(np.uint8)
    return replace(base, name=name, abnormal_ids=ids, volume_key=None, image=None, lesion=painted, anatomy=None)


def ask_sketch(
    archive: Archive,
    sketcher: Sketcher,
    labels: NDArray[np.integer],
    question: Question = Question(by="abnormal"),
    *,
    anatomy: EncodedSlice | None = None,
) -> Answer:
    """The slices whose lesion is most like the painted one; with `anatomy`, by its normal code too."""
    if anatomy is None and question.by != "abnormal":
        raise UsageError(
            f"by {panel_word(question.by)}: a sketch alone has no anatomy; search by lesion, or choose a slice too"
        )
    return archive.query(sketch_slice(archive, sketcher, labels, anatomy=anatomy), question)


def _typical_anatomy(archive: Archive) -> NDArray[np.int64]:
    """The commonest normal id of each cell, `[h, w]`: only to look at."""
    catalogue = archive.catalogue
    shares = catalogue.frequencies("normal", catalogue.sample())
    ids: NDArray[np.int64] = np.argmax(shares, axis=1).reshape(catalogue.index.grid)
    return ids


LARGEST = 4096
"""Rows or columns of a sketch."""
PNG_MODES = ("1", "L", "P")


def read_sketch(path: Path | str) -> NDArray[np.uint8]:
    """The label map `[H, W]` in a .png, .nii or .nii.gz file."""
    path = Path(path)
    name = path.name.lower()
    if name.endswith(".png"):
        return _read_png(path)
    if name.endswith((".nii", ".nii.gz")):
        return _read_nifti(path)
    raise UsageError(f"{path}: a sketch is a .png with label values, or a .nii or .nii.gz with one painted axial plane")


def _read_png(path: Path) -> NDArray[np.uint8]:
    try:
        with Image.open(path, formats=("PNG",)) as image:
            if max(image.size) > LARGEST:
                raise LabelError(f"{path}: {image.width}x{image.height} pixels; a sketch has the size of a slice")
            if image.mode not in PNG_MODES:
                raise LabelError(
                    f"{path}: is a {image.mode} picture; save it as greys or palette colours numbered 0 to 3"
                )
            return np.asarray(image, dtype=np.uint8)
    except FileNotFoundError:
        raise LabelError(f"{path}: not there; give the file of a sketch") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise LabelError(f"{path}: cannot be read as PNG ({str(error).splitlines()[0]}); save it again") from None


def _read_nifti(path: Path) -> NDArray[np.uint8]:
    image = read_nifti(path, limits=Limits(max_voxels=LARGEST**2))
    voxels = apply_orientation(image.stored, to_canonical(path, image.affine, image.stored.shape).ornt)
    labels = voxels * image.slope + image.intercept
    painted = np.flatnonzero(labels.any(axis=(0, 1)))
    if len(painted) != 1:
        raise LabelError(f"{path}: has {len(painted)} painted axial planes; a sketch is one; leave the others 0")
    plane = labels[:, :, painted[0]].T
    if not np.array_equal(plane, np.clip(plane, 0, 255).astype(np.uint8)):
        raise LabelError(f"{path}: holds values that are no labels; store whole numbers from 0 to 3")
    return np.asarray(plane, dtype=np.uint8)
