"""Search against its peers, all in one run on one archive drawn from the shipped model's own statistics.

    python benchmarks/search.py --slices 1m --keep /tmp/drawn

Ours: exact, the best slice of each of the ten nearest patients, decoding of the query and explanations included. Peers
look at the normal codes of the same slices: FAISS PQ8 with our codebook, PQ4 fast-scan, RaBitQ and its fast-scan on
512 numbers, FlatL2, BinaryFlat and usearch on the paper's binary codes (a part of the archive), listing F.1 (a sample).
Their recall is the share of the ten nearest patients by the exact default metric among the first ten patients they
find. Everything on one core unless it says otherwise; the same queries for all, in turn, and the quickest round counts.
`drawn_archive.py` tells how the archive is drawn, `paper_grid.py` measures the paper's 8 × 8 grid. Peers are
development dependencies.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from drawn_archive import DrawnArchive, draw_archive
from numpy.typing import NDArray
from paper_grid import BATCH, CLOCKS, QUERIES, SIZES, Contender, take_turn
from search_peers import assemble_peers

from diptych.archive import VolumeInfo
from diptych.compiling import compiled
from diptych.metrics.decoded_planes import ArchivePlanes, PlaneDecoder
from diptych.metrics.label_decoders import LabelDecoders
from diptych.metrics.label_planes import Planes
from diptych.metrics.label_rows import LabelRows, planes_of, stored_rows
from diptych.metrics.model_tables import tables_of_model
from diptych.metrics.searcher import Searcher
from diptych.model import load_model
from diptych.model.shipped import named_model
from diptych.retrieval.patient_search import PatientSearch, Stack
from diptych.search import PANELS, Filter, Query, SearchEngine, SearchIndex, load_arrays, save_arrays
from diptych.search.joined import Places
from diptych.search.label_maps import LabelMaps
from diptych.search.tables import Tables

SLICES_PER_PATIENT = 68
MODEL = "cpu-16x16"

GOALS = {
    "default by normal": 5.0,
    "default by abnormal": 5.0,
    "default by both": 5.0,
    "overlap by normal": 8.0,
    "overlap by abnormal": 8.0,
    "learned by normal": 4.0,
    "learned by abnormal": 4.0,
    "euclidean by normal": 4.0,
    "euclidean by abnormal": 4.0,
    "default by normal, batch of 64": 10.0,
    "default by abnormal, batch of 64": 10.0,
    "learned by normal, batch of 64": 10.0,
}
"""How many times as quick as FAISS PQ8 ours is meant to be."""
PATIENTS_MS = 20.0
"""What a search for whole patients may take among a million slices."""


class DrawnDecoder:
    """Decodes queries with the shipped model, for the time it takes, and gives the maps that were drawn with them."""

    def __init__(self, decoder: PlaneDecoder, rows: dict[str, LabelRows], ids: dict[str, NDArray[np.uint8]]) -> None:
        self.decoder, self.rows, self.labels = decoder, rows, decoder.labels
        self.places: dict[tuple[str, bytes], int] = {}
        self.ids = ids

    @property
    def panels(self) -> tuple[str, ...]:
        return self.decoder.panels

    @property
    def version(self) -> str:
        return self.decoder.version

    @property
    def fitted(self) -> bool:
        return self.decoder.fitted

    def knows(self, places: NDArray[np.integer]) -> None:
        """Remember which slices will be asked for."""
        for panel in PANELS:
            for place in places.tolist():
                self.places[panel, self.ids[panel][place].tobytes()] = place

    def __call__(self, panel: str, ids: NDArray[np.integer]) -> Planes:
        self.decoder(panel, ids)
        places = [self.places[panel, grid.astype(np.uint8).tobytes()] for grid in ids]
        return planes_of(self.rows[panel].maps(np.array(places)).levels(np.arange(len(places))))


def main() -> None:
    arguments = parse()
    print(f"read from memory: {bandwidth():.1f} GB/s on one core")
    folder = named_model(MODEL)
    network = load_model(folder)
    tables = tables_of_model(network, folder, cache=Path("/nonexistent"))
    drawn, index = drawn_index(SIZES[arguments.slices], tables, arguments.keep)
    decoder = PlaneDecoder(network, LabelDecoders.open(folder, network))
    found = Ours(drawn, index, tables, decoder)
    print_bytes(found)
    contenders = found.contenders(only=arguments.only, plain=arguments.plain, clock=arguments.clock)
    recalls: dict[str, float] = {}
    if not arguments.ours_only:
        peers = assemble_peers(drawn, network, folder, found.places, found.truth(), only=arguments.peers)
        contenders += [peer.contender for peer in peers]
        recalls = {peer.contender.name: peer.recall for peer in peers}
        sizes = {peer.contender.name: peer.bytes_per_slice for peer in peers}
    for _ in range(arguments.rounds):
        for contender in contenders:
            take_turn(contender, CLOCKS[arguments.clock])
    times = {contender.name: contender.nanoseconds for contender in contenders}
    peer = times.get("FAISS PQ8")
    print(f"\n{'ns per slice and query':40} {'':>9} {'x PQ8':>7} {'goal':>5} {'recall':>7} {'bytes':>6}")
    for name, value in times.items():
        ratio = "" if peer is None else f"{peer / value:7.1f}"
        goal = f"{GOALS[name]:5.0f}" if name in GOALS else " " * 5
        more = f"{recalls[name]:7.2f} {sizes[name]:6.0f}" if name in recalls else f"{1:7.2f}"
        print(f"{name:40} {value:9.2f} {ratio:>7} {goal} {more}")
    for name, value in times.items():
        if name.startswith("patients"):
            print(f"{name}: {value * len(index) / 1e6:.1f} ms per search (goal {PATIENTS_MS:.0f} at a million slices)")
    if arguments.json:
        arguments.json.write_text(json.dumps({"slices": len(index), "nanoseconds": times, "recall": recalls}, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", choices=SIZES, default="1m")
    parser.add_argument("--keep", type=Path, help="keep the drawn archive in this folder for the next run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu", help="cpu: for one core of a busy machine")
    parser.add_argument("--ours-only", action="store_true", help="leave the peers out, as in runs for growth")
    parser.add_argument("--only", default="", help="leave out contenders of ours without this in their name")
    parser.add_argument("--peers", default="", help="leave out peers without this in their name, such as pq8")
    parser.add_argument("--plain", action="store_true", help="also our scans that look at every slice")
    parser.add_argument("--json", type=Path, help="write the times here")
    return parser.parse_args()


def bandwidth() -> float:
    """Bytes per nanosecond that one core reads, from an array larger than any cache."""
    words = np.ones(1 << 26, dtype=np.uint64)
    _add_up(words[:16])
    times = []
    for _ in range(3):
        start = time.process_time()
        _add_up(words)
        times.append(time.process_time() - start)
    return words.nbytes / min(times) / 1e9


@compiled
def _add_up(words: NDArray[np.uint64]) -> float:
    total = np.uint64(0)
    for word in words:
        total += word
    return float(total)


def drawn_index(slices: int, tables: Tables, keep: Path | None) -> tuple[DrawnArchive, SearchIndex]:
    """An archive of about so many slices, drawn now or taken from a folder."""
    path = None if keep is None else keep / f"{slices}.arrays"
    key = f"drawn {slices}"
    arrays = None if path is None else load_arrays(path, key=key)
    if arrays is None:
        start = time.process_time()
        drawn = draw_archive(slices // SLICES_PER_PATIENT, seed=1)
        between = time.process_time()
        index = build_index(drawn, tables)
        print(f"drawn in {between - start:.0f} s, index built in {time.process_time() - between:.0f} s")
        arrays = {**index.arrays(), "z_mm": drawn.z_mm}
        for panel in PANELS:
            arrays |= {f"labels.{panel}.{name}": array for name, array in drawn.labels[panel].arrays().items()}
        if path is not None:
            path.parent.mkdir(exist_ok=True, parents=True)
            save_arrays(path, arrays, key=key)
    index = SearchIndex.restore(arrays)
    start_of = {panel: f"labels.{panel}." for panel in PANELS}
    labels = {
        panel: LabelMaps.restore({k.removeprefix(begin): a for k, a in arrays.items() if k.startswith(begin)})
        for panel, begin in start_of.items()
    }
    ids = {panel: all_ids(index, panel) for panel in PANELS}
    return DrawnArchive(ids, labels, index.volume_starts, arrays["z_mm"], index.lesion_free), index


def all_ids(index: SearchIndex, panel: str) -> NDArray[np.uint8]:
    """Ids of every slice, a part at a time."""
    out = np.empty((len(index), index.cells), dtype=np.uint8)
    for first in range(0, len(index), 20_000):
        rows = np.arange(first, min(first + 20_000, len(index)))
        out[rows] = index.codes[panel].ids(rows)
    return out


def build_index(drawn: DrawnArchive, tables: Tables) -> SearchIndex:
    return SearchIndex.build(
        grid=(16, 16),
        normal=drawn.ids["normal"],
        abnormal=drawn.ids["abnormal"],
        volume_of_slice=drawn.volume_of_slice,
        patient_of_volume=np.arange(len(drawn.volume_starts) - 1),
        lesion_free=drawn.lesion_free,
        tables=tables,
    )


class Ours:
    """Diptych's own searches of a drawn archive."""

    def __init__(self, drawn: DrawnArchive, index: SearchIndex, tables: Tables, decoder: PlaneDecoder) -> None:
        self.drawn, self.index, self.tables, self.decoder = drawn, index, tables, decoder
        self.places = largest_lesions(drawn)
        self.one = self.searcher(threads=1)

    def searcher(self, *, threads: int, prune: bool = True) -> Searcher:
        engine = SearchEngine(self.index, self.tables, threads=threads, prune=prune)
        everything = Places(
            np.zeros(self.index.volumes, np.int64), self.drawn.volume_starts[:-1], self.drawn.volume_starts
        )
        rows = stored_rows([self.drawn.labels], everything, engine.pool)
        decoder = DrawnDecoder(self.decoder, rows, self.drawn.ids)
        decoder.knows(self.places)
        planes = ArchivePlanes(self.index, decoder, cache=None, version="drawn", stored=rows)
        return Searcher(engine, planes, heights=self.drawn.z_mm)

    def query(self, number: int, by: str, metric: str) -> Query:
        place = self.places[number]
        ids = {panel: self.drawn.ids[panel][place].reshape(16, 16) for panel in PANELS if by in (panel, "both")}
        own = int(np.searchsorted(self.drawn.volume_starts, place, side="right")) - 1
        where = Filter(exclude_patients=[own])
        return Query(**ids, by=by, metric=metric, where=where, group="patient")  # type: ignore[arg-type]

    def truth(self) -> list[list[int]]:
        """The ten nearest patients of each query by the default metric."""
        queries = [self.query(number, "normal", "default") for number in range(QUERIES)]
        return [[match.patient for match in self.one.search(query)] for query in queries]

    def contenders(self, *, only: str, plain: bool, clock: str) -> list[Contender]:
        count = len(self.index)
        asked = [
            (f"{metric} by {by}", by, metric)
            for metric in ("default", "overlap", "learned", "euclidean")
            for by in (*PANELS, "both")
        ]
        found = [Contender(name, partial(self._search, self.one, by, metric), count) for name, by, metric in asked]
        if plain:
            slow = self.searcher(threads=1, prune=False)
            found += [
                Contender(f"{name}, plain", partial(self._search, slow, by, metric), count)
                for name, by, metric in asked
                if metric in ("learned", "euclidean")
            ]
        if clock == "wall":
            two = self.searcher(threads=2)
            found += [
                Contender(f"{name}, two threads", partial(self._search, two, by, metric), count)
                for name, by, metric in asked
                if metric in ("default", "learned")
            ]
        for by, metric in (
            ("normal", "default"),
            ("abnormal", "default"),
            ("normal", "learned"),
            ("normal", "euclidean"),
        ):
            queries = [self.query(number, by, metric) for number in range(BATCH)]
            run = partial(self._batch, queries)
            found.append(Contender(f"{metric} by {by}, batch of 64", run, count * BATCH, calls=1))
        found += [Contender(f"patients by {by}", partial(self._patients, by), count) for by in (*PANELS, "both")]
        return [contender for contender in found if only in contender.name]

    def _search(self, searcher: Searcher, by: str, metric: str, number: int) -> object:
        return searcher.search(self.query(number, by, metric))

    def _batch(self, queries: list[Query], _: int) -> object:
        return self.one.search_batch(queries)

    def _patients(self, by: str, number: int) -> object:
        if not hasattr(self, "_whole"):
            infos = [VolumeInfo(f"V{n}", f"P{n}") for n in range(self.index.volumes)]
            starts = self.drawn.volume_starts
            z_index = np.arange(len(self.index)) - np.repeat(starts[:-1], np.diff(starts))
            rows = self.one.planes.stored if self.one.planes is not None else None
            assert rows is not None
            self._whole = PatientSearch(self.one.engine, rows, infos, self.drawn.z_mm, z_index)
        query = self.query(number, "both", "overlap")
        own = query.where.exclude_patients[0]  # type: ignore[index]
        begin, end = self.drawn.volume_starts[own : own + 2]
        whole = np.arange(begin, end)
        levels = {panel: self.drawn.labels[panel].levels(whole) for panel in PANELS}
        stack = Stack(levels, self.drawn.z_mm[begin:end], np.arange(end - begin))
        return self._whole.search(stack, replace(query, by=by))  # type: ignore[arg-type]


