"""Archives of made-up codes, whole and in shards, with what can be asked of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diptych.archive import ArchiveWriter, VolumeRecord
from diptych.archive.encoding import NetworkEncoder
from diptych.cluster.resharding import split_archive
from diptych.cluster.sharded_archive import ShardedArchive
from diptych.metrics.label_indexing import volume_decoder
from diptych.metrics.learned_tables import LearnedTable, LearnedTables, save_learned_tables
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.retrieval import Answer, Archive
from tests.retrieval.making import make_record

ONE_RAY = pytest.mark.xdist_group("ray")
"""Tests that start Ray take turns: two at a time would find each other's."""


def records(count: int = 22) -> list[VolumeRecord]:
    """Volumes of half as many patients; some slices stand in several volumes, so that there are ties."""
    made = [make_record(number, slices=5 + number % 4) for number in range(count)]
    for number in range(4, count, 3):
        other = made[number - 4]
        made[number] = replace(
            made[number],
            normal_ids=np.concatenate([other.normal_ids[:3], made[number].normal_ids[3:]]),
            abnormal_ids=np.concatenate([other.abnormal_ids[:3], made[number].abnormal_ids[3:]]),
        )
    return made


def make_whole(path: Path, network: FeatureDecomposingNetwork, *, labels: bool, count: int = 22) -> Path:
    """An archive of all of them, with stored label maps or without."""
    decode = volume_decoder(network, None)
    with ArchiveWriter.open(path, model=NetworkEncoder(network).identity) as writer:
        for record in records(count):
            writer.add(record, decode(record) if labels else None)
    return path


def make_shards(whole: Archive, out: Path, shards: int) -> ShardedArchive:
    """The same in shards, all in this process."""
    split_archive(whole.store.path, out, shards=shards)
    return ShardedArchive.open(out, model=whole.network)


def told(answer: Answer) -> Any:
    """Everything that an answer says, in a form that can be compared."""
    return [answer.version, answer.question.metric, answer.missing, [match.to_json() for match in answer.matches]]


def save_with_tables(network: FeatureDecomposingNetwork, folder: Path) -> Path:
    """A model's folder, with learned tables, so that there is fusion."""
    save_model(network, folder)
    cells, codes = network.config.latent_size[0] * network.config.latent_size[1], network.config.codebook_size
    tables = {}
    for place, panel in enumerate(("normal", "abnormal")):
        vectors = np.random.default_rng(place).random((codes, 5))
        weights = np.random.default_rng(place).integers(1, 4, size=cells)
        tables[panel] = LearnedTable((vectors @ vectors.T).astype(np.float32), weights.astype(np.int32))
    save_learned_tables(LearnedTables(network.fingerprint, tables, {}), folder)
    return folder
