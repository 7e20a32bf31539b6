"""`diptych.model` offers exactly what it lists."""

from __future__ import annotations

import diptych.model


def test_every_listed_name_exists() -> None:
    assert all(hasattr(diptych.model, name) for name in diptych.model.__all__)
