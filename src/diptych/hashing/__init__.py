"""The paper's binary hashing: separating hyperplanes, shorter codes by algorithm A.1, and a better choice of bits.

Kept because it is the paper's; search by table look-up (`diptych.search`) is exact and quicker.
"""

from diptych.hashing.binarise import BinaryCodebook, Form, binarise, compactness, round_dead
from diptych.hashing.bit_selection import select_bits
from diptych.hashing.hash_report import HashReport, Timing, concordance, report, time_distances
from diptych.hashing.optimise import Reading, optimise

__all__ = [
    "BinaryCodebook",
    "Form",
    "HashReport",
    "Reading",
    "Timing",
    "binarise",
    "compactness",
    "concordance",
    "optimise",
    "report",
    "round_dead",
    "select_bits",
    "time_distances",
]
