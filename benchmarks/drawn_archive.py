"""Archives drawn from statistics of the shipped model: as many slices as one likes, of nobody.

    python benchmarks/drawn_archive.py ARCHIVE --patients train.txt --out drawn-archive.safetensors

fits the statistics to some patients of an archive and prints moments of theirs beside those of as many drawn ones.

A drawn patient is a few numbers that say how it differs from the mean: its anatomy is the mean signed distance to each
label's border, moved along the first axes of variation, with smooth noise of the size that is left; its lesion is an
uneven ellipsoid of nested labels; its codes follow from place, lesion and the same few numbers, so that patients alike
in anatomy are alike in codes. `drawn-archive.safetensors` has what was fitted: means, axes and quantiles over a hundred
patients, 256 cells, both panels. Codes and maps come out as an archive's segment holds them. Knows no image and no
network.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from diptych.compiling import compiled
from diptych.search import PANELS
from diptych.search.label_maps import LabelMaps
from diptych.search.label_scan import LabelQuery, exact_distances

FILE = Path(__file__).with_name("drawn-archive.safetensors")
SIDE = 32
CELLS = 256
PIXEL_MM = 7.5
SPACING_MM = 2.0
PATIENTS_AT_ONCE = 256
STOREY_MM = 8.0
"""Distance of the heights at which anatomy is stored."""
STOREYS = 19
AXES = 6
"""Axes of variation that are kept."""
QUANTILES = 64
CODE_STOREYS = 10
"""Heights at which codes' quantiles are stored."""
NOISE = 8
"""Cells along a side of the grid on which noise is drawn."""
FURTHEST_MM = 16.0
"""Signed distances are cut off here."""

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Panels = dict[str, Bytes]


@dataclass(frozen=True, eq=False)
class Statistics:
    """What was fitted; lengths in millimetres."""

    mean: Floats
    """Signed distance to the border of each anatomy label, positive inside, `[STOREYS, C, 32, 32]`."""
    axes: Floats
    """What one standard deviation along each axis adds, `[AXES, STOREYS, C, 32, 32]`."""
    noise: Floats
    """Standard deviation of what the axes leave, `[C]`."""
    edges: Floats
    """Signed distances from which a pixel has 1, 2 and 3 levels, `[C, 3]`."""
    lesions: Floats
    """Height, row and column of the centre, logarithms of the radius and of the share of each label: one mean, then
    the factor of the covariance, `[1 + M, M]`."""
    codes: dict[str, Bytes]
    """Codes by height, cell and quantile, in an order in which neighbours are alike, `[CODE_STOREYS, P, QUANTILES]`."""
    lesion_codes: Bytes
    """Abnormal codes by label of the lesion and quantile, `[3, QUANTILES]`."""
    slices: Floats
    """Lowest and highest slice in millimetres: means and standard deviations, `[2, 2]`."""
    knobs: dict[str, float]
    """What moments decide; see `moments`."""

    def save(self, path: Path) -> None:
        step = FURTHEST_MM / 127
        arrays: dict[str, NDArray[Any]] = {
            "mean": np.rint(self.mean / step).astype(np.int8),
            "axes": np.clip(np.rint(self.axes / step * 4), -127, 127).astype(np.int8),
            "noise": self.noise,
            "edges": self.edges,
            "lesions": self.lesions,
            **self.codes,
            "lesion_codes": self.lesion_codes,
            "slices": self.slices,
            "knobs": np.array([self.knobs[name] for name in KNOBS]),
        }
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)

    @classmethod
    def load(cls, path: Path = FILE) -> Statistics:
        step = FURTHEST_MM / 127
        file = load_file(path)
        return cls(
            file["mean"].astype(np.float32) * np.float32(step),
            file["axes"].astype(np.float32) * np.float32(step / 4),
            file["noise"],
            file["edges"],
            file["lesions"],
            {panel: file[panel] for panel in PANELS},
            file["lesion_codes"],
            file["slices"],
            dict(zip(KNOBS, file["knobs"].tolist(), strict=True)),
        )


