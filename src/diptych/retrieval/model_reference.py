"""What a model's training patients looked like, kept beside the model; whatever is read for it is compared with that.

    MODEL/references.safetensors     made by 'diptych fit references' from the patients that the model learnt from

Means over patients and one covariance: nobody's own data. Without the file, four channels are compared with what T1,
T1Gd, T2 and FLAIR usually look like, and others not at all. Knows files; `volumes/channel_check.py` knows what is
compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from diptych.errors import ModelError
from diptych.files import parse_json
from diptych.metrics.model_file import Companion
from diptych.model.shipped import DEFAULT_MODEL, shipped_model
from diptych.retrieval.match_worth import WorthTables
from diptych.volumes import Volume
from diptych.volumes.channel_check import Reference, usual_contrasts

REFERENCES = Companion(
    file="references.safetensors",
    format="diptych-references",
    version="1",
    called="what training patients looked like",
    command="diptych fit references",
)
Check = Callable[[Volume], list[str]]


def save_reference(reference: Reference, model: Path, *, fingerprint: str) -> Path:
    """Write a reference beside the model it was fitted for."""
    arrays = {"mean": reference.mean, "precision": reference.precision}
    about = {
        "limit": reference.limit,
        "patients": reference.patients,
        "error_limit": reference.error_limit,
        "limits": dict(reference.limits),
    }
    return REFERENCES.write(
        model, arrays, fingerprint=fingerprint, channels=json.dumps(reference.channels), about=json.dumps(about)
    )


def load_reference(model: Path | None, *, fingerprint: str) -> Reference | None:
    """The reference beside a model; None where there is none. A damaged one, or another model's, is refused."""
    if model is None or (found := REFERENCES.read(model, fingerprint=fingerprint)) is None:
        return None
    arrays, header = found
    try:
        channels, about = tuple(map(str, parse_json(header["channels"]))), parse_json(header["about"])
        mean, precision = (np.asarray(arrays[name], dtype=np.float64) for name in ("mean", "precision"))
        error = None if about["error_limit"] is None else float(about["error_limit"])
        limits = {str(names): float(limit) for names, limit in about.get("limits", {}).items()}
        whole = Reference(channels, mean, precision, float(about["limit"]), int(about["patients"]), error, limits)
    except (KeyError, ValueError, TypeError, AttributeError) as cause:
        raise ModelError(f"{model / REFERENCES.file}: incomplete ({cause!r}); {REFERENCES.way_out}") from None
    features = 5 * len(channels) + len(channels) * (len(channels) - 1) // 2
    if mean.shape != (features,) or precision.shape != (features, features):
        raise ModelError(f"{model / REFERENCES.file}: is not about {len(channels)} channels; {REFERENCES.way_out}")
    return whole


def shipped_reference(name: str = DEFAULT_MODEL) -> Reference | None:
    """The reference of a model that comes with Diptych."""
    folder = shipped_model(name)
    fingerprint = parse_json((folder / "config.json").read_text(encoding="utf-8"))["fingerprint"]
    return load_reference(folder, fingerprint=fingerprint)


def volume_check(model: Path | None, *, fingerprint: str) -> Check:
    """What to say about a volume that is read for a model: what is strange, and what missing channels cost."""
    reference = load_reference(model, fingerprint=fingerprint) or usual_contrasts()
    worth = WorthTables.open(model, fingerprint)

    def check(volume: Volume) -> list[str]:
        missing = [name for name in reference.channels if name not in volume.channels]
        cost = worth.cost_of_missing(missing) if worth and missing else None
        return [*reference.warnings(volume), *([cost] if cost else [])]

    return check
