"""Small archives with made-up codes for the tests of this folder. Grids are not square on purpose."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from diptych.archive import ArchiveWriter, ModelIdentity, VolumeInfo, VolumeRecord

MODEL = ModelIdentity("a" * 64, (3, 5), 300, 40)


def make_record(number: int, *, slices: int = 12, seed: int = 0, model: ModelIdentity = MODEL) -> VolumeRecord:
    """Volume number `number`; another `seed` gives other codes under the same key."""
    rng = np.random.default_rng([number, seed])
    info = VolumeInfo(
        volume_key=f"P-{number:03d}",
        patient_key=f"P-{number // 2:03d}",
        study_date="2001-02-03",
        sex="FM"[number % 2],
        age=40.0 + number,
        source="made up",
        tags=("odd",) if number % 2 else (),
        lesion_source="labels",
    )
    return VolumeRecord(
        info=info,
        normal_ids=rng.integers(model.normal_codes, size=(slices, *model.grid), dtype=np.uint16),
        abnormal_ids=rng.integers(model.abnormal_codes, size=(slices, *model.grid), dtype=np.uint16),
        z_index=np.arange(slices, dtype=np.uint16) + 4,
        position=np.linspace(0, 1, slices, dtype=np.float32),
        z_mm=np.linspace(-60, 70, slices, dtype=np.float32),
        lesion_area=rng.integers(3, size=slices).astype(np.float32),
        slice_affine=np.diag([-1.25, -1.5625, 2.0, 1.0]),
    )


def make_archive(path: Path, volumes: int = 5, *, slices: int = 12) -> Path:
    """An archive of `volumes` records, closed."""
    with ArchiveWriter.open(path, model=MODEL) as writer:
        for number in range(volumes):
            writer.add(make_record(number, slices=slices))
    return path