KNOBS = ("noise", "roughness", "normal_stay", "abnormal_stay", "normal_likeness", "abnormal_likeness")
"""Size of anatomy's noise and of the lesion's, how often codes stay from slice to slice, how far patients' codes are
alike where their anatomy is."""


@dataclass(frozen=True, eq=False)
class DrawnArchive:
    """Codes and label maps of both panels; one volume per patient."""

    ids: dict[str, Bytes]
    """By panel, `[N, P]`."""
    labels: dict[str, LabelMaps]
    volume_starts: NDArray[np.int64]
    z_mm: Floats
    lesion_free: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.z_mm)

    @property
    def volume_of_slice(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.volume_starts) - 1), np.diff(self.volume_starts))


def draw_archive(patients: int, *, seed: int = 0, statistics: Statistics | None = None) -> DrawnArchive:
    """So many patients, 68 slices each on average, 2 mm apart."""
    known = Statistics.load() if statistics is None else statistics
    rng = np.random.default_rng(seed)
    ends = known.slices[:, 0] + rng.standard_normal((patients, 2)) * known.slices[:, 1]  # [V, 2]
    lowest = np.rint(ends[:, 0] / SPACING_MM).astype(np.int64)
    counts = np.clip(np.rint(ends[:, 1] / SPACING_MM).astype(np.int64) - lowest + 1, 20, 90)
    starts = np.append(0, np.cumsum(counts))
    z_mm = (np.arange(starts[-1]) - np.repeat(starts[:-1] - lowest, counts)) * SPACING_MM + 0.5
    ids = {panel: np.empty((starts[-1], CELLS), dtype=np.uint8) for panel in PANELS}
    maps: dict[str, list[LabelMaps]] = {panel: [] for panel in PANELS}
    for first in range(0, patients, PATIENTS_AT_ONCE):
        some = starts[first : first + PATIENTS_AT_ONCE + 1]
        pixels = {panel: np.zeros((some[-1] - some[0], SIDE**2), dtype=np.uint8) for panel in PANELS}
        for begin, end in pairwise(some.tolist()):
            mine = {panel: pixels[panel][begin - some[0] : end - some[0]] for panel in PANELS}
            draw_patient(known, z_mm[begin:end], rng, mine, {panel: ids[panel][begin:end] for panel in PANELS})
        for panel in PANELS:
            maps[panel].append(LabelMaps.of_states(pixels[panel], STATES[panel], (SIDE, SIDE)))
    labels = {panel: LabelMaps.join(parts) for panel, parts in maps.items()}
    return DrawnArchive(ids, labels, starts, z_mm.astype(np.float32), labels["abnormal"].areas.sum(axis=1) == 0)


