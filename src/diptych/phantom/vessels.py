"""Large vessels as soft tubes along hand-placed lines in MNI millimetres: what contrast agent and flow show.

No installed package carries a vessel atlas, so the courses are the textbook ones. Knows nothing about patients.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.phantom.fields import Field

Course = tuple[tuple[float, float, float], ...]

VEINS: dict[Course, float] = {
    ((0, -98, -8), (22, -95, -16), (42, -80, -22), (53, -60, -28), (50, -46, -38)): 3.2,
    ((0, -43, 5), (0, -65, 0), (0, -97, -8)): 2.0,
    ((3, -2, 9), (2, -20, 13), (1, -34, 9), (0, -43, 5)): 1.1,
}
"""Transverse and straight sinus, internal cerebral veins: course on the right side, radius in mm."""

ARTERIES: dict[Course, float] = {
    ((0, -12, -46), (0, -11, -32), (0, -15, -20)): 1.9,
    ((0, -15, -20), (10, -18, -18), (18, -28, -12), (16, -40, -6)): 1.3,
    ((8, 6, -28), (7, 6, -16), (18, 6, -16), (32, 4, -16), (40, 5, -8), (42, -6, 4), (42, -22, 12)): 1.6,
    ((7, 6, -16), (3, 10, -15), (2, 24, -10), (2, 36, 6), (2, 30, 22), (2, 6, 32)): 1.3,
}
"""Basilar, posterior, middle and anterior cerebral arteries."""

SAGITTAL_SINUS_Y = (62, -104)


def draw_veins(depth: Field, origin: Field) -> Field:
    """Venous sinuses and the internal cerebral veins; the sagittal sinus follows the hull's own midline."""
    veins = _tubes(VEINS, depth.shape, origin)
    return np.maximum(veins, _tubes({_sagittal_sinus(depth, origin): 2.8}, depth.shape, origin))


def draw_arteries(shape: tuple[int, ...], origin: Field) -> Field:
    return _tubes(ARTERIES, shape, origin)


def _sagittal_sinus(depth: Field, origin: Field) -> Course:
    """The hull's outline in the midline plane, from the forehead over the vertex to the occiput."""
    plane = depth[round(-float(origin[0]))] > -1.0
    course = []
    for y in range(*SAGITTAL_SINUS_Y, -2):
        column = np.flatnonzero(plane[round(y - float(origin[1]))])
        if column.size:
            course.append((0.0, float(y), float(column[-1] + origin[2])))
    return tuple(course)


def _tubes(courses: dict[Course, float], shape: tuple[int, ...], origin: Field) -> Field:
    drawn = np.zeros(shape, dtype=np.float32)
    for course, radius in courses.items():
        for side in (-1.0, 1.0):
            points = _dense(course) * np.array([side, 1.0, 1.0])
            drawn = np.maximum(drawn, _tube(points, radius, shape, origin))
    return drawn


def _dense(course: Course) -> NDArray[np.float64]:
    """Points every half millimetre along the course."""
    corners = np.array(course, dtype=np.float64)
    lengths = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    at = np.arange(0.0, lengths[-1], 0.5)
    return np.stack([np.interp(at, lengths, corners[:, axis]) for axis in range(3)], axis=1)


def _tube(points: NDArray[np.float64], radius: float, shape: tuple[int, ...], origin: Field) -> Field:
    index = np.rint(points - origin).astype(int)
    index = index[np.all((index >= 0) & (index < np.array(shape)), axis=1)]
    drawn = np.zeros(shape, dtype=np.float32)
    pad = int(radius * 2 + 3)
    low, high = np.maximum(index.min(axis=0) - pad, 0), np.minimum(index.max(axis=0) + pad + 1, shape)
    box = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    line = np.ones(high - low, dtype=bool)
    line[tuple((index - low).T)] = False
    drawn[box] = np.clip(radius + 0.5 - ndimage.distance_transform_edt(line), 0.0, 1.0)
    return drawn
