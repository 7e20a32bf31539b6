"""Whether N4 helps retrieval: `python benchmarks/bias_field.py ARCHIVE PATIENTS LIST [--queries 8]`.

Patients of LIST (in folders below PATIENTS) that ARCHIVE does not hold are asked about as they are, shaded as by coils,
and both after N4 (SimpleITK, inside the brain). Printed for each: how many code ids stay those of the patient as it is,
and how well the known labels of the query's slice overlap those of its first five matches (Dice, their mean).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.retrieval import Archive
from diptych.retrieval.encoded_slice import EncodedSlice
from diptych.slices import SliceStack, slice_volume
from diptych.volumes import Volume, find_patients, read_patient

MATCHES = 5
Image = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("patients", type=Path)
    parser.add_argument("list", type=Path, help="keys of the patients to choose from")
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--shading", type=float, default=0.3, help="log of the factor at the edges, at most")
    options = parser.parse_args()
    archive = Archive.open(options.archive)
    keys = [key for key in options.list.read_text().split() if key not in archive.catalogue.places_of_keys]
    rows: dict[str, list[tuple[float, ...]]] = {}
    for number, key in enumerate(keys[:: max(1, len(keys) // options.queries)][: options.queries]):
        volume = read_patient(find_patients(options.patients / key)[0])
        shaded = _each(volume, _shading(options.shading, np.random.default_rng(number)))
        cases = {"as it is": volume, "N4": _each(volume, _n4), "shaded": shaded, "shaded, N4": _each(shaded, _n4)}
        _ask(archive, cases, options.patients, rows)
        print(f"{key}: {time.process_time():.0f} s", flush=True)
    print(f"{'':12} {'ids kept':>9} {'anatomy':>9} {'lesion':>9}   of {len(rows['N4'])} queries")
    for name, values in rows.items():
        print(f"{name:12} " + " ".join(f"{value:9.3f}" for value in np.mean(values, axis=0)))


def _each(volume: Volume, change: Callable[[Image], Image]) -> Volume:
    """Every channel changed on its own; outside the brain stays zero."""
    array = np.stack([np.where(image > 0, change(image), 0.0) for image in volume.array]).astype(np.float32)
    return replace(volume, array=array)


def _shading(strength: float, rng: np.random.Generator) -> Callable[[Image], Image]:
    """Smooth shading, another for each channel."""

    def shade(image: Image) -> Image:
        axes = np.meshgrid(*(np.linspace(-1, 1, edge) for edge in image.shape), indexing="ij", sparse=True)
        terms = (*axes, *(axis**2 for axis in axes))
        weights = rng.uniform(-strength, strength, len(terms))
        return np.asarray(image * np.exp(sum(w * term for w, term in zip(weights, terms, strict=True))))

    return shade


def _n4(image: Image) -> Image:
    import SimpleITK as sitk

    whole, shrink = sitk.GetImageFromArray(image.astype(np.float32)), [2, 2, 2]
    n4 = sitk.N4BiasFieldCorrectionImageFilter()
    n4.SetMaximumNumberOfIterations([30, 20, 10])
    n4.Execute(sitk.Shrink(whole, shrink), sitk.Shrink(sitk.Cast(whole > 0, sitk.sitkUInt8), shrink))
    return np.asarray(image / np.exp(sitk.GetArrayFromImage(n4.GetLogBiasFieldAsImage(whole))))


def _ask(archive: Archive, cases: dict[str, Volume], patients: Path, rows: dict[str, list[tuple[float, ...]]]) -> None:
    """One patient in each case: ids kept, and overlap with matches in anatomy and lesion."""
    first: EncodedSlice | None = None
    lesion = cases["as it is"].lesion
    assert lesion is not None
    z = int(np.argmax((lesion > 0).sum(axis=(0, 1))))
    for name, volume in cases.items():
        answer = archive.search(volume, z_index=z, top=MATCHES)
        own = answer.subject
        first = first or own
        kept = np.mean([np.mean(own.normal_ids == first.normal_ids), np.mean(own.abnormal_ids == first.abnormal_ids)])
        dice = [
            [_dice(_labels(first, panel), _labels_of(patients, match.volume.volume_key, match.z_index, panel))
             for match in answer.matches]
            for panel in ("anatomy", "lesion")
        ]  # fmt: skip
        rows.setdefault(name, []).append((float(kept), *(float(np.mean(values)) for values in dice)))


def _labels(one: EncodedSlice, panel: str) -> NDArray[np.uint8]:
    found = one.anatomy if panel == "anatomy" else one.lesion
    assert found is not None
    return found


@cache
def _stack(patients: Path, key: str) -> SliceStack:
    return slice_volume(read_patient(find_patients(patients / key)[0]))


def _labels_of(patients: Path, key: str, z_index: int, panel: str) -> NDArray[np.uint8]:
    stack = _stack(patients, key)
    labels = stack.anatomy if panel == "anatomy" else stack.lesion
    assert labels is not None
    return np.asarray(labels[int(np.flatnonzero(stack.z_index == z_index)[0])])


def _dice(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> float:
    """Mean over the classes that either has."""
    classes = sorted({*np.unique(first).tolist(), *np.unique(second).tolist()} - {0})
    shares = [2 * ((first == c) & (second == c)).sum() / ((first == c).sum() + (second == c).sum()) for c in classes]
    return float(np.mean(shares)) if shares else 1.0


if __name__ == "__main__":
    main()