def draw_patient(
    known: Statistics, z_mm: NDArray[np.float64], rng: np.random.Generator, pixels: Panels, ids: Panels
) -> None:
    """One patient's states of pixels `[n, 1024]` and codes `[n, 256]`, into the arrays given."""
    place = rng.standard_normal(AXES).astype(np.float32)
    fields = known.mean + np.tensordot(place, known.axes, axes=1)
    fields += smooth_noise(rng, len(known.noise)) * (known.knobs["noise"] * known.noise)[:, None, None]
    draw_states(fields, known.edges, z_mm / STOREY_MM, pixels["normal"])
    lesion = draw_lesion(known, rng)
    draw_states(lesion, LESION_EDGES, z_mm / STOREY_MM, pixels["abnormal"])
    storeys = np.clip(z_mm / (STOREY_MM * STOREYS / CODE_STOREYS), 0, CODE_STOREYS - 1)
    label_of_cell = pixels["abnormal"].reshape(-1, SIDE // 2, 2, SIDE // 2, 2).max(axis=(2, 4)).reshape(len(z_mm), -1)
    held = np.where(label_of_cell > 0, MAIN_LABEL[label_of_cell], 0)
    for panel in PANELS:
        likeness = known.knobs[f"{panel}_likeness"]
        shift = np.sqrt(likeness) * np.tensordot(place, WAVES[panel], axes=1)  # [CODE_STOREYS, P]
        draw_codes(
            known.codes[panel],
            known.lesion_codes,
            shift,
            float(np.sqrt(1 - likeness)),
            known.knobs[f"{panel}_stay"],
            storeys,
            held if panel == "abnormal" else np.zeros_like(held),
            rng,
            ids[panel],
        )


def draw_lesion(known: Statistics, rng: np.random.Generator) -> Floats:
    """Signed distances to the borders of nested labels, positive inside, `[STOREYS, 3, 32, 32]`."""
    drawn = known.lesions[0] + rng.standard_normal(known.lesions.shape[1]) @ known.lesions[1:]
    z, y, x, radius = drawn[0], drawn[1], drawn[2], np.exp(drawn[3])
    if rng.random() < 0.5:
        x = SIDE - 1 - x
    stretch = np.exp(rng.normal(0, 0.25, 3))
    stretch /= stretch.prod() ** (1 / 3)
    axes = np.meshgrid(
        (np.arange(STOREYS) * STOREY_MM - z) * stretch[0],
        (np.arange(SIDE) - y) * PIXEL_MM * stretch[1],
        (np.arange(SIDE) - x) * PIXEL_MM * stretch[2],
        indexing="ij",
    )
    inside = radius - np.sqrt(sum(axis**2 for axis in axes)) + known.knobs["roughness"] * smooth_noise(rng, 1)[:, 0]
    shares = np.exp(drawn[4:]) / np.exp(drawn[4:]).sum()  # of the volume: necrosis, oedema, enhancing
    core = radius * (1 - (shares[0] + shares[2]) ** (1 / 3))
    dead = radius * (1 - shares[0] ** (1 / 3))
    labels = [inside - dead, np.minimum(inside, core - inside), np.minimum(inside - core, dead - inside)]
    return np.stack(labels, axis=1).astype(np.float32)


def smooth_noise(rng: np.random.Generator, fields: int) -> Floats:
    """Noise of unit variance that changes over some pixels and storeys, `[STOREYS, fields, 32, 32]`."""
    coarse = rng.standard_normal((STOREYS // 2 + 2, fields, NOISE + 1, NOISE + 1)).astype(np.float32)
    out = between(between(between(coarse, 0, STOREYS, 0.5), 2, SIDE, NOISE / SIDE), 3, SIDE, NOISE / SIDE)
    return np.asarray(out * np.float32(1.5**1.5), dtype=np.float32)  # what interpolation takes away


def between(values: Floats, axis: int, count: int, step: float) -> Floats:
    """Values in between along an axis, `step` of its places apart."""
    at = np.arange(count) * step
    below = at.astype(np.int64)
    shape = [1] * values.ndim
    shape[axis] = count
    rest = (at - below).astype(np.float32).reshape(shape)
    return values.take(below, axis) * (1 - rest) + values.take(below + 1, axis) * rest


def all_states(classes: int) -> Bytes:
    """Levels of every state `[U, C]`: nothing; one class at a level; two, the first at two or one and the other at one.

    A pixel's state is 0, or 1 + 3 · first + (level - 1), or 1 + 3C + (2 · first + level - 1) · C + second.
    """
    states = np.zeros((1 + 3 * classes + 2 * classes**2, classes), dtype=np.uint8)
    for first in range(classes):
        for level in (1, 2, 3):
            states[3 * first + level, first] = level
        for level, second in product((1, 2), range(classes)):
            state = states[1 + 3 * classes + (2 * first + level - 1) * classes + second]
            state[second] = 1
            state[first] = level
    return states


@compiled
def draw_states(fields: Floats, edges: Floats, storeys: NDArray[np.float64], states: Bytes) -> None:
    """The state of each pixel from the two labels it lies deepest in, into `states` `[n, pixels]`."""
    classes, side = fields.shape[1], fields.shape[2]
    for row in range(len(storeys)):
        at = min(max(storeys[row], 0.0), fields.shape[0] - 1.001)
        below = int(at)
        rest = np.float32(at - below)
        for y in range(side):
            for x in range(side):
                first, second = -1, -1
                most, next_most = np.float32(-1e9), np.float32(-1e9)
                for c in range(classes):
                    depth = fields[below, c, y, x] * (1 - rest) + fields[below + 1, c, y, x] * rest
                    if depth > edges[c, 0]:
                        if depth > most:
                            first, second, most, next_most = c, first, depth, most
                        elif depth > next_most:
                            second, next_most = c, depth
                if first >= 0:
                    level = 1 + int(most > edges[first, 1]) + int(most > edges[first, 2])
                    if second < 0 or level == 3:
                        states[row, y * side + x] = 3 * first + level
                    else:
                        states[row, y * side + x] = 1 + 3 * classes + (2 * first + level - 1) * classes + second


@compiled
def draw_codes(
    quantiles: Bytes,
    lesion_quantiles: Bytes,
    shift: NDArray[np.float64],
    size: float,
    stay: float,
    storeys: NDArray[np.float64],
    held: Bytes,
    rng: np.random.Generator,
    ids: Bytes,
) -> None:
    """Codes by place, lesion and what the patient is like; noise that stays from slice to slice, or is drawn anew."""
    noise = np.zeros(ids.shape[1])
    count = quantiles.shape[2]
    for row in range(len(ids)):
        storey = int(storeys[row] + 0.5)
        for cell in range(ids.shape[1]):
            if row == 0 or rng.random() >= stay:
                noise[cell] = rng.standard_normal() * size
            value = noise[cell] + shift[storey, cell]
            place = min(int(count * 0.5 * (1.0 + math.erf(value * 0.7071067811865476))), count - 1)
            if held[row, cell] > 0:
                ids[row, cell] = lesion_quantiles[held[row, cell] - 1, place]
            else:
                ids[row, cell] = quantiles[storey, cell, place]


def waves(panel: str) -> Floats:
    """How each axis of anatomy moves the codes, smoothly and with unit variance, `[AXES, CODE_STOREYS, P]`."""
    rng = np.random.default_rng(len(panel))
    side = int(CELLS**0.5)
    place = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in (CODE_STOREYS, side, side)), indexing="ij"), axis=-1)
    angles = place.reshape(-1, 3) @ rng.normal(0, 3, (3, AXES)) + rng.uniform(0, 6.28, AXES)
    return np.asarray((np.sin(angles) * np.sqrt(2 / AXES)).T.reshape(AXES, CODE_STOREYS, CELLS), dtype=np.float32)


