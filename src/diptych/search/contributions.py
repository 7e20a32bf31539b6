"""Why a slice matched: each cell's part of the distance.

Knows scores and tables. Parts add up to the distance, in every metric:

    hamming     the cell's own Hamming distance
    euclidean   the cell's squared distance divided by D_E: the share of the square that it brought about
    angular     D_A times the cell's share of |q/|q| - r/|r||², the squared chord between the two directions
    both        the panels' parts, each multiplied as its distance was
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from diptych.search.query import PANELS, Match, PanelMatch
from diptych.search.score import Keys, Score, Term
from diptych.search.search_index import SearchIndex


def explain(
    score: Score,
    terms: Mapping[str, Term | None],
    index: SearchIndex,
    volumes: NDArray[np.int64],
    slices: NDArray[np.int64],
    keys: Keys,
) -> list[Match]:
    """Matches for the best slices of the best volumes, in their order."""
    compared = {panel: parts(term, index.codes[panel].ids(slices)) for panel, term in terms.items() if term is not None}
    total = np.zeros(len(slices))
    shares = np.zeros((len(slices), index.cells))
    for term in score.terms:
        distances, cells = compared[term.panel]
        total += term.factor * distances
        shares += term.factor * cells
    weights = {term.panel: term.factor for term in score.terms}
    normal, abnormal = (
        _panel_matches(compared.get(panel), index, len(slices), weights.get(panel, 0.0)) for panel in PANELS
    )
    patients = index.patient_of_volume[volumes].tolist()
    grids = shares.reshape(-1, *index.grid)
    places = zip(slices.tolist(), volumes.tolist(), patients, keys.tolist(), strict=True)
    found = zip(total.tolist(), grids, normal, abnormal, strict=True)
    return [
        Match(place, volume, patient, *rest, key=key)
        for (place, volume, patient, key), rest in zip(places, found, strict=True)
    ]


def _panel_matches(
    compared: tuple[NDArray[np.float64], NDArray[np.float64]] | None, index: SearchIndex, count: int, weight: float
) -> list[PanelMatch | None]:
    if compared is None:
        return [None] * count
    distances, cells = compared
    grids = cells.reshape(-1, *index.grid)
    return [PanelMatch(distance, grid, weight) for distance, grid in zip(distances.tolist(), grids, strict=True)]


def parts(term: Term, ids: NDArray[np.integer]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distances from the query to slices with the ids `[n, P]`, and each cell's part of them, `[n, P]`."""
    cells = np.arange(ids.shape[1])
    entries = term.look_up.entries[cells, ids].astype(np.int64)
    if term.norms is not None:
        lengths = term.norms.look_up.entries[cells, ids].astype(np.int64)
        distances = term.table.distance(-entries.sum(axis=1), term.norms.query, lengths.sum(axis=1))
        return distances, _shared(distances, _chords(term.norms.query_cells, lengths, entries))
    distances = term.table.distance(entries.sum(axis=1))
    if term.table.kind == "root":
        return distances, _shared(distances, entries.astype(np.float64))
    return distances, entries * term.table.unit


def _shared(distances: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hand each row's distance out to its cells in proportion to their weights."""
    totals = weights.sum(axis=1)
    rates: NDArray[np.float64] = distances / np.where(totals > 0, totals, 1.0)
    return weights * rates[:, None]


def _chords(query: NDArray[np.int64], slices: NDArray[np.int64], negated: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each cell's part of the squared chord between two unit vectors; a zero vector stays zero."""
    own, other = float(query.sum()), slices.sum(axis=1, keepdims=True).astype(np.float64)
    product = np.sqrt(own * other)
    cross = np.divide(2.0 * negated, product, out=np.zeros(slices.shape), where=product > 0)
    chords = query / (own or 1.0) + slices / np.where(other > 0, other, 1.0) + cross
    return np.asarray(np.maximum(chords, 0.0))
