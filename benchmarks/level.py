"""How wide should "here ± mm" be? Matches of labelled patients with the level free, and within some millimetres.

    python benchmarks/level.py ARCHIVE --keys train.txt --asking 12

The archive must keep label maps. Only patients named in `--keys` ask and are found; the last `--asking` of them ask,
ten slices with a lesion each. Printed by width: label Dice of the first ten matches by lesion, how far their level is
from the query's, and 3-D Dice of the two whole lesions. `retrieval/question.py` keeps the width that was chosen.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.archive.copies import patient_files
from diptych.archive.encoding import cut_slices
from diptych.retrieval import Archive, Question
from diptych.retrieval.patient_search import nearest_slices
from diptych.retrieval.question import BRAIN_MM
from diptych.volumes import read_patient

WIDTHS = (None, 60.0, 40.0, 30.0, 25.0, 20.0, 15.0, 10.0, 5.0)
SLICES, TOP = 10, 10
LEAST_MM2 = 50.0


class Labels:
    """Known lesions of an archive, slice by slice; each patient is read once."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.maps = cache(self._maps)
        self.stack = cache(self._stack)
        self.record = cache(archive.store.record)

    def _maps(self, key: str) -> dict[int, NDArray[np.uint8]]:
        """By z index."""
        info, path = self.record(key).info, self.archive.store.path
        lesions = [path / file.path for file in info.files if file.role == "lesion"]
        assert lesions, f"{key}: the archive keeps no label map"
        stack = cut_slices(read_patient(replace(patient_files(path, info), lesion=lesions[0])), self.archive.encoder)
        assert stack.lesion is not None
        return dict(zip(stack.z_index.tolist(), stack.lesion, strict=True))

    def lesion(self, key: str, z: int) -> NDArray[np.uint8]:
        return self.maps(key)[z]

    def _stack(self, key: str) -> dict[int, NDArray[np.bool_]]:
        """Whole lesion by height, where there is some."""
        record = self.record(key)
        places = nearest_slices(record.z_mm).items()
        masks = {height: self.lesion(key, int(record.z_index[place])) > 0 for height, place in places}
        return {height: mask for height, mask in masks.items() if mask.any()}


def dice(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Mean over the classes that either has."""
    present = [value for value in np.union1d(np.unique(one), np.unique(other)) if value]
    parts = [2 * np.sum((one == v) & (other == v)) / (np.sum(one == v) + np.sum(other == v)) for v in present]
    return float(np.mean(parts)) if parts else 1.0


def whole_dice(one: dict[int, NDArray[np.bool_]], other: dict[int, NDArray[np.bool_]]) -> float:
    """Two whole lesions in three dimensions."""
    shared = sum(float(np.sum(one[height] & other[height])) for height in one.keys() & other.keys())
    total = sum(float(mask.sum()) for stack in (one, other) for mask in stack.values())
    return 2 * shared / max(total, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--keys", type=Path, required=True, help="patients to use, one key per line")
    parser.add_argument("--asking", type=int, default=12, help="how many of them ask, from the end of the list")
    parser.add_argument("--by", default="abnormal", choices=["normal", "abnormal", "both"])
    options = parser.parse_args()
    archive = Archive.open(options.archive)
    keys = options.keys.read_text().split()
    allowed = np.array([info.volume_key in set(keys) for info in archive.catalogue.volumes])
    labels = Labels(archive)
    print(f"{int(allowed.sum())} patients, {options.asking} ask, by {options.by}; first {TOP} matches")
    print("width mm   Dice   3-D Dice   level off, median   90 %")
    for width in WIDTHS:
        rows = []
        for key in keys[-options.asking :]:
            record = labels.record(key)
            lesioned = np.flatnonzero(record.lesion_area > LEAST_MM2)
            for place in lesioned[np.unique(np.linspace(0, len(lesioned) - 1, SLICES).round().astype(int))]:
                z = int(record.z_index[place])
                question = Question(by=options.by, top=TOP, allowed=allowed, level_mm=width)
                for match in archive.query(archive.stored(key, z_index=z), question).matches:
                    found = match.volume.volume_key
                    rows.append(
                        (
                            dice(labels.lesion(key, z), labels.lesion(found, match.z_index)),
                            whole_dice(labels.stack(key), labels.stack(found)),
                            abs(match.position - float(record.position[place])) * BRAIN_MM,
                        )
                    )
        slices, wholes, off = np.array(rows).T
        name = "any" if width is None else f"{width:g}"
        print(
            f"{name:>8}   {slices.mean():.3f}  {wholes.mean():.3f}      {np.median(off):5.1f}              "
            f"{np.quantile(off, 0.9):5.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
