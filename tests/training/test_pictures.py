"""The picture grid has one row per example and channel and keeps the proportions of the body."""

from __future__ import annotations

import numpy as np

from diptych.description import GLIOMA
from diptych.training.pictures import HEADER, LABEL, MARGIN, PANEL_HEIGHT, Example, draw_examples


def make_example(*, twin: bool = False) -> Example:
    rng = np.random.default_rng(0)
    image = rng.normal(size=(4, 48, 32)).astype(np.float32)
    lesion = np.zeros((48, 32), dtype=np.uint8)
    lesion[10:40, 8:24] = 2
    return Example("patient 1\nslice 40", image, image, image, image if twin else None, lesion, lesion * 0)


def draw(*examples: Example) -> np.ndarray:
    return draw_examples(
        examples, shown={"t1gd": 1, "flair": 3}, classes=GLIOMA.lesion, pixel_spacing=(2.0, 1.5), title="step 3"
    )


def test_size_follows_rows_columns_and_millimetres() -> None:
    panel_width = round(PANEL_HEIGHT * (32 * 1.5) / (48 * 2.0))
    height, width, _ = draw(make_example(), make_example()).shape
    assert (height, width) == (HEADER + 4 * (PANEL_HEIGHT + MARGIN) + 24, LABEL + 5 * (panel_width + MARGIN))


def test_true_twin_gets_a_column() -> None:
    assert draw(make_example(twin=True)).shape[1] > draw(make_example()).shape[1]


def test_lesion_is_drawn_in_its_colour_and_only_there() -> None:
    picture = draw(make_example()).astype(int)
    panel_width = round(PANEL_HEIGHT * (32 * 1.5) / (48 * 2.0))
    row = HEADER + PANEL_HEIGHT // 2
    truth, predicted = (LABEL + column * (panel_width + MARGIN) + panel_width // 2 for column in (3, 4))
    yellowness = picture[row, :, 0] - picture[row, :, 2]
    assert GLIOMA.lesion_colours[2] == (240, 228, 66)
    assert yellowness[truth] > 40
    assert yellowness[predicted] == 0