def largest_lesions(drawn: DrawnArchive) -> NDArray[np.intp]:
    """As in the paper, queries are the slices with the largest lesion of some patients."""
    area = drawn.labels["abnormal"].areas.sum(axis=1)
    volumes = np.random.default_rng(0).choice(len(drawn.volume_starts) - 1, BATCH, replace=False)
    edges = drawn.volume_starts
    return np.array([edges[v] + np.argmax(area[edges[v] : edges[v + 1]]) for v in volumes])


def print_bytes(found: Ours) -> None:
    """What searches read, per slice."""
    count = len(found.index)
    labels = {panel: maps.nbytes / count for panel, maps in found.drawn.labels.items()}
    codes = {panel: found.index.codes[panel].nbytes / count for panel in PANELS}
    chunks = {panel: found.index.chunks[panel].nbytes / count for panel in PANELS}
    print(f"{count} slices of {found.index.volumes} patients; bytes per slice:")
    for name, sizes in (("label maps", labels), ("codes", codes), ("runs and changes", chunks)):
        print(f"  {name:18} normal {sizes['normal']:6.1f}   abnormal {sizes['abnormal']:6.1f}")
    print(f"  the default search reads {sum(labels.values()) + sum(codes.values()):.0f} (goal 1024)")


if __name__ == "__main__":
    main()
