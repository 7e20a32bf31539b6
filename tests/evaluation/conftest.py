"""Six small patients in a store, and a model that has learnt nothing but has everything a model can have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from diptych.evaluation.context import Context
from diptych.metrics.learned_tables import LearnedTable, LearnedTables, save_learned_tables
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.slices import SliceGeometry, SliceStore
from tests.retrieval.making import CONFIG, tiny_network
from tests.slices.making import make_store, make_volume


@dataclass(frozen=True)
class Scene:
    """What a command needs."""

    store: Path
    model: Path

    def context(self, cache: Path, **options: object) -> Context:
        stores = [SliceStore.open(self.store)]
        return Context.open(stores, self.model, cache=cache, autoencoder_images=16, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("scene")
    volumes = [make_volume(f"P{number}", seed=number, lesion_at=(4, 5, 4 + number % 4)) for number in range(6)]
    make_store(folder / "store", volumes, SliceGeometry(size=CONFIG.image_size, field=CONFIG.field_mm))
    network = tiny_network()
    save_model(network, folder / "model")
    save_learned_tables(_tables(network), folder / "model")
    return Scene(folder / "store", folder / "model")


@pytest.fixture(scope="session")
def context(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Context:
    """Six patients who ask one another; for tests that only look."""
    return scene.context(tmp_path_factory.mktemp("cache"))


def _tables(network: FeatureDecomposingNetwork) -> LearnedTables:
    rng = np.random.default_rng(0)
    rows, columns = CONFIG.latent_size
    panels = {}
    for panel in ("normal", "abnormal"):
        contents = rng.random((CONFIG.codebook_size, 3), dtype=np.float32)
        products = contents @ contents.T
        weights = np.ones(rows * columns, dtype=np.int32)
        panels[panel] = LearnedTable(((products + products.T) / 2).astype(np.float32), weights)
    return LearnedTables(network.fingerprint, panels, {})
