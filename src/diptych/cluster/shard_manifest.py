"""`Manifest`: which archives are the shards of one, which model made them all, and which patients go where.

    SHARDED/cluster.json         the manifest
    SHARDED/shard-00/ …          the shards; each is an ordinary archive, and may lie anywhere else, too

A patient belongs to the shard that the hash of the patient key says, so that all studies of a person lie together and
nobody has to be asked. Knows files and hashes; nothing about searching or Ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from diptych.archive import ArchiveStore, ModelIdentity
from diptych.archive.schema import DATABASE
from diptych.errors import ArchiveError, ArchiveMismatchError, UsageError
from diptych.files import parse_json, read_regular, write_json

MANIFEST, FORMAT, VERSION = "cluster.json", "diptych-cluster", 1
MOST_SHARDS = 4096
MAX_MANIFEST = 1 << 22


@dataclass(frozen=True)
class Shard:
    """One part of a sharded archive."""

    name: str
    path: Path
    """Its folder: absolute, or as it is found from where the command runs."""


@dataclass(frozen=True)
class Manifest:
    """What `cluster.json` says."""

    folder: Path
    model: ModelIdentity
    shards: tuple[Shard, ...]

    def owner(self, patient_key: str) -> int:
        """The number of the shard that a patient belongs to."""
        return owner_of(patient_key, len(self.shards))

    def save(self) -> None:
        """Write the manifest, all or nothing."""
        shards = [{"name": shard.name, "path": _stored_path(self.folder, shard.path)} for shard in self.shards]
        values = {"format": FORMAT, "version": VERSION, "model": self.model.to_json(), "shards": shards}
        write_json(self.folder / MANIFEST, values)

    def stores(self) -> list[ArchiveStore]:
        """Every shard, opened; one that is not there, or of another model, is refused."""
        return [self.store(number) for number in range(len(self.shards))]

    def store(self, number: int) -> ArchiveStore:
        """One shard, opened."""
        shard = self.shards[number]
        require_shard(self.folder, shard)
        store = ArchiveStore.open(shard.path)
        if store.model != self.model:
            raise ArchiveMismatchError(
                f"{shard.path}: was made by model {store.model.describe()}, but all shards of {self.folder} by "
                f"{self.model.describe()}; index its patients again, or take it out of {MANIFEST}"
            )
        return store


def require_shard(folder: Path, shard: Shard) -> None:
    """Refuse a shard whose folder is not there."""
    if not (shard.path / DATABASE).is_file():
        raise ArchiveError(
            f"{folder / MANIFEST}: names {shard.name} at {shard.path}, where no archive is; bring it back, or tell "
            f"where it is with 'diptych cluster move {folder} {shard.name} FOLDER --moved'"
        )


def owner_of(patient_key: str, shards: int) -> int:
    """The shard of a patient among so many.

    >>> owner_of("BraTS-GLI-00001", 8) == owner_of("BraTS-GLI-00001", 8)
    True
    """
    return int.from_bytes(blake2b(patient_key.encode(), digest_size=8).digest()) % shards


def is_sharded(path: Path) -> bool:
    """Whether a folder is a sharded archive."""
    return (path / MANIFEST).is_file()


def read_manifest(folder: Path | str) -> Manifest:
    """The manifest of a sharded archive; whatever is wrong with it is one clear line."""
    folder = Path(folder)
    file = folder / MANIFEST
    if not file.is_file():
        what = "is one archive, not a sharded one" if (folder / DATABASE).is_file() else "is no sharded archive"
        raise ArchiveError(f"{folder}: {what}; make one with 'diptych cluster split ARCHIVE --shards N'")
    try:
        values = parse_json(read_regular(file, limit=MAX_MANIFEST))
        if values["format"] != FORMAT:
            raise ValueError("another format")
        if values["version"] != VERSION:
            raise ArchiveError(
                f"{file}: has version {values['version']}, this Diptych reads {VERSION}; use the Diptych that wrote it"
            )
        model = ModelIdentity.from_json(values["model"])
        model.check()
        shards = tuple(_shard(folder, one) for one in values["shards"])
    except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError, UsageError, RecursionError) as error:
        raise ArchiveError(f"{file}: cannot be read as a manifest ({error}); restore a copy of it") from None
    _check_shards(file, shards)
    return Manifest(folder, model, shards)


def shard_names(count: int) -> list[str]:
    """Names of so many shards.

    >>> shard_names(2)
    ['shard-00', 'shard-01']
    """
    if not 1 <= count <= MOST_SHARDS:
        raise UsageError(f"--shards {count}: give a number from 1 to {MOST_SHARDS}")
    return [f"shard-{number:02d}" for number in range(count)]


def new_manifest(folder: Path, model: ModelIdentity, count: int) -> Manifest:
    """A manifest of shards that lie in the folder itself; not yet written."""
    return Manifest(folder, model, tuple(Shard(name, folder / name) for name in shard_names(count)))


def require_disjoint(manifest: Manifest, patients: Sequence[Iterable[str]]) -> None:
    """Refuse a patient in two shards: an answer would count it twice, or miss half of its studies."""
    seen: dict[str, int] = {}
    for number, keys in enumerate(patients):
        for key in keys:
            other = seen.setdefault(key, number)
            if other != number:
                one, two = (manifest.shards[place].name for place in (other, number))
                rightful = manifest.shards[manifest.owner(key)].name
                raise ArchiveError(
                    f"{manifest.folder}: patient {key} is in {one} and in {two}; it belongs to {rightful}: take it "
                    "out of the other with 'diptych archive remove'"
                )


def _shard(folder: Path, values: dict[str, Any]) -> Shard:
    name, path = values["name"], values["path"]
    if not (isinstance(name, str) and isinstance(path, str) and name.isprintable() and name and path):
        raise ValueError("a shard needs a name and a path")
    return Shard(name, folder / path)


def _check_shards(file: Path, shards: Sequence[Shard]) -> None:
    if not 1 <= len(shards) <= MOST_SHARDS:
        raise ArchiveError(f"{file}: names {len(shards)} shards; 1 to {MOST_SHARDS} can be")
    for what, values in (("name", [one.name for one in shards]), ("folder", [one.path.resolve() for one in shards])):
        twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
        if twice is not None:
            raise ArchiveError(f"{file}: two shards have the {what} {twice}; every shard needs its own")


def _stored_path(folder: Path, path: Path) -> str:
    """Relative where the shard lies in the folder, so that the whole can be moved; absolute elsewhere."""
    own, other = folder.resolve(), path.resolve()
    return str(other.relative_to(own)) if other.is_relative_to(own) else str(other)
