"""Decomposed patients made by hand, and an evaluation of egg-shaped patients with a network that has learnt nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diptych.config import ModelConfig
from diptych.evaluation.context import Context
from diptych.evaluation.evaluation_data import DecomposedPatient
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.slices import PatientRecord
from tests.slices.making import make_store, make_volume
from tests.training.tiny import GEOMETRY

CONFIG = ModelConfig(
    image_size=(48, 32),
    field_mm=(60.0, 48.0),
    latent_size=(6, 4),
    widths=(8, 8, 8, 8),
    code_width=8,
    codebook_size=16,
)
Z, C, H, W = 2, 4, 24, 20


def decomposed(**changes: Any) -> DecomposedPatient:
    """Two slices of all-brain zeros with a lesion of 12 ED pixels in the first, reconstructed without any error."""
    record = PatientRecord(
        patient_key="P",
        voxel_hash="",
        sources={},
        files={},
        z_index=(0, 1),
        z_mm=(0.0, 5.0),
        position=(0.0, 1.0),
        lesion_pixels=(12, 0),
        pixel_spacing=(2.0, 1.0),
        affine=((1.0, 0, 0, 0), (0, 2.0, 0, 0), (0, 0, 5.0, 0), (0, 0, 0, 1.0)),
        intensity={},
    )
    image = np.zeros((Z, C, H, W), dtype=np.float16)
    lesion = np.zeros((Z, H, W), dtype=np.uint8)
    lesion[0, 2:5, 3:7] = 2
    patient = DecomposedPatient(
        key="P",
        record=record,
        images=image,
        lesion=lesion,
        anatomy=None,
        twin=None,
        reconstruction=image,
        healthy_twin=image,
        predicted_lesion=lesion,
        predicted_anatomy=None,
        normal_ids=np.zeros((Z, 3, 2), dtype=np.int64),
        abnormal_ids=np.ones((Z, 3, 2), dtype=np.int64),
    )
    return replace(patient, **changes)


def tiny_context(folder: Path, *, with_twins: bool = True, config: ModelConfig = CONFIG) -> Context:
    """Seven egg-shaped patients and a seeded network."""
    volumes = [make_volume(f"patient-{number}", seed=number) for number in range(7)]
    store = make_store(folder / "store", [v if with_twins else replace(v, twin=None) for v in volumes], GEOMETRY)
    torch.manual_seed(0)
    save_model(FeatureDecomposingNetwork(config).eval(), folder / "model")
    return Context.open([store], folder / "model", cache=folder / "cache")
