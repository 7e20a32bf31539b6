"""`diptych index`: folders of patients become an archive."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.cluster_command import CLUSTER
from diptych.cli.help_types import complete_model
from diptych.errors import PartialFailure, UsageError
from diptych.model.shipped import DEFAULT_MODEL

if TYPE_CHECKING:
    from diptych.archive.indexing import IndexOptions, IndexReport
    from diptych.volumes import PatientFiles


SHOWN = 10
"""Warnings printed; `--json` has all of them."""


class Pixels(StrEnum):
    """What the archive keeps of the images themselves."""

    COPY = "copy"
    REFERENCE = "reference"
    NONE = "none"


class KeyChoice(StrEnum):
    """What patients are called in the archive."""

    AUTO = "auto"
    PSEUDONYMS = "pseudonyms"
    NAMES = "names"


def index(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE",
            help="Folders with patients: BraTS of any release, phantoms, or DICOM and raw NIfTI, which are taken in.",
            show_default=False,
        ),
    ],
    archive: Annotated[Path, typer.Option("--archive", help="The archive to make or to add to.", show_default=False)],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            help="Folder of the model that encodes, or the name of a shipped one.",
            show_default=DEFAULT_MODEL,
            autocompletion=complete_model,
        ),
    ] = None,
    pixels: Annotated[
        Pixels,
        typer.Option(
            help="Keep de-identified copies of the images, refer to the original files (their paths are then stored), "
            "or keep codes only."
        ),
    ] = Pixels.COPY,
    source_name: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Name of the collection, for filters.", show_default=False),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD", help="Label given to every volume, for filters; repeat for more.", show_default=False
        ),
    ] = None,
    metadata: Annotated[
        Path | None,
        typer.Option(
            help="CSV table with columns key, study_date, sex, age, source, tags, healthy (dates are shifted), or a "
            "participants.tsv.",
            show_default="participants.tsv of a BIDS source",
        ),
    ] = None,
    keys: Annotated[
        KeyChoice,
        typer.Option(
            help="What patients are called: research ids such as BraTS-GLI-00001-000 as they are and pseudonyms for "
            "any other name; pseudonyms for all; or names as files and folders have them."
        ),
    ] = KeyChoice.AUTO,
    predict_lesions: Annotated[
        bool,
        typer.Option("--predict-lesions", help="Decode lesion areas of volumes without a label map from their codes."),
    ] = False,
    batch: Annotated[int, typer.Option(min=1, help="Slices encoded at a time; any number gives the same ids.")] = 32,
    shards: Annotated[
        int | None,
        typer.Option(help="Make a new sharded archive of so many parts, for several machines.", show_default=False),
    ] = None,
    cluster: Annotated[str | None, CLUSTER] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Encode every patient in SOURCE and store the codes, one transaction per patient.

    What is reported as stored survives anything, so a stopped run is resumed by running it again: patients that have
    not changed are left alone. One that cannot be read is reported and skipped; the exit code is then 4.

    In a sharded archive each patient goes to the shard it belongs to; with --cluster every core of every node encodes.
    """
    from dataclasses import asdict

    from diptych.archive.indexing import IndexOptions
    from diptych.cli.console import print_json
    from diptych.cli.intake_command import taken_in
    from diptych.cluster.shard_manifest import is_sharded
    from diptych.model.shipped import named_model, shipped_model
    from diptych.volumes.bids import participants_table
    from diptych.volumes.sources import find_sources

    sharded = shards is not None or is_sharded(archive)
    if cluster is not None and not sharded:
        raise UsageError(f"--cluster: {archive} is not sharded; give --shards N with a new folder, or split it first")
    sources, refused = taken_in(sources, archive)
    for source, reason in refused.items():
        print(f"failed: {source}: {reason}", file=sys.stderr)
    if not sources:
        raise PartialFailure(f"{len(refused)} studies failed in intake, and there is nothing else to index")
    patients = find_sources(sources)
    folder = named_model(model or shipped_model())
    options = IndexOptions(
        pixels=pixels.value,
        source=source_name,
        tags=tuple(tag or ()),
        metadata=metadata or next((table for source in sources if (table := participants_table(source))), None),
        keys=keys.value,
        predict_lesions=predict_lesions,
        batch_size=batch,
    )
    if sharded:
        report, held = _index_shards(archive, folder, patients, options, shards=shards, cluster=cluster)
    else:
        report, held = _index_one(archive, folder, patients, options)
    if json_output:
        print_json({"archive": archive, "volumes": held.volumes, **asdict(report)})
    else:
        print(f"{archive}: {held.volumes} volumes of {held.patients} patients, {held.slices} slices")
        _print_report(report)
    if report.failed or refused:
        failed = len(report.failed) + len(refused)
        raise PartialFailure(f"{failed} patients failed and were not indexed; the others are in {archive}")


