"""How long intake takes and how far from the truth it lands: `python benchmarks/intake.py [--patients 2]`.

Raw-head phantoms are written as DICOM studies in their own poses, taken in, and compared with what is known about them:
processor time per step, peak memory, distance between sequences (mean over the brain) and Dice of the brain mask. The
limits that a four-sequence head must keep to are 60 s and 3 GB.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path

import numpy as np

from diptych.intake.intake_record import IntakeRecord
from diptych.intake.pipeline import BRAIN_FILE, intake_patient
from diptych.intake.resampling import Placed, grid_points, resample
from diptych.phantom.phantom_config import PhantomConfig
from diptych.phantom.phantom_dicom import Study, write_study
from diptych.phantom.raw_head import usual_study
from diptych.volumes.nifti import read_nifti


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=2)
    parser.add_argument("--voxel-mm", type=float, default=1.0, help="of the phantom itself")
    parser.add_argument("--thickness-mm", type=float, default=3.0, help="of its slices")
    options = parser.parse_args()
    for seed in range(options.patients):
        with tempfile.TemporaryDirectory(prefix="diptych-intake-") as folder:
            truth = write_study(
                Path(folder) / "study",
                seed=100 + seed,
                config=PhantomConfig(voxel_mm=options.voxel_mm),
                acquisitions=usual_study(100 + seed, thickness_mm=options.thickness_mm),
            )
            record = intake_patient(truth.folder, Path(folder) / "out")
            steps = ", ".join(f"{step} {seconds:.0f}" for step, seconds in record.seconds.items())
            print(f"phantom {100 + seed}: {sum(record.seconds.values()):.0f} s ({steps})")
            print(f"  off by {_errors(record, truth)}; mask Dice {_dice(record, truth):.3f}")
    print(f"peak memory, phantom included: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


def _errors(record: IntakeRecord, truth: Study) -> str:
    """Mean distance over the brain of each sequence to the reference, in millimetres."""
    reference = record.find(record.reference)
    own = truth.series[record.reference]
    points = grid_points(own.brain, own.affine, step=50)
    said = []
    for one in record.series:
        if one.channel != record.reference:
            wanted = truth.series[one.channel].pose @ np.linalg.inv(own.pose)
            away = one.matrix @ np.linalg.inv(reference.matrix) - wanted
            error = np.linalg.norm(points @ away[:3, :3].T + away[:3, 3], axis=1).mean()
            said.append(f"{one.channel} {error:.2f} mm")
    return ", ".join(said)


def _dice(record: IntakeRecord, truth: Study) -> float:
    """The brain that was found against the phantom's own, on the reference's grid."""
    reference = record.find(record.reference)
    image = read_nifti(record.folder / BRAIN_FILE)
    found = Placed(image.stored.astype(np.float32), image.affine)
    own = resample(found, reference.grid, np.linalg.inv(reference.matrix).astype(np.float64)) > 0.5
    brain = truth.series[record.reference].brain
    return float(2 * (own & brain).sum() / (own.sum() + brain.sum()))


if __name__ == "__main__":
    main()