WAVES = {panel: waves(panel) for panel in PANELS}
STATES = {"normal": all_states(6), "abnormal": all_states(3)}
MAIN_LABEL = np.append(0, 1 + STATES["abnormal"][1:].argmax(axis=1)).astype(np.uint8)
LESION_EDGES = np.array([[-1.5, 0.0, 2.0]] * 3, dtype=np.float32)


REAL = {
    "slices per patient": 67.7,
    "normal: codes that stay": 0.689,
    "normal: commonest code": 0.175,
    "normal: runs per slice": 161.0,
    "normal: area": 837.9,
    "abnormal: codes that stay": 0.509,
    "abnormal: commonest code": 0.053,
    "abnormal: runs per slice": 24.7,
    "abnormal: area": 70.2,
}
"""Moments of the hundred patients that the statistics were fitted to."""


def moments(archive: DrawnArchive) -> dict[str, float]:
    """What decides how quick a scan is, of drawn archives and of real ones alike."""
    volume = archive.volume_of_slice
    within = volume[1:] == volume[:-1]
    found = {"slices per patient": len(archive) / (len(archive.volume_starts) - 1)}
    for panel in PANELS:
        ids, maps = archive.ids[panel], archive.labels[panel]
        found[f"{panel}: codes that stay"] = float((ids[1:] == ids[:-1])[within].mean())
        found[f"{panel}: commonest code"] = float(np.bincount(ids.reshape(-1)).max() / ids.size)
        found[f"{panel}: runs per slice"] = len(maps.run_state) / len(maps)
        found[f"{panel}: area"] = float(maps.areas.sum(axis=1).mean())
        found |= {f"{panel}: area {c}": float(maps.areas[:, c].mean()) for c in range(maps.classes)}
        found |= {f"{panel}: present {c}": float((maps.areas[:, c] > 0).mean()) for c in range(maps.classes)}
    return found


