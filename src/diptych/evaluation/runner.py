"""Runs parts one after the other, keeps each result, and does not run again what is kept.

    REPORT/parts/NAME.json    section of a finished part, with the key of its manifest

Knows parts and files; `report.py` makes the pages.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from diptych.errors import InputError, UsageError
from diptych.evaluation.context import Context
from diptych.evaluation.part import Part, Section, left_out
from diptych.evaluation.parts import NAMES, load_part
from diptych.files import file_sha256, program_versions, write_text
from diptych.progress import Progress, silent

ShowProgress = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Finished:
    """A part with its result."""

    part: Part
    section: Section
    seconds: float
    """How long it ran when it was run."""
    kept: bool = False
    """Whether it was there already."""


def run_parts(
    context: Context,
    parts: Sequence[Part],
    out: Path,
    *,
    show: ShowProgress = lambda title: nullcontext(silent),
) -> list[Finished]:
    """Run what has not been run with the same manifest; each result is on disk before the next part begins."""
    manifest = make_manifest(context)
    folder = report_folder(out) / "parts"
    _write(out / "manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False))
    finished = []
    for part in parts:
        key = part_key(manifest, part)
        done = _read(folder / f"{part.name}.json", part, key)
        if done is None:
            with show(part.title) as progress:
                started = time.monotonic()
                section = _answered(part, context, progress)
            done = Finished(part, section, time.monotonic() - started)
            content = {"key": key, "seconds": done.seconds, **section.to_json()}
            _write(folder / f"{part.name}.json", json.dumps(content, ensure_ascii=False, allow_nan=False))
        finished.append(done)
    return finished


def _answered(part: Part, context: Context, progress: Progress) -> Section:
    """What the part found; where these patients or this model have nothing to answer with, why it was left out."""
    if part.needs_lesions and not any(any(context.records[key].lesion_pixels or ()) for key in context.queries):
        return left_out("no query patient has a lesion, so nobody asks; give patients with lesions as queries.")
    try:
        return part.run(context, progress)
    except InputError as error:
        return left_out(f"{error}.")


def kept_parts(context: Context, out: Path) -> list[Finished]:
    """Everything in the folder that was found with this context's manifest, in the order of the report."""
    manifest = make_manifest(context)
    found = []
    for part in map(load_part, NAMES):
        done = _read(out / "parts" / f"{part.name}.json", part, part_key(manifest, part))
        if done is not None:
            found.append(done)
    return found


def report_folder(out: Path) -> Path:
    """Make the folder of a report; a folder of something else is not written into."""
    try:
        if out.exists() and any(out.iterdir()) and not (out / "parts").is_dir():
            raise UsageError(f"{out}: neither empty nor a report; give another --out")
        (out / "parts").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written to ({error.strerror}); give another --out") from None
    return out


def _read(path: Path, part: Part, key: str) -> Finished | None:
    """A kept result; nothing if there is none, or it is damaged, or it was found with another manifest."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["key"] != key:
            return None
        return Finished(part, Section.from_json(content), float(content["seconds"]), kept=True)
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        return None


def _write(path: Path, text: str) -> None:
    """All or nothing."""
    try:
        write_text(path, text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); make room or give another --out") from None


def make_manifest(context: Context) -> dict[str, Any]:
    """All that the figures follow from, as plain values."""
    return {
        "model": {
            "fingerprint": context.fingerprint,
            "config": context.network.config.to_dict(),
            "beside": {path.name: file_sha256(path) for path in sorted(context.model.glob("*.safetensors"))},
        },
        "archive": None if context.archive is None else context.archive.catalogue.version,
        "data": _data_hashes(context),
        "queries": list(context.queries),
        "references": list(context.references),
        "seed": context.seed,
        "autoencoder_images": context.autoencoder_images,
        "versions": program_versions("torch", "numpy", "scipy", "numba"),
    }


def part_key(manifest: dict[str, Any], part: Part) -> str:
    """Under what a part's result is kept: another model, other data, another setting give another key."""
    content = {"manifest": manifest, "part": part.name, "settings": dict(part.settings)}
    return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _data_hashes(context: Context) -> dict[str, str]:
    """One hash per patient, over every array that belongs to it."""
    content = {
        key: sorted((name, entry.sha256) for name, entry in record.files.items())
        for key, record in context.records.items()
    }
    return {key: sha256(repr(files).encode()).hexdigest() for key, files in content.items()}
