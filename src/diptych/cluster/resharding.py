"""Split an archive into shards, merge shards into one, move a shard, count and verify them. Needs no cluster.

What is made appears whole or not at all, and what it is made from stays as it is. Codes, label maps and copies of
images go along, and the secret by which dates were shifted, so that indexing the same sources again changes nothing.
Knows archives and manifests; nothing about models or searching.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from diptych.archive import ArchiveStat, ArchiveStore, ArchiveWriter, VolumeInfo
from diptych.archive.copies import copy_path
from diptych.archive.encoding import Encoder
from diptych.archive.integrity import verify_archive
from diptych.archive.schema import explain
from diptych.cluster.shard_manifest import (
    Shard,
    is_sharded,
    new_manifest,
    owner_of,
    read_manifest,
    require_disjoint,
)
from diptych.errors import ArchiveError, UsageError
from diptych.files import FolderLock, replacing_folder
from diptych.progress import Progress, silent

SECRET, USERS = "date-shift.key", "users.json"
LOCK = "cluster.lock"


@dataclass(frozen=True)
class Moved:
    """How much went from one place to another."""

    volumes: int
    slices: int
    shards: int
    path: Path


def split_archive(source: Path, out: Path, *, shards: int, progress: Progress = silent) -> Moved:
    """The volumes of an archive, or of a sharded one, spread over new shards."""
    stores = _stores(source)
    _require_new(out)
    with explain(out, writing=True), replacing_folder(out, private=True) as part:
        manifest = new_manifest(part, stores[0].model, shards)
        with ExitStack() as stack:
            writers = [stack.enter_context(ArchiveWriter.open(s.path, model=manifest.model)) for s in manifest.shards]
            moved = _copy_volumes(stores, writers, progress)
        _copy_beside(source, [store.path for store in stores], part, [shard.path for shard in manifest.shards])
        manifest.save()
    return replace(moved, path=out)


def merge_archive(source: Path, out: Path, *, progress: Progress = silent) -> Moved:
    """All shards as one new archive."""
    manifest = read_manifest(source)
    stores = manifest.stores()
    require_disjoint(manifest, [_patients(store) for store in stores])
    _require_new(out)
    with explain(out, writing=True), replacing_folder(out, private=True) as part:
        with ArchiveWriter.open(part, model=manifest.model) as writer:
            moved = _copy_volumes(stores, [writer], progress)
        _copy_beside(source, [store.path for store in stores], part, [part])
    return replace(moved, path=out, shards=len(stores))


def move_shard(folder: Path, name: str, target: Path, *, moved: bool = False) -> Shard:
    """Take a shard to another folder, or say where it was taken to (`moved`); the manifest then names the new place."""
    manifest = read_manifest(folder)
    number = next((place for place, shard in enumerate(manifest.shards) if shard.name == name), None)
    if number is None:
        raise UsageError(f"{name}: {folder} has the shards {', '.join(shard.name for shard in manifest.shards)}")
    old, new = manifest.shards[number], Shard(name, target.absolute())
    shards = (*manifest.shards[:number], new, *manifest.shards[number + 1 :])
    changed = replace(manifest, shards=shards)
    with explain(folder, writing=True):
        lock = FolderLock(folder / LOCK)
        if (holder := lock.acquire()) is not None:
            raise ArchiveError(f"{folder}: process {holder} is changing its shards; wait until it is done")
        try:
            if not moved:
                _copy_whole(manifest.store(number), target)
            changed.store(number)
            changed.save()
            if not moved:
                shutil.rmtree(old.path)  # only now that the manifest no longer names it
        finally:
            lock.release()
    return new


def stat_shards(folder: Path) -> list[tuple[Shard, ArchiveStat]]:
    """Every shard in numbers."""
    manifest = read_manifest(folder)
    return [(shard, store.stat()) for shard, store in zip(manifest.shards, manifest.stores(), strict=True)]


def verify_shards(folder: Path, *, encoder: Encoder | None = None, progress: Progress = silent) -> tuple[str, ...]:
    """Everything that is wrong: with single shards, with who lies where, or with the manifest; one sentence each."""
    manifest = read_manifest(folder)
    problems: list[str] = []
    patients: list[set[str]] = []
    for done, shard in enumerate(manifest.shards, start=1):
        try:
            store = manifest.store(done - 1)
            found = verify_archive(store, encoder=encoder)
            problems += [f"{shard.name}: {problem}" for problem in found.problems]
            patients.append(_patients(store))
            strays = sorted(key for key in patients[-1] if manifest.owner(key) != done - 1)
            problems += [
                f"{shard.name}: patient {key} belongs to {manifest.shards[manifest.owner(key)].name}; "
                "'diptych cluster split' into a new folder puts everyone in place"
                for key in strays
            ]
        except ArchiveError as error:
            problems.append(f"{shard.name}: {error}")
            patients.append(set())
        progress(done, len(manifest.shards), shard.name)
    try:
        require_disjoint(manifest, patients)
    except ArchiveError as error:
        problems.append(str(error))
    return tuple(problems)


def _stores(source: Path) -> list[ArchiveStore]:
    if not is_sharded(source):
        return [ArchiveStore.open(source)]
    manifest = read_manifest(source)
    stores = manifest.stores()
    require_disjoint(manifest, [_patients(store) for store in stores])
    return stores


def _patients(store: ArchiveStore) -> set[str]:
    return {info.patient_key for info in store.listing().volumes}


def _require_new(out: Path) -> None:
    if out.exists():
        raise ArchiveError(f"{out}: is there already; name a new folder, nothing is overwritten")


def _copy_volumes(stores: Sequence[ArchiveStore], writers: Sequence[ArchiveWriter], progress: Progress) -> Moved:
    """Each volume of the stores into the writer that owns its patient; damage stops it, for it would be lost."""
    listings = [store.listing() for store in stores]
    total, done, slices = sum(len(listing.volumes) for listing in listings), 0, 0
    for store, listing in zip(stores, listings, strict=True):
        if listing.problems:
            raise ArchiveError(f"{store.path}: {listing.problems[0]}; mend it first ('diptych archive repair')")
        for info in listing.volumes:
            found, problems = store.stored([info.volume_key])
            if problems:
                raise ArchiveError(f"{store.path}: {problems[0]}; mend it first ('diptych archive repair')")
            writer = writers[owner_of(info.patient_key, len(writers))]
            _copy_images(store.path, writer.path, info)
            writer.add(found[0].record, found[0].labels)
            done, slices = done + 1, slices + found[0].record.slice_count
            progress(done, total, info.volume_key)
    return Moved(done, slices, len(writers), Path())


def _copy_images(source: Path, target: Path, info: VolumeInfo) -> None:
    for file in info.files:
        if file.is_copy:
            path = target / file.path
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copyfile(copy_path(source, file), path)
            path.chmod(0o600)


def _copy_beside(source: Path, stores: Sequence[Path], out: Path, targets: Sequence[Path]) -> None:
    """Users, and the secret of shifted dates where all have the same; with several, new dates get a new one."""
    secrets = {(store / SECRET).read_bytes() for store in stores if (store / SECRET).is_file()}
    if len(secrets) == 1:
        for target in {*targets, out}:
            _write_private(target / SECRET, next(iter(secrets)))
    if (source / USERS).is_file():
        _write_private(out / USERS, (source / USERS).read_bytes())


def _write_private(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def _copy_whole(store: ArchiveStore, target: Path) -> None:
    """An archive as it is, into a new folder, while nobody writes to it."""
    _require_new(target)
    with ArchiveWriter.open(store.path) as writer:
        writer.compact()
        with replacing_folder(target, private=True) as part:
            ignored = shutil.ignore_patterns("cache", "*.lock", ".part-*", "*-wal", "*-shm")
            shutil.copytree(store.path, part, dirs_exist_ok=True, ignore=ignored)
            problems = verify_archive(ArchiveStore.open(part)).problems
            if problems:
                raise ArchiveError(f"{store.path}: its copy at {target} is not whole ({problems[0]}); nothing changed")
