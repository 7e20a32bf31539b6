"""What search is compared with: FAISS, usearch and the paper's listing on the normal codes of a drawn archive.

Each peer gets the code vectors in the form that suits it, on one core. Those whose cost per slice is known to stay the
same and whose memory does not fit get a part of the archive, and then have no recall.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from drawn_archive import DrawnArchive
from numpy.typing import NDArray
from paper_grid import Contender, pq_codes

from diptych.hashing.hash_report import calc_euclidean_distance
from diptych.metrics.binary_codes import binary_codes, load_binary_codes
from diptych.model import FeatureDecomposingNetwork

PART = 5_000
CANDIDATES = 200
"""Slices that a peer is asked for, to see which ten patients come first."""
TRAINED_ON = 4_000

Search = Callable[[int, int], NDArray[np.integer]]
"""The number of a query and how many slices to their places, nearest first."""


@dataclass(frozen=True, eq=False)
class Peer:
    """Something to compare with."""

    contender: Contender
    bytes_per_slice: float
    recall: float


def assemble_peers(
    drawn: DrawnArchive,
    network: FeatureDecomposingNetwork,
    folder: Path,
    places: NDArray[np.intp],
    truth: list[list[int]],
    *,
    only: str = "",
) -> list[Peer]:
    """All peers whose name contains `only`, ready to search for the slices in those places."""
    import faiss

    faiss.omp_set_num_threads(1)
    ids, codebook = drawn.ids["normal"], network.normal_quantizer.codebook.detach().cpu().numpy()
    volume = drawn.volume_of_slice

    def peer(name: str, search: Search, size: float, count: int, *, batch: Any = None) -> list[Peer]:
        whole = count == len(ids)
        recall = _recall(search, volume, places, truth) if whole else np.nan
        found = [Peer(Contender(name, lambda n: search(n, 10), count), size, recall)]
        if batch is not None:
            one = Contender(f"{name}, batch of 64", lambda _: batch(), count * len(places), calls=1)
            found.append(Peer(one, size, recall))
        return found

    found = []
    for make in (_pq8, _pq4_fast_scan, _rabitq, _rabitq_fast_scan, _flat, _binary, _usearch, _listing):
        if only in make.__name__:
            found += peer(*make(ids, codebook, places, network, folder))
    return found


def _recall(search: Search, volume: NDArray[np.int64], places: NDArray[np.intp], truth: list[list[int]]) -> float:
    """Share of the true patients among the first ten that are not the query's own."""
    hits = []
    for number, patients in enumerate(truth):
        found = volume[search(number, CANDIDATES)]
        _, first = np.unique(found, return_index=True)
        others = [v for v in found[np.sort(first)].tolist() if v != volume[places[number]]]
        hits.append(len(set(others[:10]) & set(patients)) / 10)
    return float(np.mean(hits))


Made = tuple[str, Search, float, int]
Ids = NDArray[np.uint8]


