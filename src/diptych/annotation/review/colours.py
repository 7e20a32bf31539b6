"""Colour tables by which ITK-SNAP and 3D Slicer name and paint our labels as Diptych does."""

from __future__ import annotations

from diptych.annotation.review.uncertain import Kind
from diptych.figures import ANATOMY_COLOURS, LESION_COLOURS
from diptych.volumes import ANATOMY_LABELS, LESION_LABELS

__all__ = ["NAMES", "itksnap_table", "slicer_table"]

NAMES = {"lesion": LESION_LABELS, "anatomy": ANATOMY_LABELS}
COLOURS = {"lesion": LESION_COLOURS, "anatomy": ANATOMY_COLOURS}
LONG_NAMES = {"NET": "necrotic or non-enhancing core", "ED": "oedema", "ET": "enhancing tumour"}


def itksnap_table(kind: Kind) -> str:
    """ITK-SNAP's label description file: Segmentation → Import Label Descriptions."""
    lines = [
        "################################################",
        "# ITK-SnAP Label Description File",
        "# IDX   -R-  -G-  -B-  -A--  VIS MSH  LABEL",
        "################################################",
        '    0     0    0    0        0  0  0    "Clear Label"',
    ]
    for value, name in NAMES[kind].items():
        if value:
            red, green, blue = COLOURS[kind][value]
            lines.append(f'{value:5d} {red:5d}{green:5d}{blue:5d}        1  1  1    "{LONG_NAMES.get(name, name)}"')
    return "\n".join(lines) + "\n"


def slicer_table(kind: Kind) -> str:
    """3D Slicer's colour table: drop the .ctbl file into Slicer, then choose it when loading the labels."""
    lines = ["# Color table file", f"# {kind} labels of Diptych", "0 background 0 0 0 0"]
    for value, name in NAMES[kind].items():
        if value:
            red, green, blue = COLOURS[kind][value]
            lines.append(f"{value} {LONG_NAMES.get(name, name).replace(' ', '_')} {red} {green} {blue} 255")
    return "\n".join(lines) + "\n"
