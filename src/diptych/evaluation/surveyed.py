"""The survey of an evaluation's query patients, made once and kept in a file that may be deleted at any time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from hashlib import sha256
from typing import Any

from diptych.evaluation.context import Context
from diptych.evaluation.decomposed import DecomposedPatient
from diptych.evaluation.survey import Survey, survey
from diptych.progress import Progress, silent
from diptych.search import load_arrays, save_arrays

__all__ = ["content_key", "surveyed"]

CACHE_VERSION = 1


def surveyed(context: Context, progress: Progress = silent) -> Survey:
    """Everything that can be counted on the query patients."""
    path, key = context.cache / "survey.arrays", f"survey {CACHE_VERSION} of {content_key(context)}"
    names = [field.name for field in fields(Survey) if field.name != "keys"]
    kept: dict[str, Any] | None = load_arrays(path, key=key)
    if kept is not None and kept.keys() == set(names):
        return Survey(keys=context.queries, **kept)
    found = survey(_decomposed(context, progress), codes=context.network.config.codebook_size)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_arrays(path, {name: getattr(found, name) for name in names}, key=key)
    return found


def content_key(context: Context) -> str:
    """What the model makes of the query patients follows from this."""
    hashes = [
        (key, name, entry.sha256) for key in context.queries for name, entry in context.records[key].files.items()
    ]
    return sha256(repr([context.fingerprint, hashes]).encode()).hexdigest()


def _decomposed(context: Context, progress: Progress) -> Iterator[DecomposedPatient]:
    for done, key in enumerate(context.queries, start=1):
        yield context.decomposed(key)
        progress(done, len(context.queries), key)