def nearness(archive: DrawnArchive, tables: Any, *, queries: int = 24) -> dict[str, float]:
    """What decides how much of an archive bounds leave out: how near the nearest patients are."""
    found: dict[str, float] = {}
    volume = archive.volume_of_slice
    lesions = np.flatnonzero(archive.labels["abnormal"].areas.sum(axis=1) > 60)
    places = np.random.default_rng(0).choice(lesions, queries, replace=False)
    for panel in PANELS:
        ids, maps = archive.ids[panel], archive.labels[panel]
        table = tables.panel(panel)["learned"]
        entries, weights = table.entries.astype(np.float64), table.weights_of(CELLS).astype(np.float64)
        lengths = np.sqrt(np.diag(entries)[ids] @ weights)
        by_code, by_map = [], []
        for place in places.tolist():
            dots = sum(weights[p] * entries[ids[place, p]][ids[:, p]] for p in range(CELLS))
            angles = np.arccos(np.clip(dots / np.maximum(lengths * lengths[place], 1e-9), -1, 1))
            by_code.append(_nearest_and_typical(angles, archive.volume_starts, volume[place]))
            query = LabelQuery(maps.levels(np.array([place]))[0])
            distances = exact_distances(maps, query, np.arange(len(maps)))
            by_map.append(_nearest_and_typical(distances, archive.volume_starts, volume[place]))
        for name, values in (("learned", by_code), ("overlap", by_map)):
            for what, value in zip(("nearest", "tenth", "typical"), np.mean(values, axis=0).tolist(), strict=True):
                found[f"{panel}: {name} {what}"] = value
    return found


def _nearest_and_typical(distances: NDArray[np.float64], starts: NDArray[np.int64], own: int) -> list[float]:
    """The best slice of the nearest other patient, of the tenth and of the median one."""
    best = np.delete(np.minimum.reduceat(distances, starts[:-1]), own)
    best.sort()
    return [float(best[0]), float(best[9]), float(np.median(best))]


def fit(path: Path, patients: set[str]) -> tuple[Statistics, DrawnArchive, Any]:
    """Statistics of some patients of an archive, and those patients as if they were drawn."""
    real, tables = read_archive(path, patients)
    depths = np.stack([_depths(real, volume) for volume in range(len(real.volume_starts) - 1)])  # [V, S, C, 32, 32]
    mean = depths.mean(axis=0)
    flat = (depths - mean).reshape(len(depths), -1)
    vectors = np.linalg.eigh(flat @ flat.T)[1]
    axes = (vectors[:, -AXES:].T @ flat) / np.sqrt(len(depths))
    left = flat - (flat @ axes.T / (axes**2).sum(axis=1)) @ axes
    near = np.abs(mean) < PIXEL_MM
    noise = [left.reshape(depths.shape)[:, :, c][:, near[:, c]].std() for c in range(depths.shape[2])]
    ends = np.stack([real.z_mm[real.volume_starts[:-1]], real.z_mm[real.volume_starts[1:] - 1]])
    slices = np.stack([ends.mean(axis=1), ends.std(axis=1)], axis=1)
    codes, lesion_codes = _code_quantiles(real, tables)
    return (
        Statistics(
            mean.astype(np.float32),
            axes.reshape(AXES, *mean.shape).astype(np.float32),
            np.array(noise, dtype=np.float32),
            _edges(real, mean.shape[1]),
            _lesion_shapes(real),
            codes,
            lesion_codes,
            slices.astype(np.float32),
            dict(zip(KNOBS, KNOB_VALUES, strict=True)),
        ),
        real,
        tables,
    )


