"""How far an answer can be trusted: does the query look like what the model and the archive know?

Knows encoded slices, catalogues and search. What a reader of the images can tell (a raw head, exchanged
channels, another modality) comes along as the query's own warnings; see `model_reference` and
`diptych.volumes.rawhead`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diptych.retrieval.catalogue import Catalogue
from diptych.retrieval.encoded_slice import EncodedSlice
from diptych.search import PANELS, Filter, Query, SearchEngine, load_arrays, save_arrays

if TYPE_CHECKING:
    from diptych.model import FeatureDecomposingNetwork

SAMPLED = 48
"""Archived slices whose nearest neighbours tell what is usual."""
CACHE_VERSION = 1
"""Raise it whenever what is kept, or how it is worked out, changes."""
RARE = 0.001
"""A code is rare in a cell where fewer than this share of other patients' slices have it."""
MANY_RARE = 0.3
"""Share of rare cells that is worth a warning."""


@dataclass(frozen=True)
class Trust:
    """Signs that a query lies outside what is known; all small for a query like those in the archive."""

    quantisation_error: float | None
    """Squared distance between the encoder's output and the codes, as a share of the codebooks' own variance; None
    where the query has no pixels."""
    normal_isolation: float | None
    """Distance to the nearest slice of another patient by normal code, as a multiple of the archive's median (of its
    slices with a lesion, where the query has one); None in an archive of one patient."""
    abnormal_isolation: float | None
    """The same by abnormal code."""
    rare_codes: float
    """Share of cells, over both panels, with a code that other patients hardly ever have there."""
    warnings: tuple[str, ...]
    """Plain sentences for people."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class TrustCheck:
    """Compares queries with an archive; what is usual in the archive is worked out once, and kept in its cache folder.

    Args:
        catalogue: the archive's content.
        engine: searches it.
        cache: the archive's cache folder; without one, what is usual is worked out by every `TrustCheck`.
        error_limit: quantisation error that is worth a warning, fitted to the model's training patients.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        engine: SearchEngine,
        *,
        cache: Path | None = None,
        error_limit: float | None = None,
    ) -> None:
        self.catalogue = catalogue
        self.engine = engine
        self.cache = cache
        self.error_limit = error_limit
        self._usual: dict[tuple[str, str, bool], list[float]] = {}

    def check(
        self,
        subject: EncodedSlice,
        *,
        lesioned: bool,
        quantisation_error: float | None = None,
        metric: str = "euclidean",
    ) -> Trust:
        """Look at one query: whether its codes show a lesion, and how far from its codes it lay, is known before."""
        own = [self.catalogue.patients[key] for key in subject.patients if key in self.catalogue.patients]
        warnings = list(subject.warnings)
        isolation: dict[str, float | None] = {}
        for panel in PANELS:
            nearest = self._nearest(_panel_query(panel, getattr(subject, f"{panel}_ids"), own, metric))
            usual = self.usual(panel, metric, lesioned=lesioned)
            isolation[panel] = nearest / (float(np.median(usual)) or 1.0) if usual and nearest is not None else None
            if usual and nearest is not None and nearest > max(usual):
                warnings.append(
                    f"The nearest {panel} code is farther away than that of any of {len(usual)} archived slices; "
                    "matches may mean little."
                )
        rare = self.rare_codes(subject, own)
        if rare > MANY_RARE:
            warnings.append(f"{rare:.0%} of its codes are hardly ever seen in that place; matches may mean little.")
        error = quantisation_error
        if error is not None and self.error_limit is not None and error > self.error_limit:
            warnings.append(
                f"The codes hold this slice worse than any the model learnt from (error {error:.2f}, usual up to "
                f"{self.error_limit:.2f}); matches may mean little."
            )
        return Trust(error, isolation["normal"], isolation["abnormal"], rare, tuple(warnings))

    def usual(self, panel: str, metric: str, *, lesioned: bool) -> list[float]:
        """Distances from archived slices to their nearest slice of another patient.

        A slice with a lesion is compared with slices known to have one, if there are any: lesion-free slices are all
        much alike.
        """
        key = panel, metric, lesioned
        if key not in self._usual:
            self._usual[key] = self._kept(key) or self._keep(key, self._nearest_of_sample(panel, metric, lesioned))
        return self._usual[key]

    def _kept(self, key: tuple[str, str, bool]) -> list[float] | None:
        if self.cache is None or (kept := load_arrays(self._path(key), key=self._version)) is None:
            return None
        return [float(value) for value in kept["distances"]]

    def _keep(self, key: tuple[str, str, bool], found: list[float]) -> list[float]:
        if self.cache is not None and not self.catalogue.problems:
            with suppress(OSError):  # where the folder cannot be written, the next process works it out again
                self.cache.mkdir(mode=0o700, exist_ok=True)
                save_arrays(self._path(key), {"distances": np.array(found)}, key=self._version)
        return found

    def _path(self, key: tuple[str, str, bool]) -> Path:
        panel, metric, lesioned = key
        assert self.cache is not None
        return self.cache / f"usual-{panel}-{metric}{'-lesioned' if lesioned else ''}.arrays"

    @property
    def _version(self) -> str:
        return f"usual {CACHE_VERSION} of {self.catalogue.version}"

    def _nearest_of_sample(self, panel: str, metric: str, lesioned: bool) -> list[float]:
        index = self.catalogue.index
        alike = np.flatnonzero(self.catalogue.lesion_area > 0) if lesioned else np.arange(0)
        among = alike if len(alike) else np.arange(len(index))
        places = among[np.unique(np.linspace(0, len(among) - 1, SAMPLED).round().astype(np.int64))]
        patients = index.patient_of_volume[index.volume_of(places)].tolist()
        grids = index.codes[panel].ids(places).reshape(-1, *index.grid)
        queries = [_panel_query(panel, grid, [patient], metric) for grid, patient in zip(grids, patients, strict=True)]
        return [matches[0].distance for matches in self.engine.search_batch(queries) if matches]

    def rare_codes(self, subject: EncodedSlice, own: list[int]) -> float:
        """Share of cells with a code that is rare there among slices of other patients."""
        index = self.catalogue.index
        slices = self.catalogue.sample()
        others = slices[~np.isin(index.patient_of_volume[index.volume_of(slices)], own)]
        shares = []
        for panel in PANELS:
            ids = np.asarray(getattr(subject, f"{panel}_ids"), dtype=np.int64).reshape(-1)
            frequencies = self.catalogue.frequencies(panel, others)
            shares.append(frequencies[np.arange(len(ids)), ids] < RARE)
        return float(np.mean(shares))

    def _nearest(self, query: Query) -> float | None:
        matches = self.engine.search(query)
        return matches[0].distance if matches else None


def _panel_query(panel: str, ids: NDArray[np.integer], exclude: list[int], metric: str) -> Query:
    where = Filter(exclude_patients=exclude)
    if panel == "normal":
        return Query(normal=ids, by="normal", metric=metric, top=1, where=where)
    return Query(abnormal=ids, by="abnormal", metric=metric, top=1, where=where)


def quantisation_error(network: FeatureDecomposingNetwork, image: NDArray[np.float32]) -> float:
    """Mean over both panels of the error in a cell over the variance of the codebook, for an image `[C, H, W]`."""
    import torch

    device = network.normal_quantizer.codebook.device
    with torch.no_grad():
        whole = network.decompose(torch.from_numpy(np.ascontiguousarray(image[None])).to(device))
    errors = {"normal": whole.normal_error, "abnormal": whole.abnormal_error}
    variances = {panel: float(codes.var(axis=0, ddof=1).sum()) or 1.0 for panel, codes in network.codebooks.items()}
    return float(np.mean([float(error.mean()) / variances[panel] for panel, error in errors.items()]))
