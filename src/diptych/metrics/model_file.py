"""`Companion`: a file beside a model that was made from it later and belongs to exactly that model.

    MODEL/learned-tables.safetensors    distances that were learnt
    MODEL/binary-codes.safetensors      the paper's binary codes, shortened
    MODEL/sketch.safetensors            the label encoder
    MODEL/label-decoders.safetensors    the label decoders
    MODEL/refiner.safetensors           paints healthy tissue over a lesion
    MODEL/worth.safetensors             what a match at some distance is worth
    MODEL/references.safetensors        what its training patients looked like

Its header names format, version and the model's fingerprint, and has a checksum over these and every array: a file of
another model or with one bit changed is refused. The model itself stays as it is, its fingerprint too. Knows files; not
what is in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from diptych.errors import ModelError
from diptych.files import replacing, require_regular

CHECKSUM = "sha256"
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Companion:
    """One kind of file."""

    file: str
    format: str
    version: str
    called: str
    """What it is, for people."""
    command: str
    """What makes one."""

    @property
    def way_out(self) -> str:
        return f"delete it, or make it again with '{self.command}'"

    def write(self, model: Path, arrays: Mapping[str, NDArray[Any]], *, fingerprint: str, **about: str) -> Path:
        """Write the file into the model's folder, whole or not at all."""
        path = Path(model) / self.file
        header = {"format": self.format, "version": self.version, "fingerprint": fingerprint, **about}
        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        try:
            with replacing(path) as part:
                save_file(whole, part, {**header, CHECKSUM: _checksum(whole, header)})
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path}: cannot be written ({_first_line(error)}); make room or copy the model") from None
        return path

    def read(self, model: Path, *, fingerprint: str) -> tuple[Arrays, dict[str, str]] | None:
        """Arrays and header, None where there is no such file; another model's, or a damaged one, is refused."""
        path = Path(model) / self.file
        if not path.exists():
            return None
        try:
            require_regular(path)
            with safe_open(path, framework="numpy") as file:
                header = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
        except (SafetensorError, OSError, ValueError) as error:
            raise ModelError(f"{path}: cannot be read ({_first_line(error)}); {self.way_out}") from None
        if (header.get("format"), header.get("version")) != (self.format, self.version):
            raise ModelError(f"{path}: not {self.called} of version {self.version}; {self.way_out}")
        if header.get("fingerprint") != fingerprint:
            made, given = str(header.get("fingerprint"))[:12], fingerprint[:12]
            raise ModelError(f"{path}: was made for model {made}, this is {given}; {self.way_out}")
        if header.pop(CHECKSUM, None) != _checksum(arrays, header):
            raise ModelError(f"{path}: does not match its checksum, so it would answer wrongly; {self.way_out}")
        return arrays, header


def _checksum(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, str]) -> str:
    """Over names, types, shapes and bytes of all arrays, and over the rest of the header."""
    digest = sha256(json.dumps(sorted(header.items())).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
