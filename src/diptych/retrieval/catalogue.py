"""`Catalogue`: one version of an archive, ready to be searched, made of its segments.

Knows archives and search indexes; nothing about models or questions. Segments are used only where the truth holds
exactly the volumes they were made from, and only after their checksums hold (`diptych.archive.segments`). What they do
not cover is read from the archive and becomes one more segment; where the folder cannot be written it stays in memory,
and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych import archive
from diptych.archive import VolumeInfo
from diptych.archive.archive_store import Listing, StoredVolume
from diptych.archive.segments import Covered, Segment, cover, drop_segments, open_segments, write_segment
from diptych.errors import ArchiveError
from diptych.metrics.model_tables import tables_of_model
from diptych.model.stored_model import Identified
from diptych.search import PANELS, SearchIndex
from diptych.search.joined import Places
from diptych.search.label_maps import LabelMaps
from diptych.search.label_storage import unpack_labels
from diptych.search.tables import Tables

SEGMENT_VERSION = 2
"""Raise it whenever `SearchIndex`, `LabelMaps` or the columns below change."""
MOST_SEGMENTS = 8
"""With more of them, the small ones are made into one."""
FEWEST_SEGMENTS = 4
LABELS = "labels"
CLEAR_MM = 8.0
"""How far from a predicted lesion a slice must lie to count as lesion-free. On 12 validation patients 89.1 % of the
slices without a predicted lesion are truly free, 98.5 % of those 4 mm and 99.6 % of those 8 mm clear of one."""

COLUMNS = ("z_index", "position", "z_mm", "lesion_area")
SAMPLE = 20_000
"""Slices that statistics over an archive look at, at most."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The index with what is known of each volume and slice; all arrays are in the index's order."""

    version: str
    index: SearchIndex
    volumes: tuple[VolumeInfo, ...]
    z_index: NDArray[np.uint16]
    """`[N]`, as are the next three."""
    position: NDArray[np.float32]
    z_mm: NDArray[np.float32]
    lesion_area: NDArray[np.float32]
    problems: tuple[str, ...] = ()
    """Damaged volumes that are left out; whoever shows an answer must show these too."""
    segments: tuple[Segment, ...] = ()
    """What it is made of."""
    places: Places | None = None
    """Where each volume lies in the segments."""
    labels: tuple[Mapping[str, LabelMaps], ...] = ()
    """What codes decode to, by segment and panel; nothing in a segment that was never decoded."""

    @cached_property
    def patients(self) -> dict[str, int]:
        """The index's number of each patient."""
        numbers = self.index.patient_of_volume.tolist()
        return {info.patient_key: number for info, number in zip(self.volumes, numbers, strict=True)}

    @cached_property
    def places_of_keys(self) -> dict[str, int]:
        """Where each volume stands among all, by its key."""
        return {info.volume_key: place for place, info in enumerate(self.volumes)}

    def place(self, volume_key: str, z_index: int) -> int | None:
        """Place in the index of a slice, None where it is not there."""
        volume = self.places_of_keys.get(volume_key)
        if volume is None:
            return None
        start, stop = self.index.volume_starts[volume : volume + 2].tolist()
        found = np.flatnonzero(self.z_index[start:stop] == z_index)
        return start + int(found[0]) if len(found) else None

    def slices_of(self, volume_key: str) -> NDArray[np.int64]:
        """Places in the index of a volume's slices."""
        volume = self.places_of_keys.get(volume_key)
        return np.arange(0) if volume is None else np.arange(*self.index.volume_starts[volume : volume + 2].tolist())

    def sample(self) -> NDArray[np.int64]:
        """Slices spread evenly over the archive, all of a small one."""
        return np.unique(np.linspace(0, len(self.index) - 1, min(len(self.index), SAMPLE)).round().astype(np.int64))

    def frequencies(self, panel: str, slices: NDArray[np.int64]) -> NDArray[np.float64]:
        """How often each code stands in each cell of these slices, `[P, K]`, as a share of them."""
        codes = self.index.codes[panel]
        counts = [np.bincount(column, minlength=codes.codes) for column in codes.ids(slices).T]
        return np.stack(counts) / max(len(slices), 1)

    @cached_property
    def quiet_ids(self) -> NDArray[np.int64]:
        """The commonest abnormal id of each cell among lesion-free slices (among all, where none is known), `[h, w]`:
        what stands where there is nothing abnormal."""
        slices = self.sample()
        free = slices[self.index.lesion_free[slices]]
        shares = self.frequencies("abnormal", free if len(free) else slices)
        return np.asarray(np.argmax(shares, axis=1), dtype=np.int64).reshape(self.index.grid)


