"""Search: exact nearest slices, volumes and patients from id grids by table look-up.

    index = SearchIndex.build(...)            arrays of ids in, packed index out
    engine = SearchEngine(index, tables)      `diptych.search.tables` makes tables from codebooks
    matches = engine.search(Query(normal=ids))

Knows arrays; nothing about files, models or pixels. Start reading at `engine.py`.
"""

from diptych.archive.array_file import load_arrays, save_arrays
from diptych.search.engine import SearchEngine
from diptych.search.query import PANELS, Filter, Match, PanelMatch, Query
from diptych.search.search_index import SearchIndex

__all__ = [
    "PANELS",
    "Filter",
    "Match",
    "PanelMatch",
    "Query",
    "SearchEngine",
    "SearchIndex",
    "load_arrays",
    "save_arrays",
]
