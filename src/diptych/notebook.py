"""What a notebook needs, in one call each: `diptych.index`, `diptych.decompose`, and `Archive.search` beside them.

    import diptych

    diptych.index("patients", "archive")
    diptych.decompose("patients/P1").healthy_twin
    diptych.Archive.open("archive").search("patients/P1", by="lesion")

The commands of the same names do more: they take studies in, show progress and report what failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diptych.archive import ArchiveWriter
from diptych.archive.encoding import NetworkEncoder
from diptych.archive.indexing import IndexOptions, IndexReport, index_patients
from diptych.metrics.label_indexing import volume_decoder
from diptych.model import load_model
from diptych.model.shipped import named_model, shipped_model
from diptych.retrieval.catalogue import prepare_search
from diptych.retrieval.encoded_slice import encode_slice, read_one
from diptych.retrieval.explanation import SlicePixels, SliceView, view_slices
from diptych.retrieval.model_reference import volume_check
from diptych.retrieval.refined_twin import TwinRefiner
from diptych.volumes import Volume
from diptych.volumes.sources import find_sources

if TYPE_CHECKING:
    from diptych.model import FeatureDecomposingNetwork


def index(
    sources: Path | str | Sequence[Path | str],
    archive: Path | str,
    *,
    model: Path | str | None = None,
    options: IndexOptions = IndexOptions(),
) -> IndexReport:
    """Encode every patient in `sources` into an archive, which is made where there is none; see `diptych index`.

    `model` is a folder or the name of a shipped model; without it, the shipped one.
    """
    several = [sources] if isinstance(sources, str | Path) else sources
    folder = named_model(model or shipped_model())
    network = load_model(folder)
    encoder = NetworkEncoder(network)
    with ArchiveWriter.open(Path(archive), model=encoder.identity) as writer:
        patients = find_sources([Path(source) for source in several])
        check = volume_check(folder, fingerprint=network.fingerprint)
        report = index_patients(
            writer, encoder, patients, options=options, decode=volume_decoder(network, folder), check=check
        )
        prepare_search(writer, network, folder)
    return report


def decompose(
    patient: Path | str | Volume,
    *,
    z_index: int | None = None,
    model: Path | str | FeatureDecomposingNetwork | None = None,
) -> SliceView:
    """A patient's slice as it was scanned and as two panels have it: reconstruction, healthy twins, predicted labels.

    Where the model has a refiner, `refined_twin` is the patient's own image with the lesion painted over. Without
    `z_index` it is the slice with the largest predicted lesion. Images are z-scores, `[C, H, W]`.
    """
    if model is None or isinstance(model, str | Path):
        folder = named_model(model or shipped_model())
        network = load_model(folder)
        refiner = TwinRefiner.open(folder, network)
    else:
        network, refiner = model, None
    volume = patient if isinstance(patient, Volume) else read_one(Path(patient))
    subject = encode_slice(volume, NetworkEncoder(network), z_index=z_index)
    pixels = None if subject.image is None else SlicePixels(subject.image, subject.lesion, subject.anatomy)
    return view_slices(network, subject.normal_ids[None], subject.abnormal_ids[None], [pixels], refiner=refiner)[0]