@dataclass(frozen=True)
class _Held:
    """What there is in the archive now."""

    volumes: int
    patients: int
    slices: int


def _index_one(
    archive: Path, folder: Path, patients: Sequence[PatientFiles], options: IndexOptions
) -> tuple[IndexReport, _Held]:
    from diptych.archive import ArchiveWriter
    from diptych.archive.encoding import NetworkEncoder
    from diptych.archive.indexing import index_patients
    from diptych.cli.console import progress_bar
    from diptych.metrics.label_indexing import volume_decoder
    from diptych.model import load_model
    from diptych.retrieval.catalogue import prepare_search
    from diptych.retrieval.model_reference import volume_check

    network = load_model(folder)
    encoder = NetworkEncoder(network)
    with ArchiveWriter.open(archive, model=encoder.identity) as writer, progress_bar("Indexing") as progress:
        decode, check = volume_decoder(network, folder), volume_check(folder, fingerprint=network.fingerprint)
        report = index_patients(
            writer, encoder, patients, options=options, decode=decode, check=check, progress=progress
        )
        prepare_search(writer, network, folder)
        stat = writer.stat()
    return report, _Held(stat.volumes, stat.patients, stat.slices)


def _index_shards(
    archive: Path,
    folder: Path,
    patients: Sequence[PatientFiles],
    options: IndexOptions,
    *,
    shards: int | None,
    cluster: str | None,
) -> tuple[IndexReport, _Held]:
    from diptych.cli.console import progress_bar
    from diptych.cluster.bulk_indexing import Bulk, make_shards
    from diptych.cluster.ray_session import session
    from diptych.cluster.resharding import stat_shards
    from diptych.cluster.shard_manifest import read_manifest
    from diptych.model.stored_model import StoredModel

    with session(cluster) if cluster is not None else nullcontext():  # one that is not there is told first
        if shards is not None:
            make_shards(archive, StoredModel.open(folder), shards)
        bulk = Bulk(read_manifest(archive), folder, options)
        with progress_bar("Indexing") as progress:
            if cluster is None:
                report = bulk.index(patients, progress=progress)
            else:
                report = bulk.index_on(cluster, patients, progress=progress)
    found = [stat for _, stat in stat_shards(archive)]
    counts = (sum(getattr(stat, name) for stat in found) for name in ("volumes", "patients", "slices"))
    return report, _Held(*counts)


def _print_report(report: IndexReport) -> None:
    rate = report.slices / report.seconds if report.seconds else 0.0
    print(
        f"{len(report.added)} added, {len(report.replaced)} replaced, {len(report.unchanged)} unchanged "
        f"in {report.seconds:.1f} s ({rate:.0f} slices/s)"
    )
    if report.renamed:
        print(
            f"{report.renamed} have pseudonyms as keys; whoever owns the archive may still search them by their names"
        )
    lines = [f"{key}: {warning}" for key, warnings in report.warnings.items() for warning in warnings]
    for line in lines[:SHOWN]:
        print(f"warning: {line}", file=sys.stderr)
    if len(lines) > SHOWN:
        print(f"warning: {len(lines) - SHOWN} more with --json", file=sys.stderr)
    for key, reason in report.failed.items():
        print(f"failed: {key}: {reason}", file=sys.stderr)
