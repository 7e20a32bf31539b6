"""Retrieval: the questions a reader asks, answered from two discrete codes.

archive    Archive: open it, ask it                 subjects   what a question starts from
questions  Question: how to compare, what to find   answers    what comes back
regions    which cells are compared                 catalogue  archive → search index, with its cache
decoding   ids → pictures                           metrics    which distances there are

Knows everything below it: volumes, slices, model, archive, search. Nothing about commands or servers.
"""

from __future__ import annotations

from diptych.retrieval.answer import Answer, SliceMatch
from diptych.retrieval.anywhere import PlacedLesion
from diptych.retrieval.archive import Archive
from diptych.retrieval.encoded_slice import EncodedSlice, compose
from diptych.retrieval.question import Question, region_of_cells, region_of_mask, region_of_rectangle

__all__ = [
    "Answer",
    "Archive",
    "EncodedSlice",
    "PlacedLesion",
    "Question",
    "SliceMatch",
    "compose",
    "region_of_cells",
    "region_of_mask",
    "region_of_rectangle",
]
