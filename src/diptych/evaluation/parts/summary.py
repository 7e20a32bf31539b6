"""What was evaluated: patients, slices, lesions, model. No judgement, only what the other parts stand on."""

from __future__ import annotations

import numpy as np

from diptych.evaluation.context import Context
from diptych.evaluation.part import Part, Section, Table
from diptych.progress import Progress


def run(context: Context, progress: Progress) -> Section:
    """Count."""
    rows, numbers = [], {}
    for side, keys in (("query", context.queries), ("reference", context.references)):
        records = [context.records[key] for key in keys]
        pixels = np.array([count for record in records for count in record.lesion_pixels or ()])
        anatomy = sum("anatomy" in record.files for record in records)
        row = (len(records), sum(record.slices for record in records), int(np.count_nonzero(pixels)), anatomy)
        rows.append((side, *row))
        numbers[side] = dict(
            zip(("patients", "slices", "slices_with_lesion", "patients_with_anatomy"), row, strict=True)
        )
    progress(1, 1)
    columns = ("patients", "number", "slices", "slices with lesion", "patients with anatomy labels")
    common = len(set(context.queries) & set(context.references))
    caption = f"{common} patients are on both lists; no query ever finds a slice of its own patient."
    config = context.network.config
    model = Table.of(
        "Model",
        ("", "value"),
        [
            ("fingerprint", context.fingerprint[:16]),
            ("input", f"{config.channels} channels, {config.image_size[0]} × {config.image_size[1]} pixels"),
            ("codes", f"two grids of {config.latent_size[0]} × {config.latent_size[1]}, {config.codebook_size} codes"),
            ("parameters", sum(parameter.numel() for parameter in context.network.parameters())),
        ],
        formats={"value": ",d"},
    )
    return Section((Table.of("Patients", columns, rows, caption=caption), model), numbers)


PART = Part(
    "summary",
    "What was evaluated",
    "Patients, slices and the model that all figures below stand on.",
    run,
    needs_lesions=False,
)
