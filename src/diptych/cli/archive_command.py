"""`diptych archive …`: look at an archive, check it, take volumes out, move it between machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diptych.cli.help_types import complete_model
from diptych.errors import ArchiveError, UsageError

if TYPE_CHECKING:
    from diptych.archive import ModelIdentity
    from diptych.archive.encoding import NetworkEncoder
    from diptych.model import FeatureDecomposingNetwork


app = typer.Typer(
    name="archive",
    help="Look at an archive, check it, take volumes out, export and import it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ArchivePath = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The archive's folder.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command()
def stat(archive: ArchivePath, json_output: Json = False) -> None:
    """Tell what an archive holds and which model made it."""
    from dataclasses import asdict

    from diptych.archive import ArchiveStore
    from diptych.cli.console import print_json

    found = ArchiveStore.open(archive).stat()
    if json_output:
        print_json(asdict(found))
    else:
        lesions = ", ".join(f"{count} {name}" for name, count in found.lesion_sources.items()) or "none"
        print(f"archive   {found.path} (format {found.format})")
        print(f"model     {found.model.describe()}")
        print(f"content   {found.volumes} volumes of {found.patients} patients, {found.slices} slices")
        print(f"lesions   {lesions}")
        print(f"on disk   {found.database_bytes / 1e6:.1f} MB codes, {found.copies_bytes / 1e6:.1f} MB images")
        print(
            f"search    {found.segments} segments, {found.segment_bytes / 1e6:.1f} MB; "
            f"label maps of {found.decoded} of {found.volumes} volumes"
        )
        print(f"version   {found.version}")
    _finish(found.problems, "damaged parts are left out of every search; 'diptych archive verify' tells all")


@app.command(name="list")
def list_volumes(
    archive: ArchivePath,
    where: Annotated[
        str | None,
        typer.Option(help="Condition on metadata, such as \"sex = 'F' and age > 60\".", show_default=False),
    ] = None,
    json_output: Json = False,
) -> None:
    """List volumes with their metadata, all or those that fulfil a condition."""
    from diptych.archive import ArchiveStore
    from diptych.archive.filters import parse_filter
    from diptych.cli.console import print_json

    condition = parse_filter(where) if where is not None else None
    listing = ArchiveStore.open(archive).listing()
    kept = condition.keep(listing.volumes) if condition else [True] * len(listing.volumes)
    rows = [
        {**info.to_json(), "slices": slices, "files": [file.role for file in info.files]}
        for info, slices, keep in zip(listing.volumes, listing.slices, kept, strict=True)
        if keep
    ]
    if json_output:
        print_json(rows)
    else:
        for row in rows:
            print(_line(row))
    _finish(listing.problems, "damaged volumes are not listed")


@app.command()
def verify(
    archive: ArchivePath,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Encode a sample again with this model and compare the ids.",
            show_default=False,
            autocompletion=complete_model,
        ),
    ] = None,
    sample: Annotated[int, typer.Option(min=0, help="Volumes to encode again.")] = 3,
    json_output: Json = False,
) -> None:
    """Check the file, every checksum and every image; with a model, encode a sample again."""
    from dataclasses import asdict

    from diptych.archive import ArchiveStore
    from diptych.archive.integrity import verify_archive
    from diptych.cli.console import print_json, progress_bar

    encoder = None if model is None else _load_encoder(model)
    with progress_bar("Verifying") as progress:
        found = verify_archive(ArchiveStore.open(archive), encoder=encoder, sample=sample, progress=progress)
    if json_output:
        print_json(asdict(found))
    else:
        print(
            f"{archive}: checked {found.volumes} volumes, {found.slices} slices, {found.files} images; "
            f"{found.encoded_again} volumes encoded again; {len(found.problems)} problems"
        )
    _finish(found.problems, "index the named volumes again, or run 'diptych archive repair' to drop them")


@app.command()
def remove(
    archive: ArchivePath,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="VOLUME…", help="Volumes to take out.", show_default=False)
    ] = None,
    patient: Annotated[
        list[str] | None,
        typer.Option(help="Take out all volumes of this patient; repeat for more.", show_default=False),
    ] = None,
) -> None:
    """Take volumes or patients out. 'diptych archive compact' then wipes their last bytes."""
    from diptych.archive import ArchiveStore, ArchiveWriter

    if not keys and not patient:
        raise UsageError("nothing to remove: give volume keys, or --patient KEY")
    from diptych.cli.audit_command import note

    store = ArchiveStore.open(archive)
    volumes, patients = ([store.known_as(name) for name in names or ()] for names in (keys, patient))
    note(archive, "delete", [*volumes, *patients])
    with ArchiveWriter.open(archive) as writer:
        for key in volumes:
            writer.remove(key)
            print(f"removed {key}")
        for key in patients:
            removed = writer.remove_patient(key)
            if not removed:
                raise ArchiveError(f"{archive}: holds no patient {key!r}; 'diptych archive list' shows all")
            print(f"removed {', '.join(removed)}")


@app.command()
def compact(archive: ArchivePath) -> None:
    """Rewrite the archive without gaps: nothing of removed volumes is left on disk."""
    from diptych.archive import ArchiveWriter

    with ArchiveWriter.open(archive) as writer:
        freed = writer.compact()
    print(f"{archive}: {freed / 1e6:.1f} MB freed")


@app.command()
def decode(
    archive: ArchivePath,
    model: Annotated[
        Path | None,
        typer.Option(
            help="The model that made the archive.", show_default="the shipped one", autocompletion=complete_model
        ),
    ] = None,
) -> None:
    """Decode the label maps of volumes that have none, or none of the model's present label decoders.

    Volumes that 'diptych index' stores have theirs already. Searches go on meanwhile, with the maps there are.
    """
    from diptych.archive import ArchiveStore, ArchiveWriter
    from diptych.cli.console import progress_bar
    from diptych.metrics.label_indexing import decode_archive, volume_decoder
    from diptych.model import load_model
    from diptych.model.shipped import named_model, shipped_model_of
    from diptych.retrieval.catalogue import prepare_search

    store = ArchiveStore.open(archive)
    folder = shipped_model_of(store.model.fingerprint) if model is None else named_model(model)
    if folder is None:
        raise UsageError(f"{archive}: was made by model {store.model.describe()}; give it with --model")
    network = load_model(folder)
    store.model.require(_identity(network), store.path)
    with ArchiveWriter.open(archive) as writer, progress_bar("Decoding") as progress:
        decoded = decode_archive(writer, volume_decoder(network, folder), progress=progress)
        prepare_search(writer, network, folder)
    print(f"{archive}: {decoded} volumes decoded")


@app.command()
def repair(archive: ArchivePath) -> None:
    """Drop damaged volumes, and accept what is left as the whole archive."""
    from diptych.archive import ArchiveWriter

    with ArchiveWriter.open(archive) as writer:
        dropped = writer.repair()
    for line in dropped:
        print(f"dropped {line}")
    print(f"{archive}: {len(dropped)} volumes dropped; index them again")


@app.command(name="export")
def export_file(
    archive: ArchivePath,
    file: Annotated[Path, typer.Argument(help="File to write: .jsonl or .parquet.", show_default=False)],
) -> None:
    """Write codes and metadata, without images, to a file that another archive can import."""
    from diptych.archive import ArchiveStore
    from diptych.archive.exchange import export_archive
    from diptych.cli.audit_command import note
    from diptych.cli.console import progress_bar

    with progress_bar("Exporting") as progress:
        report = export_archive(ArchiveStore.open(archive), file, progress=progress)
    note(archive, "export", [])
    print(f"{file}: {report.volumes} volumes. Codes are patient data: guard this file like images.")
    _finish(report.problems, "damaged volumes were not exported")


@app.command(name="import")
def import_file(
    archive: ArchivePath,
    file: Annotated[Path, typer.Argument(help="An export: .jsonl or .parquet.", show_default=False)],
) -> None:
    """Add the volumes of an export to an archive, which is made when there is none."""
    from diptych.archive import ArchiveWriter
    from diptych.archive.exchange import import_archive, read_export_model
    from diptych.cli.audit_command import note
    from diptych.cli.console import progress_bar

    model = read_export_model(file)
    with ArchiveWriter.open(archive, model=model) as writer, progress_bar("Importing") as progress:
        report = import_archive(writer, file, progress=progress)
    note(archive, "change", [*report.added, *report.replaced])
    print(f"{archive}: {len(report.added)} added, {len(report.replaced)} replaced, {len(report.unchanged)} unchanged")
    _finish(report.problems, "the named volumes were not imported")


@app.command()
def backup(
    archive: ArchivePath,
    out: Annotated[Path, typer.Argument(metavar="BACKUP", help="Folder to make.", show_default=False)],
) -> None:
    """Copy one consistent version with its images, users and audit log, while others go on writing."""
    from diptych.archive.backup import back_up
    from diptych.cli.audit_command import note
    from diptych.cli.console import progress_bar

    note(archive, "export", [])
    with progress_bar("Backing up") as progress:
        report = back_up(archive, out, progress=progress)
    print(f"{out}: {report.volumes} volumes, {report.files} files, {report.bytes / 1e6:.1f} MB. Guard it like images.")


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup's folder.", show_default=False)],
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="Folder to make.", show_default=False)],
) -> None:
    """Make an archive from a backup; every file is checked before anything is written."""
    from diptych.archive.backup import restore as run
    from diptych.cli.audit_command import note
    from diptych.cli.console import progress_bar

    with progress_bar("Restoring") as progress:
        report = run(source, archive, progress=progress)
    note(archive, "change", [])
    size = f"{report.files} files, {report.bytes / 1e6:.1f} MB"
    print(f"{archive}: {report.volumes} volumes, {size}, version {report.version}")


def _identity(network: FeatureDecomposingNetwork) -> ModelIdentity:
    from diptych.archive.encoding import NetworkEncoder

    return NetworkEncoder(network).identity


def _load_encoder(model: Path) -> NetworkEncoder:
    from diptych.archive.encoding import NetworkEncoder
    from diptych.model import load_model

    return NetworkEncoder(load_model(model))


def _line(row: dict[str, Any]) -> str:
    known = [row["sex"], f"{row['age']:g} y" if row["age"] is not None else None, row["study_date"], row["source"]]
    words = [str(word) for word in (*known, *row["tags"]) if word]
    line = f"{row['volume_key']}  {row['slices']} slices  {', '.join(words)}".rstrip()
    return "".join(letter if letter.isprintable() else "?" for letter in line)  # no escapes for a terminal


def _finish(problems: tuple[str, ...] | list[str], consequence: str) -> None:
    """Show what is wrong and leave with the exit code of a damaged archive."""
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    if problems:
        raise ArchiveError(f"{len(problems)} problems; {consequence}")
