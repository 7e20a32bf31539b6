"""Search of 8 × 8 codes, the grid of the paper, against its peers on a made-up archive; see also `search.py`.

    python benchmarks/paper_grid.py --slices 1m --out search.png
    python benchmarks/paper_grid.py --opening      how soon a fresh process answers, see opening.py

Contenders, each on one core unless it says otherwise, top 10: ours plain (every slice, from what changes between
neighbours), row by row (every cell of every slice), pruned, in batches and on two threads; FAISS FlatL2 on the vectors
(a part of the archive), PQ with our codebook (8 and 9 bits), BinaryFlat on 292- and 789-bit hashes (a part); usearch on
the same hashes (a part); the paper's listing F.1 (a sample). Ours returns the best ten *volumes* with explanations; the
others the best ten slices. Rounds go through all contenders in turn and the quickest time of each counts, so that a
busy machine wrongs none of them. Peers are development dependencies.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from opening import report_opening

from diptych.hashing.hash_report import calc_euclidean_distance
from diptych.search import Filter, Query, SearchEngine, SearchIndex
from diptych.search.synthetic import SyntheticArchive, synthetic_archive
from diptych.search.tables import Tables, panel_tables

SIZES = {"100k": 100_000, "1m": 1_000_000, "4m": 4_000_000}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
QUERIES = 6
BATCH = 64
PART = 40_000
"""Slices that peers get whose cost per slice is known to stay the same and whose memory does not fit."""

GOALS = {
    ("plain", "FAISS PQ8", "n165"): 1.3,
    ("plain", "FAISS PQ9", "n512"): 4.5,
    ("plain", "FAISS binary 292", "n165"): 7.0,
    ("plain", "FAISS binary 789", "n165"): 18.0,
    ("plain", "FAISS FlatL2", "n165"): 30.0,
    ("pruned", "FAISS PQ8", "n165"): 4.0,
    ("pruned", "plain", "sparse"): 6.0,
    ("pruned", "row by row", "sparse"): 6.0,
    ("batch of 64", "FAISS PQ8", "n165"): 12.0,
    ("two threads", "plain", "n165"): 1.7,
}
"""(ours, peer, archive): how many times quicker ours is meant to be."""


@dataclass
class Contender:
    """Something to time: what one call does, and how many slice comparisons that is."""

    name: str
    run: Callable[[int], object]
    comparisons: int
    calls: int = QUERIES
    """Calls per round: one is enough for a batch."""
    times: list[float] = field(default_factory=list)

    @property
    def nanoseconds(self) -> float:
        """Per slice and query, in the quickest round."""
        return min(self.times) / self.comparisons * 1e9


def main() -> None:
    arguments = parse()
    if arguments.opening:
        report_opening(SIZES[arguments.slices])
        return
    import faiss

    faiss.omp_set_num_threads(1)
    results: dict[str, dict[str, float]] = {}
    for name, codes, panel in (("n165", 165, "normal"), ("n512", 512, "normal"), ("sparse", 165, "abnormal")):
        made = synthetic_archive(SIZES[arguments.slices], codes=codes, seed=1)
        contenders = assemble(made, panel, peers=name != "sparse" and not arguments.ours_only)
        if arguments.clock == "cpu":  # which two threads spend as fast as one
            contenders = [contender for contender in contenders if contender.name != "two threads"]
        for _ in range(arguments.rounds):
            for contender in contenders:
                take_turn(contender, CLOCKS[arguments.clock])
        results[name] = {contender.name: contender.nanoseconds for contender in contenders}
        print_table(name, results[name])
    print_goals(results)
    if arguments.out:
        draw(results, arguments.out, arguments.slices)
    if arguments.json:
        arguments.json.write_text(json.dumps({"slices": arguments.slices, "nanoseconds": results}, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", choices=SIZES, default="1m")
    parser.add_argument("--opening", action="store_true", help="time opening an archive and the first query instead")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for one core of a busy machine")
    parser.add_argument("--ours-only", action="store_true", help="leave the peers out, as in runs for growth")
    parser.add_argument("--out", type=Path, help="write a plot of the ratios here")
    parser.add_argument("--json", type=Path, help="write the times here")
    return parser.parse_args()


def take_turn(contender: Contender, clock: Callable[[], float]) -> None:
    """One round: the same queries for everyone, after a first call that nobody counts."""
    if not contender.times:
        contender.run(0)
    start = clock()
    for query in range(contender.calls):
        contender.run(query)
    contender.times.append((clock() - start) / contender.calls)


def assemble(made: SyntheticArchive, panel: str, *, peers: bool) -> list[Contender]:
    """All contenders for one panel of one archive."""
    ids = made.normal if panel == "normal" else made.abnormal
    codebook = made.normal_codebook if panel == "normal" else made.abnormal_codebook
    places = busiest_slices(made)
    contenders = ours(made, panel, places)
    if peers:
        contenders += faiss_vectors(ids, codebook, places) + faiss_quantised(ids, codebook, places)
        for bits in (292, 789):
            contenders += binary_peers(ids, codebook, places, bits)
        contenders.append(listing(ids, codebook, places))
    return contenders


def busiest_slices(made: SyntheticArchive) -> NDArray[np.intp]:
    """As in the paper, queries are the slices with the largest lesion of some volumes."""
    lesion = (made.abnormal > 5).sum(axis=1)
    volumes = np.random.default_rng(0).choice(made.volume_of_slice[-1], BATCH, replace=False)
    starts = np.searchsorted(made.volume_of_slice, volumes)
    return np.array([start + np.argmax(lesion[start : start + 155]) for start in starts])


def ours(made: SyntheticArchive, panel: str, places: NDArray[np.intp]) -> list[Contender]:
    tables = Tables(panel_tables(made.normal_codebook, cells=64), panel_tables(made.abnormal_codebook, cells=64))
    start = time.perf_counter()
    index = SearchIndex.build(
        grid=made.grid,
        normal=made.normal,
        abnormal=made.abnormal,
        volume_of_slice=made.volume_of_slice,
        patient_of_volume=np.arange(made.volume_of_slice[-1] + 1),
        lesion_free=made.lesion_free,
        tables=tables,
    )
    bytes_each = (index.codes[panel].nbytes + index.chunks[panel].nbytes) / len(index)
    print(f"index built in {time.perf_counter() - start:.1f} s, {bytes_each:.0f} bytes per slice and code")
    ids = made.normal if panel == "normal" else made.abnormal
    queries = [
        Query(
            **{panel: ids[place].reshape(made.grid), "by": panel},
            where=Filter(exclude_patients=[int(made.volume_of_slice[place])]),
        )
        for place in places
    ]
    plain = SearchEngine(index, tables, prune=False)
    rows = SearchEngine(without_changes(index), tables, prune=False)
    pruned = SearchEngine(index, tables)
    two = SearchEngine(index, tables, prune=False, threads=2)
    for query in queries[:QUERIES]:
        same = [match.slice for match in plain.search(query)] == [match.slice for match in pruned.search(query)]
        assert same, "the pruned scan gave another answer"
    return [
        Contender("plain", lambda n: plain.search(queries[n]), len(ids)),
        Contender("row by row", lambda n: rows.search(queries[n]), len(ids)),
        Contender("pruned", lambda n: pruned.search(queries[n]), len(ids)),
        Contender("two threads", lambda n: two.search(queries[n]), len(ids)),
        Contender("batch of 64", lambda _: plain.search_batch(queries), len(ids) * BATCH, calls=1),
    ]


def without_changes(index: SearchIndex) -> SearchIndex:
    """An index that can only be scanned row by row."""
    nothing = np.empty(0, np.int64)
    chunks = {panel: replace(chunks, change_firsts=nothing) for panel, chunks in index.chunks.items()}
    return replace(index, chunks=chunks)


def faiss_vectors(ids: NDArray[np.uint16], codebook: NDArray[np.float32], places: NDArray[np.intp]) -> list[Contender]:
    import faiss

    vectors = codebook[ids[:PART]].reshape(PART, -1)
    flat = faiss.IndexFlatL2(vectors.shape[1])
    flat.add(vectors)
    asked = codebook[ids[places]].reshape(len(places), -1)
    return [Contender("FAISS FlatL2", lambda n: flat.search(asked[n : n + 1], 10), PART)]


def faiss_quantised(
    ids: NDArray[np.uint16], codebook: NDArray[np.float32], places: NDArray[np.intp]
) -> list[Contender]:
    """Product quantisation with our codebook in every position: the same distances as ours."""
    import faiss

    bits = 8 if len(codebook) <= 256 else 9
    cells, width = ids.shape[1], codebook.shape[1]
    index = faiss.IndexPQ(cells * width, cells, bits)
    centroids = np.zeros((2**bits, width), dtype=np.float32)
    centroids[: len(codebook)] = codebook
    faiss.copy_array_to_vector(np.tile(centroids.reshape(-1), cells), index.pq.centroids)
    index.is_trained = True
    for first in range(0, len(ids), 100_000):
        index.add_sa_codes(pq_codes(ids[first : first + 100_000], bits))
    asked = codebook[ids[places]].reshape(len(places), -1)
    single = Contender(f"FAISS PQ{bits}", lambda n: index.search(asked[n : n + 1], 10), len(ids))
    batch = Contender("FAISS PQ8, batch of 64", lambda _: index.search(asked, 10), len(ids) * BATCH, calls=1)
    return [single, batch] if bits == 8 else [single]  # a batch saves FAISS nothing, and takes minutes at 9 bits


def pq_codes(ids: NDArray[np.uint16], bits: int) -> NDArray[np.uint8]:
    """Ids as FAISS packs them: `bits` bits each, least significant first."""
    if bits == 8:
        return ids.astype(np.uint8)
    each = ((ids[..., None] >> np.arange(bits, dtype=np.uint16)) & 1).astype(np.uint8)
    return np.packbits(each.reshape(len(ids), -1), axis=1, bitorder="little")


def binary_peers(
    ids: NDArray[np.uint16], codebook: NDArray[np.float32], places: NDArray[np.intp], bits: int
) -> list[Contender]:
    """Hashes of a given length; which bits they are does not matter to the time."""
    import faiss
    from usearch.index import Index

    planes = np.random.default_rng(bits).standard_normal((codebook.shape[1], bits)).astype(np.float32)
    hashes = codebook @ planes > 0
    packed = np.packbits(hashes[ids[:PART]].reshape(PART, -1), axis=1)
    asked = np.packbits(hashes[ids[places]].reshape(len(places), -1), axis=1)
    flat = faiss.IndexBinaryFlat(packed.shape[1] * 8)
    flat.add(packed)
    usearch = Index(ndim=packed.shape[1] * 8, metric="hamming", dtype="b1")
    usearch.add(np.arange(PART // 4), packed[: PART // 4], threads=1)
    return [
        Contender(f"FAISS binary {bits}", lambda n: flat.search(asked[n : n + 1], 10), PART),
        Contender(f"usearch binary {bits}", lambda n: usearch.search(asked[n], 10, exact=True, threads=1), PART // 4),
    ]


def listing(ids: NDArray[np.uint16], codebook: NDArray[np.float32], places: NDArray[np.intp]) -> Contender:
    sample = codebook[ids[:500]].reshape(500, -1)
    asked = codebook[ids[places]].reshape(len(places), -1)

    def run(query: int) -> list[Any]:
        return sorted(calc_euclidean_distance(asked[query], row) for row in sample)[:10]

    return Contender("listing F.1", run, len(sample))


def print_table(name: str, times: dict[str, float]) -> None:
    print(f"\n{name}: ns per slice and query")
    for contender, nanoseconds in times.items():
        print(f"  {contender:24} {nanoseconds:9.2f}   {times['plain'] / nanoseconds:7.2f} x plain")


def print_goals(results: dict[str, dict[str, float]]) -> None:
    print("\nratio            against            archive    goal  reached")
    for (mine, peer, archive), goal in GOALS.items():
        times = results[archive]
        if peer in times and mine in times:
            ratio = times[peer] / times[mine]
            print(f"{mine:16} {peer:18} {archive:8} {goal:6.1f} {ratio:8.1f}  {'yes' if ratio >= goal else 'NO'}")


def draw(results: dict[str, dict[str, float]], path: Path, slices: str) -> None:
    """Horizontal bars, one group per archive, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(results), 1, figsize=(8, 9), sharex=True, height_ratios=[len(times) for times in results.values()]
    )
    titles = {"n165": "normal codes, 165 live", "n512": "normal codes, 512 live", "sparse": "sparse abnormal codes"}
    for axis, (name, times) in zip(axes, results.items(), strict=True):
        ordered = sorted(times, key=lambda contender: -times[contender])
        mine = {"plain", "row by row", "pruned", "two threads", "batch of 64"}
        colours = ["#1b6ca8" if contender in mine else "#b8bec4" for contender in ordered]
        bars = axis.barh(ordered, [times[contender] for contender in ordered], color=colours)
        axis.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        axis.set_xscale("log")
        axis.set_title(titles[name], loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[-1].set_xlabel(
        f"nanoseconds per slice and query, archive of {slices} slices (Diptych in blue; less is better)"
    )
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
