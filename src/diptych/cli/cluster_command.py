"""`diptych cluster …`: one archive in several parts, for more machines than one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.help_types import complete_model
from diptych.errors import ArchiveError, UsageError

if TYPE_CHECKING:
    from diptych.retrieval import Archive

CLUSTER = typer.Option(
    "--cluster",
    metavar="auto|ADDRESS",
    help="Let a Ray cluster work on a sharded archive: auto takes the one on this machine, or starts one on its "
    "loopback; ADDRESS is host:port of one on a private network, whose ports let anyone run code.",
    show_default="in this process",
)


def open_any(path: Path, *, model: Path | None, cluster: str | None, replicas: int = 1) -> Archive:
    """An archive, or a sharded one, in this process or on a cluster."""
    from diptych.cluster.shard_manifest import is_sharded

    if is_sharded(path):
        from diptych.cluster.sharded_archive import ShardedArchive

        if cluster is None:
            return ShardedArchive.open(path, model=model)
        from diptych.cluster.ray_shards import RayOptions, ray_calls

        return ShardedArchive.open(path, model=model, calls=ray_calls(cluster, RayOptions(replicas=replicas)))
    if cluster is not None:
        raise UsageError(f"--cluster: {path} is not sharded; split it with 'diptych cluster split {path} --shards N'")
    from diptych.retrieval import Archive

    return Archive.open(path, model=model)


app = typer.Typer(
    name="cluster",
    help="Split an archive into shards for several machines; merge, count, check and move them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ShardedPath = Annotated[
    Path, typer.Argument(metavar="SHARDED", help="The folder of a sharded archive.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command()
def split(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="An archive, sharded or not.", show_default=False)],
    shards: Annotated[int, typer.Option(help="How many parts.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The new folder.", show_default="ARCHIVE-sharded beside the archive")
    ] = None,
    json_output: Json = False,
) -> None:
    """Spread an archive over several new ones, by patient; the old one stays as it is.

    Each part is an ordinary archive, and all studies of a patient lie in one. 'diptych index', 'search' and 'serve'
    take the new folder as they take an archive, with --cluster on as many machines as you have.
    """
    from diptych.cli.console import print_json, progress_bar
    from diptych.cluster.resharding import split_archive

    target = out or archive.with_name(f"{archive.resolve().name}-sharded")
    with progress_bar("Splitting") as progress:
        done = split_archive(archive, target, shards=shards, progress=progress)
    if json_output:
        print_json({"archive": target, "shards": done.shards, "volumes": done.volumes, "slices": done.slices})
    else:
        print(f"{target}: {done.volumes} volumes, {done.slices} slices in {done.shards} shards")


@app.command()
def merge(
    sharded: ShardedPath,
    out: Annotated[Path, typer.Option(help="The new archive.", show_default=False)],
    json_output: Json = False,
) -> None:
    """Put all shards together into one new ordinary archive; the shards stay as they are."""
    from diptych.cli.console import print_json, progress_bar
    from diptych.cluster.resharding import merge_archive

    with progress_bar("Merging") as progress:
        done = merge_archive(sharded, out, progress=progress)
    if json_output:
        print_json({"archive": out, "shards": done.shards, "volumes": done.volumes, "slices": done.slices})
    else:
        print(f"{out}: {done.volumes} volumes, {done.slices} slices of {done.shards} shards")


@app.command()
def stat(sharded: ShardedPath, json_output: Json = False) -> None:
    """Tell what each shard holds, and all of them together."""
    from dataclasses import asdict

    from diptych.cli.console import print_json
    from diptych.cluster.resharding import stat_shards

    found = stat_shards(sharded)
    problems = [f"{shard.name}: {problem}" for shard, one in found for problem in one.problems]
    if json_output:
        print_json([{"name": shard.name, **asdict(one)} for shard, one in found])
    else:
        for shard, one in found:
            size = (one.database_bytes + one.segment_bytes) / 1e6
            print(
                f"{shard.name}  {one.volumes} volumes of {one.patients} patients, {one.slices} slices, "
                f"{size:.1f} MB codes, {one.copies_bytes / 1e6:.1f} MB images  {shard.path}"
            )
        volumes, patients, slices = (sum(getattr(one, name) for _, one in found) for name in _COUNTED)
        print(f"{sharded}: {len(found)} shards, {volumes} volumes of {patients} patients, {slices} slices")
        print(f"model     {found[0][1].model.describe()}")
    _finish(problems, "damaged parts are left out of every search; 'diptych cluster verify' tells all")


_COUNTED = ("volumes", "patients", "slices")


@app.command()
def verify(
    sharded: ShardedPath,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Encode a sample of each shard again with this model and compare the ids.",
            show_default=False,
            autocompletion=complete_model,
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Check every shard as 'diptych archive verify' does, and that every patient is in its own shard and no other."""
    from diptych.cli.console import print_json, progress_bar
    from diptych.cluster.resharding import verify_shards

    encoder = None
    if model is not None:
        from diptych.archive.encoding import NetworkEncoder
        from diptych.model import load_model
        from diptych.model.shipped import named_model

        encoder = NetworkEncoder(load_model(named_model(model)))
    with progress_bar("Verifying") as progress:
        problems = verify_shards(sharded, encoder=encoder, progress=progress)
    if json_output:
        print_json({"archive": sharded, "problems": problems})
    elif not problems:
        print(f"{sharded}: all shards are whole, and every patient is in its place")
    _finish(list(problems), "see each line for the way out")


@app.command()
def move(
    sharded: ShardedPath,
    shard: Annotated[str, typer.Argument(metavar="SHARD", help="Name of the shard.", show_default=False)],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where it shall lie.", show_default=False)],
    moved: Annotated[bool, typer.Option("--moved", help="It lies there already: only tell the manifest.")] = False,
) -> None:
    """Take a shard to another folder, such as another disk: copied, checked, then deleted where it was."""
    from diptych.cluster.resharding import move_shard

    found = move_shard(sharded, shard, folder, moved=moved)
    print(f"{sharded}: {found.name} is at {found.path}")


def _finish(problems: list[str], advice: str) -> None:
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    if problems:
        raise ArchiveError(f"{len(problems)} problems; {advice}")