def open_catalogue(store: archive.ArchiveStore, tables: Tables) -> Catalogue:
    """The current version of an archive."""
    listing = store.listing()
    if not listing.volumes and not listing.problems:
        raise ArchiveError(f"{store.path}: holds no volume; add some with 'diptych index'")
    key = segment_key(store)
    opened = open_segments(store.path, key=key)
    segments, covered = list(opened.segments), cover(opened.segments, listing.identities)
    kept, listing, problems = _completed(store, tables, listing, segments, covered)
    drop_segments([*opened.damaged, *_superseded(segments, kept)])
    if not listing.volumes:
        problem = (*listing.problems, *problems)[0]
        raise ArchiveError(f"{store.path}: every volume is damaged ({problem}); index the sources again")
    return _join(kept, listing, (*listing.problems, *problems))


def prepare_search(store: archive.ArchiveStore, model: Identified, folder: Path | None) -> None:
    """Make the segments that the next search needs, after a change; an empty archive needs none."""
    if store.listing().volumes:
        open_catalogue(store, tables_of_model(model, folder, cache=store.cache_folder))


def segment_key(store: archive.ArchiveStore) -> str:
    """Segments under another key belong to another model, or to another version of Diptych."""
    return f"segment {SEGMENT_VERSION} of model {store.model.fingerprint}"


def _completed(
    store: archive.ArchiveStore, tables: Tables, listing: Listing, segments: list[Segment], covered: Covered
) -> tuple[list[Segment], Listing, list[str]]:
    """Segments that cover the whole listing, and the listing without what turns out to be damaged."""
    kept = [segment for segment in segments if segment.name in covered.rows]
    missing = list(covered.missing)
    if len(kept) + bool(missing) > MOST_SEGMENTS:  # make the small ones into one, largest first they stand
        places = {identity: place for place, identity in enumerate(listing.identities)}
        for segment in kept[FEWEST_SEGMENTS - 1 :]:
            missing += [places[segment.identities[row]] for row in covered.rows[segment.name].tolist()]
        kept = kept[: FEWEST_SEGMENTS - 1]
    if not missing:
        return kept, listing, []
    stored, problems = store.stored([listing.volumes[place].volume_key for place in missing])
    for version in sorted({"" if one.labels is None else one.labels.version for one in stored}):
        alike = [one for one in stored if ("" if one.labels is None else one.labels.version) == version]
        kept.append(_written(store, build_segment(alike, store.model, tables)))
    known = {identity for segment in kept for identity in segment.identities}
    whole = [place for place, identity in enumerate(listing.identities) if identity in known]
    return kept, _only(listing, whole), problems


def _written(store: archive.ArchiveStore, segment: Segment) -> Segment:
    """The segment on disk, and taken back if the archive has moved on: what was removed must not linger."""
    written = write_segment(store.path, segment, key=segment_key(store))
    if written.path is not None and not set(store.listing().identities).issuperset(segment.identities):
        drop_segments([written.path])
    return written


def _superseded(before: Sequence[Segment], after: Sequence[Segment]) -> list[Path]:
    """Files whose live rows, if they have any, all lie in other segments now."""
    names = {segment.name for segment in after}
    return [segment.path for segment in before if segment.path is not None and segment.name not in names]


def _only(listing: Listing, places: list[int]) -> Listing:
    """The listing with some of its volumes."""
    volumes, slices, identities = (
        tuple(getattr(listing, name)[place] for place in places) for name in ("volumes", "slices", "identities")
    )
    return replace(listing, volumes=volumes, slices=slices, identities=identities)


def _lesion_free(record: archive.VolumeRecord) -> NDArray[np.bool_]:
    """Which slices hold no lesion: by their labels, or, where lesions are predicted, well clear of any."""
    predicted = record.info.lesion_source == "predicted"
    return clear_of_lesions(record.lesion_area, record.z_mm) if predicted else record.lesion_area == 0


