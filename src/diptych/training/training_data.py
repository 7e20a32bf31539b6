"""Which patients a run learns from and which ones judge it: opens stores, checks that they fit, divides patients.

Knows stores and options; nothing about networks beyond the size of their input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from diptych.config import Preset
from diptych.description import Description
from diptych.errors import StoreError, UsageError
from diptych.model import load_model
from diptych.runs.run_length import Length
from diptych.slices import ROBUST_AUGMENTATION, PatientRecord, SliceDataset, SliceStore
from diptych.slices.splits import Split, given_split, read_keys, seeded_split
from diptych.training.training_options import (
    PRECISIONS,
    RunConfig,
    TrainingOptions,
    chosen_preset,
    require_same,
    stored_config,
)
from diptych.training.validation import evenly_spaced

TRAIN_SHARE = 0.85
"""Part of the patients to train on when no lists say otherwise; the rest validates."""
VALIDATION_SLICES = 600
"""Slices looked at in each validation during a run: whole patients, spread over the validation list."""


@dataclass(frozen=True, eq=False)
class RunData:
    """The slices of a run."""

    train: SliceDataset
    """Augmented training slices."""
    validation: SliceDataset
    """The validation patients that are looked at again and again."""
    all_validation: SliceDataset
    """All validation patients, for the final figures."""


def resolve(options: TrainingOptions) -> tuple[RunConfig, list[SliceStore]]:
    """Turn a request into a complete config, in agreement with the run to resume if there is one."""
    stored = stored_config(options)
    preset = chosen_preset(options, stored)
    if options.precision not in (None, *PRECISIONS):
        raise UsageError(f"--precision {options.precision}: must be {' or '.join(PRECISIONS)}")
    paths = options.stores or tuple(map(Path, stored.stores if stored else ()))
    if not paths:
        raise UsageError("no slice store; name one that 'diptych prepare' made")
    stores = [SliceStore.open(path) for path in paths]
    for store in stores:
        _require_fit(store, stores[0], preset)
    preset = replace(preset, model=preset.model.describing(_description(stores)))
    if stored and options.train_list is None and options.validation_list is None:
        split = Split(stored.train_keys, stored.validation_keys)
    else:
        split = _split(options, stores, seed=preset.training.seed)
    config = RunConfig(
        preset=preset,
        length=options.length or (stored.length if stored else Length(epochs=preset.training.epochs)),
        stores={str(store.path): store.fingerprint for store in stores},
        train_keys=split.train,
        validation_keys=split.test,
        precision=options.precision or (stored.precision if stored else "float32"),
        compiled=options.compiled if options.compiled is not None else bool(stored and stored.compiled),
        threads=options.threads or (stored.threads if stored else torch.get_num_threads()),
        started_from=_start(options, stored),
    )
    if stored:
        require_same(stored, config)
    return config, stores


def open_data(config: RunConfig, stores: Sequence[SliceStore]) -> RunData:
    """The datasets of a run."""
    training = config.preset.training
    changes = replace(
        ROBUST_AUGMENTATION,
        rotation=training.rotation_degrees,
        flip=0.5 if training.flip else 0.0,
        scale=0.1 * training.degradations,
        degradations=training.degradations,
        degraded_share=training.degraded_share,
        channel_dropout=training.channel_dropout if config.preset.model.sufficient_channels else 0.0,
        sufficient_channels=config.preset.model.sufficient_channels,
    )
    train = SliceDataset(
        stores,
        config.train_keys,
        augmentation=changes.with_contrast(training.contrast_changes),
        with_twin=config.preset.losses.twin_weight > 0,
        graft_share=training.graft_share,
    )
    everyone = SliceDataset(stores, config.validation_keys, with_twin=True)
    per_patient = max(1, len(everyone) // len(everyone.keys))
    chosen = evenly_spaced(everyone.keys, max(1, VALIDATION_SLICES // per_patient))
    return RunData(train, SliceDataset(stores, chosen, with_twin=True), everyone)


def _start(options: TrainingOptions, stored: RunConfig | None) -> str:
    """The fingerprint of the model to start from, empty for none; it may read other channels or know other classes."""
    if options.start_from is None:
        return stored.started_from if stored else ""
    return load_model(options.start_from).fingerprint


def _split(options: TrainingOptions, stores: Sequence[SliceStore], *, seed: int) -> Split:
    patients: dict[str, PatientRecord] = {}
    for store in stores:
        patients |= {key: record for key, record in store.patients.items() if record.lesion_pixels is not None}
    if not patients:
        raise StoreError(f"{stores[0].path}: no patient with lesion labels, which training needs; prepare some")
    if options.train_list and options.validation_list:
        return given_split(patients, read_keys(options.train_list), read_keys(options.validation_list))
    if options.validation_list:
        raise UsageError("--val-list needs --train-list beside it")
    if options.train_list:
        listed = given_split(patients, read_keys(options.train_list), ()).train
        patients = {key: patients[key] for key in listed}
    if len(patients) < 2:
        raise StoreError(f"{stores[0].path}: one patient; training needs at least two, one of them to be judged by")
    return seeded_split(patients, train=min(TRAIN_SHARE, 1 - 1 / len(patients)), seed=seed)


def _description(stores: Sequence[SliceStore]) -> Description:
    """What the stores are about; without anatomy where no patient has labels of it."""
    known = any("anatomy" in record.files for store in stores for record in store.patients.values())
    return stores[0].description if known else replace(stores[0].description, anatomy=())


def _require_fit(store: SliceStore, first: SliceStore, preset: Preset) -> None:
    """Refuse slices of another size or field than the preset's, or other channels or classes than the first store's."""
    wanted = replace(store.geometry, size=preset.model.image_size, field=preset.model.field_mm)
    if store.geometry != wanted:
        size, field = "x".join(map(str, wanted.size)), _field(wanted.field)
        raise StoreError(
            f"{store.path}: has slices of {'x'.join(map(str, store.geometry.size))} pixels over "
            f"{_field(store.geometry.field)} mm, preset {preset.name} takes {size} over {field} mm; "
            f"run 'diptych prepare SOURCE --out NEW --size {size} --field {field}'"
        )
    if preset.training.blank_slices and not store.manifest.blank:
        raise StoreError(
            f"{store.path}: has no blank slices, preset {preset.name} trains on all of them; run 'diptych prepare "
            "SOURCE --out NEW --blank …', or add --set blank_slices=false"
        )
    mine, other = store.description, first.description
    if (mine.channels, mine.lesion, mine.anatomy) != (other.channels, other.lesion, other.anatomy):
        raise StoreError(
            f"{store.path}: is about {mine.sentence()}, {first.path} about {other.sentence()}; train one model on each"
        )


def _field(field: tuple[float, float] | None) -> str:
    return "full" if field is None else "x".join(f"{side:g}" for side in field)
