"""The paper's binary codes of a model's codebooks, shortened by algorithm A.1, as a file beside the model.

They follow from the codebooks alone, but take seconds; `diptych hash --model MODEL --save` keeps them. Knows codebooks
and bits; which distance they make is `metrics.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.errors import ModelError
from diptych.hashing.binarise import Form, binarise
from diptych.hashing.optimise import Reading, optimise
from diptych.metrics.model_file import Companion
from diptych.model.stored_model import Identified

BINARY_CODES = Companion(
    file="binary-codes.safetensors",
    format="diptych-binary-codes",
    version="1",
    called="binary codes",
    command="diptych hash --model MODEL --save",
)
PANELS = ("normal", "abnormal")

Bits = NDArray[np.bool_]


def binary_codes(
    codebook: NDArray[np.float32], *, form: Form = "merged", reading: Reading = "per-row", seed: int = 0
) -> Bits:
    """One row of bits for each code, `[K, E]`."""
    return optimise(binarise(codebook, form=form), reading=reading, seed=seed).rows()


def save_binary_codes(
    network: Identified,
    model: Path,
    *,
    form: Form = "merged",
    reading: Reading = "per-row",
    seed: int = 0,
) -> Path:
    """Work out the codes of both codebooks and write them into the model's folder, with how they were made."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for panel, codebook in network.codebooks.items():
        bits = binary_codes(codebook, form=form, reading=reading, seed=seed)
        arrays[f"{panel}.bits"] = np.packbits(bits, axis=1)
        arrays[f"{panel}.length"] = np.array([bits.shape[1]], dtype=np.int64)
    made = {"form": form, "reading": reading, "seed": str(seed)}
    return BINARY_CODES.write(model, arrays, fingerprint=network.fingerprint, **made)


def load_binary_codes(model: Path, *, fingerprint: str, codes: int) -> Mapping[str, Bits]:
    """By panel, one row of bits for each of the `codes`, `[K, E]`; nothing where there is no file."""
    found = BINARY_CODES.read(model, fingerprint=fingerprint)
    if found is None:
        return {}
    arrays, _ = found
    panels = {}
    for panel in PANELS:
        packed, length = arrays.get(f"{panel}.bits"), arrays.get(f"{panel}.length")
        fits = packed is not None and length is not None and packed.dtype == np.uint8 and length.shape == (1,)
        if not fits or packed is None or length is None or packed.shape != (codes, -(-int(length[0]) // 8)):
            path = Path(model) / BINARY_CODES.file
            raise ModelError(f"{path}: does not hold {codes} {panel} codes; {BINARY_CODES.way_out}")
        panels[panel] = np.unpackbits(packed, axis=1, count=int(length[0])).astype(np.bool_)
    return panels
