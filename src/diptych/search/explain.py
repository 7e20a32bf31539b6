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

from diptych.search.index import PANELS, SearchIndex
from diptych.search.query import Match, PanelMatch
from diptych.search.score import Score, Term

__all__ = ["explain", "parts"]


def explain(
    score: Score,
    terms: Mapping[str, Term | None],
    index: SearchIndex,
    volumes: NDArray[np.int64],
    slices: NDArray[np.int64],
) -> list[Match]:
    """Matches for the best slices of the best volumes, in their order."""
    panels: dict[str, list[PanelMatch | None]] = {panel: [None] * len(slices) for panel in PANELS}
    for panel, term in terms.items():
        if term is not None:
            panels[panel] = list(_compare(term, index, slices))
    matches = []
    for place, (volume, found) in enumerate(zip(volumes.tolist(), slices.tolist(), strict=True)):
        compared = [(term.factor, panels[term.panel][place]) for term in score.terms]
        distance = sum(factor * one.distance for factor, one in compared if one is not None)
        contributions = np.sum([factor * one.contributions for factor, one in compared if one is not None], axis=0)
        patient = int(index.patient_of_volume[volume])
        matches.append(
            Match(
                found,
                volume,
                patient,
                float(distance),
                contributions,
                panels["normal"][place],
                panels["abnormal"][place],
            )
        )
    return matches


def _compare(term: Term, index: SearchIndex, slices: NDArray[np.int64]) -> list[PanelMatch]:
    compared = []
    for ids in index.codes[term.panel].ids(slices):
        distance, cells = parts(term, ids)
        compared.append(PanelMatch(distance, cells.reshape(index.grid)))
    return compared


def parts(term: Term, ids: NDArray[np.integer]) -> tuple[float, NDArray[np.float64]]:
    """Distance from the query to the ids `[P]` of one slice, and each cell's part of it."""
    cells = np.arange(len(ids))
    entries = term.look_up.entries[cells, ids].astype(np.float64)
    if term.norms is None:
        distance = float(term.table.distance(entries.sum()))
        scale = term.table.unit / distance if term.table.kind == "root" and distance else term.table.unit
        return distance, entries * scale
    lengths = term.norms.look_up.entries[cells, ids].astype(np.float64)
    distance = float(term.table.distance(-entries.sum(), term.norms.query, lengths.sum()))
    chord = _chord(term, entries, lengths)
    return distance, chord * (distance / chord.sum() if chord.sum() > 0 else 0.0)


def _chord(term: Term, negated: NDArray[np.float64], lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each cell's part of the squared chord between the two unit vectors; a zero vector stays zero."""
    assert term.norms is not None
    query, found = float(term.norms.query), float(lengths.sum())
    own = term.norms.query_cells / query if query else np.zeros_like(lengths)
    other = lengths / found if found else np.zeros_like(lengths)
    cross = negated / np.sqrt(query * found) if query and found else np.zeros_like(lengths)
    return np.maximum(own + other + 2 * cross, 0.0)