KNOB_VALUES = (0.7, 8.0, 0.5, 0.4, 0.6, 0.75)
"""As chosen by comparing moments."""


def read_archive(path: Path, patients: set[str]) -> tuple[DrawnArchive, Any]:
    """Some patients of an archive on disk, with the model's tables."""
    from diptych.retrieval import Archive

    opened = Archive.open(path)
    catalogue = opened.catalogue
    chosen = [v for v, info in enumerate(catalogue.volumes) if not patients or info.volume_key in patients]
    edges = catalogue.index.volume_starts
    rows = np.concatenate([np.arange(edges[v], edges[v + 1]) for v in chosen])
    labels = opened.patient_search.labels
    ids = {panel: catalogue.index.codes[panel].ids(rows).astype(np.uint8) for panel in PANELS}
    maps = {panel: labels[panel].maps(rows) for panel in PANELS}
    starts = np.append(0, np.cumsum([edges[v + 1] - edges[v] for v in chosen]))
    archive = DrawnArchive(ids, maps, starts, catalogue.z_mm[rows], catalogue.index.lesion_free[rows])
    return archive, opened.tables


def _signed_depth(mask: NDArray[np.bool_]) -> Floats:
    """Signed distance to the border in millimetres of a mask `[Z, H, W]`, positive inside."""
    from scipy.ndimage import distance_transform_edt

    sampling = SPACING_MM, PIXEL_MM, PIXEL_MM
    if not mask.any():
        return np.full(mask.shape, -FURTHEST_MM, dtype=np.float32)
    inside, outside = (distance_transform_edt(one, sampling=sampling) for one in (mask, ~mask))
    depth = np.where(mask, inside - PIXEL_MM / 2, PIXEL_MM / 2 - outside)
    return np.asarray(np.clip(depth, -FURTHEST_MM, FURTHEST_MM), dtype=np.float32)


def _depths(real: DrawnArchive, volume: int) -> Floats:
    """Signed distances of one patient's anatomy at all storeys, `[STOREYS, C, 32, 32]`."""
    rows = np.arange(real.volume_starts[volume], real.volume_starts[volume + 1])
    levels = real.labels["normal"].levels(rows)
    nearest = np.abs(real.z_mm[rows][None] - np.arange(STOREYS)[:, None] * STOREY_MM).argmin(axis=1)
    return np.stack([_signed_depth(levels[:, c] >= 2)[nearest] for c in range(levels.shape[1])], axis=1)


def _edges(real: DrawnArchive, classes: int) -> Floats:
    """Depths from which pixels hold as many levels as real ones do, `[C, 3]`."""
    depths, levels = [], []
    for volume in range(0, len(real.volume_starts) - 1, 10):
        rows = np.arange(real.volume_starts[volume], real.volume_starts[volume + 1])
        levels.append(real.labels["normal"].levels(rows))
        depths.append(np.stack([_signed_depth(levels[-1][:, c] >= 2) for c in range(classes)], axis=1))
    depth, level = np.concatenate(depths), np.concatenate(levels)
    edges = [[np.quantile(depth[:, c], 1 - (level[:, c] >= k).mean()) for k in (1, 2, 3)] for c in range(classes)]
    return np.array(edges, dtype=np.float32)


