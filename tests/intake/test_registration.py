"""Two images of one head are brought together; what does not come together is seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diptych.intake import quality_gate as gate
from diptych.intake.resampling import Grid, Placed, covered, even_grid, grid_points, resample
from diptych.intake.rigid_registration import BINS, Effort, Level, joint_histogram, register, shared
from diptych.phantom.raw_head import Acquisition, RawHead, RawSeries, acquire_series

QUICK = Effort(
    first=Level(mm=10.0, samples=4000, step_mm=8.0, tolerance_mm=1.0),
    levels=(Level(mm=5.0, samples=12_000, step_mm=2.0, tolerance_mm=0.1),),
    turns_deg=(),
)


def placed(series: RawSeries) -> Placed:
    return Placed(series.array.astype(np.float32), series.affine)


@pytest.fixture(scope="module")
def t1(head: RawHead) -> RawSeries:
    return acquire_series(head, Acquisition("t1", in_plane_mm=4, thickness_mm=4))


def test_the_histogram_equals_its_simple_twin() -> None:
    rng = np.random.default_rng(1)
    points, signal = rng.uniform(-1.0, 9.0, (300, 3)), rng.uniform(0, BINS - 1.1, (7, 9, 8)).astype(np.float32)
    bins = rng.uniform(0, BINS - 1.1, 300).astype(np.float32)
    signal[2, 3, 4] = -1e9
    matrix = np.eye(4)
    matrix[:3, 3] = (0.3, -0.2, 0.1)
    expected, count = np.zeros((BINS, BINS)), 0
    for point, a in zip(points, bins, strict=True):
        x, y, z = point + matrix[:3, 3]
        if not (0 <= x < 6 and 0 <= y < 8 and 0 <= z < 7):
            continue
        corner = np.array([x, y, z]).astype(int)
        weights = np.array([x, y, z]) - corner
        b = sum(
            signal[tuple(corner + np.array(step))] * np.prod(np.where(np.array(step), weights, 1 - weights))
            for step in np.ndindex(2, 2, 2)
        )
        if b < 0:
            continue
        count += 1
        for i, p in ((int(a), 1 - a % 1), (int(a) + 1, a % 1)):
            for j, q in ((int(b), 1 - b % 1), (int(b) + 1, b % 1)):
                expected[i, j] += p * q
    found, inside = joint_histogram(points, bins, signal, matrix)
    assert inside == count
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_shared_information_is_one_for_equals_and_none_for_strangers() -> None:
    assert shared(np.eye(BINS)) == pytest.approx(1.0)
    assert shared(np.ones((BINS, BINS))) == pytest.approx(0.0)


def test_a_moved_head_is_found(head: RawHead, t1: RawSeries) -> None:
    pose = Acquisition("flair", "coronal", 4, 5, pose_deg=(6, -4, 9), pose_mm=(7, -5, 4), oblique_deg=(5, 0, -8))
    flair = acquire_series(head, pose)
    found = register(placed(t1), placed(flair), effort=QUICK)
    truth = flair.pose @ np.linalg.inv(t1.pose)
    points = grid_points(t1.brain, t1.affine)
    off = np.linalg.norm((points @ (found.transform - truth)[:3, :3].T) + (found.transform - truth)[:3, 3], axis=1)
    assert off.mean() < 1.2
    fit = gate.judge_fit(placed(t1), placed(flair), t1.brain, found.transform)
    assert gate.sequence_problem(fit) is None
    header = gate.judge_fit(placed(t1), placed(flair), t1.brain, np.eye(4))
    assert fit.shared > header.shared


def test_neither_shading_nor_a_cut_hides_what_two_images_share(head: RawHead, t1: RawSeries) -> None:
    usual = Acquisition("flair", "axial", 4, 5)
    shares = []
    for taken in (usual, replace(usual, shading=0.8), replace(usual, cover=(0.0, 0.6))):
        flair = acquire_series(head, taken)
        truth = flair.pose @ np.linalg.inv(t1.pose)
        shares.append(gate.judge_fit(placed(t1), placed(flair), t1.brain, truth).shared)
    assert min(shares[1:]) > 0.7 * shares[0]


def test_a_header_on_its_side_is_refused(head: RawHead) -> None:
    assert gate.sequence_problem(gate.Fit(shared=0.2, peak=0.5, turn_deg=88.0)) == (
        "its header is turned by 88° against the reference, so left and right cannot be trusted"
    )
    assert gate.sequence_problem(gate.Fit(shared=0.001, peak=0.5, turn_deg=2.0)) is not None
    assert gate.atlas_problem(gate.Fit(0.2, 0.5, 3.0), 0.6) is not None
    assert gate.brain_problem(120.0) == "a brain of 120 ml was found, which no adult has (700 to 2200 ml)"


def test_planes_that_a_channel_lacks_are_named() -> None:
    grid = Grid((10, 12, 14), np.eye(4))
    brain = np.ones(grid.shape, dtype=np.bool_)
    short = Grid((10, 12, 9), np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 5], [0, 0, 0, 1]]))
    assert gate.covered_planes(brain, grid, {"t2": (grid, np.eye(4)), "t1": (short, np.eye(4))}) == {
        z: ("t1", 0.0) for z in range(5)
    }
    assert covered(short, grid)[:, :, 5:].all()


def test_one_image_given_twice_is_noticed(t1: RawSeries) -> None:
    values = t1.array.astype(np.float32)
    noisy = 1.7 * values + np.random.default_rng(0).normal(0, 2, values.shape).astype(np.float32)
    other = np.random.default_rng(1).permuted(values, axis=0)
    found = gate.same_image({"t1": values, "t1gd": noisy, "t2": other}, t1.brain)
    assert [pair[:2] for pair in found] == [("t1", "t1gd")]


def test_an_even_grid_holds_everything(t1: RawSeries) -> None:
    grid = even_grid(placed(t1).grid, 3.0)
    assert grid.corners.min(axis=0) == pytest.approx(placed(t1).grid.corners.min(axis=0))
    assert (grid.corners.max(axis=0) >= placed(t1).grid.corners.max(axis=0)).all()
    assert resample(placed(t1), grid).max() > 0