def _principal(codebook: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The code vectors along their first axes, `[K, width]`."""
    centred = codebook - codebook.mean(axis=0)
    return np.asarray(centred @ np.linalg.svd(centred, full_matrices=False)[2][:width].T, dtype=np.float32)


def _fill(index: Any, ids: Ids, vectors: NDArray[np.float32]) -> None:
    rng = np.random.default_rng(0)
    some = vectors[ids[np.sort(rng.choice(len(ids), TRAINED_ON, replace=False))]].reshape(TRAINED_ON, -1)
    index.train(some)
    for first in range(0, len(ids), 20_000):
        part = ids[first : first + 20_000]
        index.add(vectors[part].reshape(len(part), -1))


def _searching(index: Any, asked: NDArray[Any]) -> Search:
    return lambda n, top: index.search(asked[n : n + 1], top)[1][0]


def _pq8(ids: Ids, codebook: Any, places: Any, network: Any, folder: Any) -> Made:
    import faiss

    cells, width = ids.shape[1], codebook.shape[1]
    index = faiss.IndexPQ(cells * width, cells, 8)
    centroids = np.zeros((256, width), dtype=np.float32)
    centroids[: len(codebook)] = codebook
    faiss.copy_array_to_vector(np.tile(centroids.reshape(-1), cells), index.pq.centroids)
    index.is_trained = True
    for first in range(0, len(ids), 100_000):
        index.add_sa_codes(pq_codes(ids[first : first + 100_000].astype(np.uint16), 8))
    return "FAISS PQ8", _searching(index, codebook[ids[places]].reshape(len(places), -1)), cells, len(ids)


def _pq4_fast_scan(ids: Ids, codebook: Any, places: Any, network: Any, folder: Any) -> Made:
    import faiss

    vectors = _principal(codebook, 8)
    index = faiss.IndexPQFastScan(ids.shape[1] * 8, ids.shape[1], 4)
    _fill(index, ids, vectors)
    asked = vectors[ids[places]].reshape(len(places), -1)
    return "FAISS PQ4 fast-scan", _searching(index, asked), ids.shape[1] / 2, len(ids)


def _rabitq(ids: Ids, codebook: Any, places: Any, network: Any, folder: Any) -> Made:
    import faiss

    vectors = _principal(codebook, 2)
    index = faiss.IndexRaBitQ(ids.shape[1] * 2, faiss.METRIC_L2)
    _fill(index, ids, vectors)
    asked = vectors[ids[places]].reshape(len(places), -1)
    return "FAISS RaBitQ", _searching(index, asked), index.sa_code_size(), len(ids)


def _rabitq_fast_scan(ids: Ids, codebook: Any, places: Any, network: Any, folder: Any) -> Made:
    import faiss

    vectors = _principal(codebook, 2)
    index = faiss.IndexRaBitQFastScan(ids.shape[1] * 2, faiss.METRIC_L2)
    _fill(index, ids, vectors)
    asked = vectors[ids[places]].reshape(len(places), -1)
    return "FAISS RaBitQ fast-scan", _searching(index, asked), index.sa_code_size(), len(ids)


def _flat(ids: Ids, codebook: Any, places: Any, network: Any, folder: Any) -> Made:
    import faiss

    vectors = codebook[ids[:PART]].reshape(min(PART, len(ids)), -1)
    index = faiss.IndexFlatL2(vectors.shape[1])
    index.add(vectors)
    asked = codebook[ids[places]].reshape(len(places), -1)
    return "FAISS FlatL2", _searching(index, asked), vectors.shape[1] * 4, len(vectors)


def _hashes(ids: Ids, codebook: Any, places: Any, network: FeatureDecomposingNetwork, folder: Path) -> Any:
    known = load_binary_codes(folder, fingerprint=network.fingerprint, codes=len(codebook))
    bits = known["normal"] if known else binary_codes(codebook)
    return tuple(np.packbits(bits[some].reshape(len(some), -1), axis=1) for some in (ids[:PART], ids[places]))


def _binary(ids: Ids, codebook: Any, places: Any, network: Any, folder: Any) -> Made:
    import faiss

    packed, asked = _hashes(ids, codebook, places, network, folder)
    index = faiss.IndexBinaryFlat(packed.shape[1] * 8)
    index.add(packed)
    return "FAISS BinaryFlat", _searching(index, asked), packed.shape[1], len(packed)


def _usearch(ids: Ids, codebook: Any, places: Any, network: Any, folder: Any) -> Made:
    from usearch.index import Index

    packed, asked = _hashes(ids, codebook, places, network, folder)
    index = Index(ndim=packed.shape[1] * 8, metric="hamming", dtype="b1")
    index.add(np.arange(1000), packed[:1000], threads=1)
    search = lambda n, top: index.search(asked[n], top, exact=True, threads=1).keys  # noqa: E731
    return "usearch binary", search, packed.shape[1], 1000


def _listing(ids: Ids, codebook: Any, places: Any, network: Any, folder: Any) -> Made:
    sample = codebook[ids[:200]].reshape(200, -1)
    asked = codebook[ids[places]].reshape(len(places), -1)
    search = lambda n, top: np.argsort([calc_euclidean_distance(asked[n], row) for row in sample])[:top]  # noqa: E731
    return "listing F.1", search, sample.shape[1] * 4, 200