def _lesion_shapes(real: DrawnArchive) -> Floats:
    """Means, then a factor of the covariance, of the lesions' centres, radii and shares of labels."""
    found = []
    for begin, end in pairwise(real.volume_starts.tolist()):
        levels = real.labels["abnormal"].levels(np.arange(begin, end)) / 3.0
        volume = levels.sum(axis=(0, 2, 3)) * PIXEL_MM**2 * SPACING_MM
        whole = levels.sum(axis=1)
        if volume.sum() < 1000:
            continue
        z, y, x = (np.average(axis, weights=whole) for axis in np.meshgrid(*map(np.arange, whole.shape), indexing="ij"))
        x = min(x, SIDE - 1 - x)
        radius = (volume.sum() * 3 / (4 * np.pi)) ** (1 / 3)
        found.append([real.z_mm[begin] + z * SPACING_MM, y, x, np.log(radius), *np.log(volume / volume.sum() + 0.02)])
    table = np.array(found)
    covariance = np.cov(table.T) + 1e-6 * np.eye(table.shape[1])
    return np.concatenate([table.mean(axis=0)[None], np.linalg.cholesky(covariance).T]).astype(np.float32)


def _code_quantiles(real: DrawnArchive, tables: Any) -> tuple[Panels, Bytes]:
    """Codes by height, cell and quantile; and those of lesions by label and quantile."""
    storeys = np.clip(real.z_mm / (STOREY_MM * STOREYS / CODE_STOREYS), 0, CODE_STOREYS - 1) + 0.5
    levels = real.labels["abnormal"].levels(np.arange(len(real)))
    share = levels.reshape(len(real), 3, SIDE // 2, 2, SIDE // 2, 2).max(axis=(3, 5)).reshape(len(real), 3, CELLS)
    held = np.where(share.max(axis=1) > 0, 1 + share.argmax(axis=1), 0)  # [N, P]
    found: Panels = {}
    for panel in PANELS:
        order = _alike(tables.panel(panel)["learned"].entries)
        rank = np.argsort(order)
        quantiles = np.zeros((CODE_STOREYS, CELLS, QUANTILES), dtype=np.uint8)
        for storey, cell in product(range(CODE_STOREYS), range(CELLS)):
            rows = (storeys.astype(np.int64) == storey) & ((held[:, cell] == 0) | (panel == "normal"))
            quantiles[storey, cell] = _spread_out(order, rank[real.ids[panel][rows, cell]])
        found[panel] = quantiles
    lesion = np.stack([_spread_out(order, rank[real.ids["abnormal"][held == label]]) for label in (1, 2, 3)])
    return found, lesion


def _alike(entries: NDArray[np.integer]) -> NDArray[np.intp]:
    """Codes in an order in which neighbours are alike: along the first axis of their unit vectors."""
    lengths = np.sqrt(np.maximum(np.diag(entries), 1).astype(np.float64))
    cosines = entries / np.outer(lengths, lengths)
    return np.argsort(np.linalg.eigh(cosines - cosines.mean(axis=0) - cosines.mean(axis=1)[:, None])[1][:, -1])


def _spread_out(order: NDArray[np.intp], ranks: NDArray[np.intp]) -> Bytes:
    ranks = np.sort(ranks) if len(ranks) else np.zeros(1, dtype=np.int64)
    places = ((np.arange(QUANTILES) + 0.5) / QUANTILES * len(ranks)).astype(np.int64)
    return np.asarray(order[ranks[places]], dtype=np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="an archive of the shipped model")
    parser.add_argument("--patients", type=Path, help="names of the patients to fit to, one a line; all by default")
    parser.add_argument("--out", type=Path, help="write the statistics here")
    arguments = parser.parse_args()
    names = set() if arguments.patients is None else set(arguments.patients.read_text().split())
    statistics, real, tables = fit(arguments.archive, names)
    if arguments.out:
        statistics.save(arguments.out)
        statistics = Statistics.load(arguments.out)
    drawn = draw_archive(len(real.volume_starts) - 1, statistics=statistics)
    of_real, of_drawn = (moments(one) | nearness(one, tables) for one in (real, drawn))
    print(f"{'moment':32} {'real':>9} {'drawn':>9}")
    for name, value in of_real.items():
        print(f"{name:32} {value:9.3f} {of_drawn[name]:9.3f}")


if __name__ == "__main__":
    main()