def clear_of_lesions(lesion_area: NDArray[np.floating], z_mm: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Slices of one volume in which no lesion is predicted, nor in any other within `CLEAR_MM`, bool `[N]`.

    What a model misses lies mostly above and below what it sees.
    """
    seen = z_mm[lesion_area > 0]
    free = np.asarray(lesion_area == 0)
    if len(seen):
        free &= np.abs(z_mm[:, None] - seen).min(axis=1) > CLEAR_MM
    return free


def build_segment(stored: Sequence[StoredVolume], model: archive.ModelIdentity, tables: Tables) -> Segment:
    """Some volumes, which come in the order of their keys, as a segment in memory."""
    records = [one.record for one in stored]
    slices = [record.slice_count for record in records]
    columns = {name: np.concatenate([getattr(record, name) for record in records]) for name in COLUMNS}
    index = SearchIndex.build(
        grid=model.grid,
        normal=np.concatenate([record.normal_ids.reshape(-1, model.cells) for record in records]),
        abnormal=np.concatenate([record.abnormal_ids.reshape(-1, model.cells) for record in records]),
        volume_of_slice=np.repeat(np.arange(len(records)), slices),
        patient_of_volume=np.arange(len(records)),
        lesion_free=np.concatenate([_lesion_free(record) for record in records]),
        tables=tables,
    )
    arrays = {**index.arrays(), **columns}
    for panel, maps in _label_maps(stored).items():
        arrays |= {f"{LABELS}.{panel}.{name}": array for name, array in maps.arrays().items()}
    return Segment(tuple(one.identity for one in stored), arrays)


def _label_maps(stored: Sequence[StoredVolume]) -> dict[str, LabelMaps]:
    """By panel, where all of the volumes have some."""
    parts = [unpack_labels(one.labels, one.record.slice_count) if one.labels else {} for one in stored]
    return {
        panel: LabelMaps.join([part[panel] for part in parts]) for panel in PANELS if all(panel in p for p in parts)
    }


def _join(segments: Sequence[Segment], listing: Listing, problems: tuple[str, ...]) -> Catalogue:
    """The volumes of a listing, each in the first segment that has it."""
    indexes = [SearchIndex.restore(segment.arrays) for segment in segments]
    found: dict[bytes, tuple[int, int]] = {}
    for number, segment in enumerate(segments):
        for row, identity in enumerate(segment.identities):
            found.setdefault(identity, (number, row))
    where = np.array([found[identity] for identity in listing.identities], dtype=np.int64)
    starts = np.array([indexes[part].volume_starts[row] for part, row in where.tolist()], dtype=np.int64)
    places = Places(where[:, 0], starts, np.append(0, np.cumsum(listing.slices)).astype(np.int64))
    patients = _number([info.patient_key for info in listing.volumes])
    if len(segments) == 1 and np.array_equal(places.begins, indexes[0].volume_starts):
        index = replace(indexes[0], patient_of_volume=patients)
        columns: dict[str, Any] = {name: segments[0].arrays[name] for name in COLUMNS}
    else:
        index = SearchIndex.join(indexes, places, patients)
        part, rows = places.rows(np.arange(len(places)))
        columns = {name: _gather([segment.arrays[name] for segment in segments], part, rows) for name in COLUMNS}
    return Catalogue(
        version=f"{listing.version}-damaged" if problems else listing.version,
        index=index,
        volumes=listing.volumes,
        **columns,
        problems=problems,
        segments=tuple(segments),
        places=places,
        labels=tuple(_restored_labels(segment) for segment in segments),
    )


def _gather(columns: Sequence[NDArray[Any]], part: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[Any]:
    out = np.empty(len(rows), dtype=columns[0].dtype)
    for number, column in enumerate(columns):
        out[part == number] = column[rows[part == number]]
    return out


def _restored_labels(segment: Segment) -> dict[str, LabelMaps]:
    found = {}
    for panel in PANELS:
        start = f"{LABELS}.{panel}."
        arrays = {name.removeprefix(start): array for name, array in segment.arrays.items() if name.startswith(start)}
        if arrays:
            found[panel] = LabelMaps.restore(arrays)
    return found


def _number(patient_keys: Sequence[str]) -> NDArray[np.int64]:
    """Number patients in the order of their keys, `[V]`."""
    return np.unique(np.array(patient_keys, dtype=object), return_inverse=True)[1].astype(np.int64)
