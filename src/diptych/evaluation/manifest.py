"""The manifest of an evaluation: everything its figures follow from. Same manifest, same figures.

    REPORT/manifest.json    model fingerprint and what lies beside the model, hash of each patient's data, who asks and
                            who may be found, seed, versions of the programs that matter

A finished part is kept under `part_key`, the hash of the manifest with the part's own name and settings.
Knows what identifies things; nothing about figures.
"""

from __future__ import annotations

import json
import platform
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from diptych.evaluation.context import Context
from diptych.evaluation.part import Part
from diptych.retrieval.label_decoders import LABEL_DECODERS
from diptych.retrieval.learned import FILE as LEARNED_TABLES
from diptych.slices.store import file_hash

__all__ = ["make_manifest", "part_key"]

PROGRAMS = ("diptych", "torch", "numpy", "scipy", "numba")


def make_manifest(context: Context) -> dict[str, Any]:
    """All that the figures follow from, as plain values."""
    return {
        "model": {
            "fingerprint": context.fingerprint,
            "config": context.network.config.to_dict(),
            "learned_tables": _hash_of(context.model / LEARNED_TABLES),
            "label_decoders": _hash_of(context.model / LABEL_DECODERS.file),
        },
        "archive": None if context.archive is None else context.archive.catalogue.version,
        "data": _data_hashes(context),
        "queries": list(context.queries),
        "references": list(context.references),
        "seed": context.seed,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PROGRAMS}},
    }


def part_key(manifest: dict[str, Any], part: Part) -> str:
    """Under what a part's result is kept: another model, other data, another setting give another key."""
    content = {"manifest": manifest, "part": part.name, "settings": dict(part.settings)}
    return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _hash_of(file: Path) -> str | None:
    return file_hash(file) if file.exists() else None


def _data_hashes(context: Context) -> dict[str, str]:
    """One hash per patient, over every array that belongs to it."""
    content = {
        key: sorted((name, entry.sha256) for name, entry in record.files.items())
        for key, record in context.records.items()
    }
    return {key: sha256(repr(files).encode()).hexdigest() for key, files in content.items()}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"
