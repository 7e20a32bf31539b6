"""Where the limits of intake's quality gate lie: `python benchmarks/registration_gate.py [--heads 12]`.

Raw-head phantoms of other poses, planes, slice thickness, noise and shading are registered as intake does; so are the
same series with a header on its side (90°), with left and right exchanged, and of another head. Printed: how far each
number of the gate lies from the limit, how well it parts sound from failed registrations (AUROC), and every mistake.
A registration is sound when its mean error over the brain is below 2 mm.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from diptych.intake import quality_gate as gate
from diptych.intake.resampling import Placed, grid_points
from diptych.intake.rigid_registration import register
from diptych.phantom.phantom_config import PhantomConfig
from diptych.phantom.raw_head import Acquisition, RawHead, RawSeries, acquire_series, draw_raw_head, rigid

SOUND_MM = 2.0
KINDS = ("as it is", "header 90°", "left and right exchanged", "another head")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--voxel-mm", type=float, default=2.0, help="of the phantoms themselves")
    options = parser.parse_args()
    rows: list[tuple[str, float, gate.Fit]] = []
    before: RawHead | None = None
    for seed in range(options.heads):
        head = draw_raw_head(900 + seed, config=PhantomConfig(voxel_mm=options.voxel_mm))
        rng = np.random.default_rng(seed)
        rows += _of_one(head, before, rng)
        before = head
        print(f"head {seed + 1}: {time.process_time():.0f} s", flush=True)
    _report(rows)


def _of_one(head: RawHead, other: RawHead | None, rng: np.random.Generator) -> list[tuple[str, float, gate.Fit]]:
    """One pair of series of this head, registered in four ways."""
    fixed = acquire_series(head, _some("t1gd", rng), seed=int(rng.integers(99)))
    channel = ("t1", "t2", "flair")[int(rng.integers(3))]
    moving = acquire_series(head, _some(channel, rng), seed=int(rng.integers(99)))
    truth = moving.pose @ np.linalg.inv(fixed.pose)
    image = _placed(moving)
    middle = image.grid.corners.mean(axis=0)
    turned = rigid((90.0, 0.0, 0.0) if rng.random() < 0.5 else (0.0, 0.0, 90.0), (0.0, 0.0, 0.0), middle)
    mirror = np.diag([-1.0, 1.0, 1.0, 1.0])
    mirror[0, 3] = 2 * middle[0]
    rows = [
        _row(KINDS[0], fixed, image, truth),
        _row(KINDS[1], fixed, Placed(image.array, turned @ image.affine), turned @ truth),
        _row(KINDS[2], fixed, Placed(image.array, mirror @ image.affine), None),
    ]
    if other is not None:
        stranger = acquire_series(other, _some(channel, rng), seed=3)
        rows.append(_row(KINDS[3], fixed, _placed(stranger), None))
    for kind, error, fit in rows:
        print(f"  {channel:<5} {kind:<26} {error:6.2f} mm  {_said(fit)}", flush=True)
    return rows


def _some(channel: str, rng: np.random.Generator) -> Acquisition:
    """Some acquisition, as clinics vary them."""
    x, y, z, u, v, w = (float(n) for n in rng.normal(0.0, (4.0, 4.0, 6.0, 5.0, 6.0, 8.0)))
    thick = float(rng.choice([1.2, 3.0, 5.0, 6.5]))
    return Acquisition(
        channel=channel,
        plane=str(rng.choice(["axial", "axial", "sagittal", "coronal"])),
        in_plane_mm=float(rng.choice([0.9, 1.2, 2.0])),
        thickness_mm=min(thick, 5.0),
        spacing_mm=thick,
        oblique_deg=(x, y, z),
        pose_deg=(float(rng.normal(0, 3)), float(rng.normal(0, 3)), float(rng.normal(0, 5))),
        pose_mm=(u, v, w),
        noise=float(rng.uniform(0.01, 0.08)),
        shading=float(rng.uniform(0.05, 0.5)),
    )


def _placed(series: RawSeries) -> Placed:
    return Placed(series.array.astype(np.float32), series.affine)


def _row(kind: str, fixed: RawSeries, moving: Placed, truth: NDArray[np.float64] | None) -> tuple[str, float, gate.Fit]:
    """Register, and judge as intake does; the error is unknown where no truth exists."""
    found = register(_placed(fixed), moving)
    fit = gate.judge_sides(
        gate.judge_fit(_placed(fixed), moving, fixed.brain, found.transform),
        _placed(fixed), moving, fixed.brain, found.transform,
    )  # fmt: skip
    if truth is None:
        return kind, float("nan"), fit
    points = grid_points(fixed.brain, fixed.affine, step=50)
    away = found.transform - truth
    return kind, float(np.linalg.norm(points @ away[:3, :3].T + away[:3, 3], axis=1).mean()), fit


def _said(fit: gate.Fit) -> str:
    problem = "refused" if gate.sequence_problem(fit) else "taken"
    numbers = f"shared {fit.shared:.3f}, peak {fit.peak:.2f}, turn {fit.turn_deg:3.0f}°, mirrored {fit.mirrored:.2f}"
    return f"{numbers}: {problem}"


def _report(rows: list[tuple[str, float, gate.Fit]]) -> None:
    sound = [fit for kind, error, fit in rows if kind == KINDS[0] and error < SOUND_MM]
    failed = [fit for _, error, fit in rows if not error < SOUND_MM]
    print(f"\n{len(sound)} sound, {len(failed)} failed registrations")
    for name, sign in (("shared", 1), ("peak", 1), ("turn_deg", -1), ("mirrored", -1)):
        good, bad = ([sign * getattr(fit, name) for fit in fits] for fits in (sound, failed))
        print(f"{name:<9} sound {_spread(good, sign)}; failed {_spread(bad, sign)}; AUROC {_auroc(good, bad):.3f}")
    for kind in KINDS:
        fits = [(error, fit) for which, error, fit in rows if which == kind]
        refused = sum(gate.sequence_problem(fit) is not None for _, fit in fits)
        wrong = sum(not error < SOUND_MM for error, _ in fits)
        print(f"{kind:<26} {len(fits)} registered, {wrong} failed or without a truth, {refused} refused")


def _spread(values: list[float], sign: int) -> str:
    low, middle, high = (sign * np.percentile(values, part) for part in (0, 50, 100)) if values else (np.nan,) * 3
    return f"{min(low, high):.3f} … {middle:.3f} … {max(low, high):.3f}"


def _auroc(good: list[float], bad: list[float]) -> float:
    """Chance that a sound registration looks better than a failed one."""
    if not good or not bad:
        return float("nan")
    first, second = np.array(good)[:, None], np.array(bad)[None, :]
    return float(((first > second) + 0.5 * (first == second)).mean())


if __name__ == "__main__":
    main()
