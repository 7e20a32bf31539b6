"""Which files make up which patient: BraTS folders of every release from 2017 to 2024, BIDS, or files one by one.

Knows file names only; it opens nothing (`nifti.py` does) and builds no path from what a file contains.

| panel    | names (before .nii or .nii.gz, any case)      |
|----------|-----------------------------------------------|
| t1       | t1, t1n, t1w                                  |
| t1gd     | t1ce, t1c, t1gd                               |
| t2       | t2, t2w                                       |
| flair    | flair, t2f                                    |
| lesion   | seg, segm, segmentation, label, labels, lesion, mask, roi (not a brain mask) |
| anatomy  | anatomy                                       |

A name stands alone (`CASE/t1.nii.gz`: the folder gives the patient key) or behind the key and `_` or `-`
(`CASE_t1.nii.gz`). Names after BIDS are in `bids.py`; such a person's files may lie in several folders. A phantom's
healthy twin carries `twin-` before the channel (`CASE-twin-t1n.nii.gz`).
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from diptych.description import Description
from diptych.errors import LayoutError, MissingChannelError
from diptych.volumes.bids import is_derived, parse_name, person_of
from diptych.volumes.volume import CHANNELS

MASKS = ("lesion", "mask", "roi")
"""Names that also other things than lesions carry: they belong to the patient whose key they spell, and to no other."""
NAMES = {
    "t1": ("t1n", "t1", "t1w"),
    "t1gd": ("t1c", "t1ce", "t1gd"),
    "t2": ("t2w", "t2"),
    "flair": ("t2f", "flair"),
    "lesion": ("seg", "segm", "segmentation", "label", "labels", *MASKS),
    "anatomy": ("anatomy",),
}
_PANEL_OF = {name: panel for panel, names in NAMES.items() for name in names}
_FILE_NAME = re.compile(
    rf"(?:(?P<key>.+?)[_-])??(?P<twin>twin[_-])?(?P<name>{'|'.join(_PANEL_OF)})\.nii(?:\.gz)?",
    re.IGNORECASE | re.DOTALL,
)
_SAFE_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class PatientFiles:
    """The files of one patient at one time point; nothing has been opened yet."""

    patient_key: str
    channels: dict[str, Path]
    """Channel name to file, a subset of `CHANNELS` in that order."""
    lesion: Path | None = None
    anatomy: Path | None = None
    twin: dict[str, Path] = field(default_factory=dict)
    """A phantom's healthy twin, channel name to file; empty for real patients."""

    def __post_init__(self) -> None:
        _check_key(self.patient_key)
        for channel in (*self.channels, *self.twin):
            _check_channel(channel)
        ordered = {channel: self.channels[channel] for channel in CHANNELS if channel in self.channels}
        object.__setattr__(self, "channels", ordered)

    def only(self, channels: tuple[str, ...]) -> PatientFiles:
        """The same patient without the files of any other channel; labels stay."""
        return replace(
            self,
            channels={name: path for name, path in self.channels.items() if name in channels},
            twin={name: path for name, path in self.twin.items() if name in channels},
        )


@dataclass(frozen=True)
class _NamedFile:
    path: Path
    patient_key: str
    panel: str
    twin: bool
    stripped: bool = False


def find_patients(source: Path | str) -> list[PatientFiles]:
    """Find every patient in a folder and the folders below it, in the order of their keys.

    Raises:
        LayoutError: no patient is there, two files claim the same channel, two folders the same patient key,
            or a key holds characters outside letters, digits, `.`, `_` and `-`.
    """
    source = Path(source)
    if not source.is_dir():
        raise LayoutError(f"{one_line(source)}: not a folder; give the folder that holds the patients' files")
    if _is_archive(source):
        raise LayoutError(
            f"{one_line(source)}: is an archive, not a folder of patients; give the folder it was made from"
        )
    persons: list[_NamedFile] = []
    patients = [patient for folder in _folders(source) for patient in _patients_in(folder, persons)]
    patients += _bids_patients(persons, source)
    if not patients:
        looked_for = ", ".join(f"*{name}.nii[.gz]" for channel in CHANNELS for name in NAMES[channel])
        raise LayoutError(f"{one_line(source)}: no patient found; file names looked for end in {looked_for}")
    _check_unique(patients)
    return sorted(patients, key=lambda patient: patient.patient_key)


def patient_from_files(
    *,
    t1: Path | str | None = None,
    t1gd: Path | str | None = None,
    t2: Path | str | None = None,
    flair: Path | str | None = None,
    lesion: Path | str | None = None,
    anatomy: Path | str | None = None,
    patient_key: str | None = None,
) -> PatientFiles:
    """Make one patient of explicit files, any subset of the channels.

    Without `patient_key`, the key comes from the name of the first channel's file, as in a BraTS folder.
    """
    given = dict(zip(CHANNELS, (t1, t1gd, t2, flair), strict=True))
    channels = {channel: Path(path) for channel, path in given.items() if path is not None}
    if not channels:
        raise LayoutError(f"no image given; name at least one of the channels {', '.join(CHANNELS)}")
    seen: dict[Path, str] = {}
    for channel, path in channels.items():
        if path in seen:
            raise LayoutError(
                f"{one_line(path)}: given both as {seen[path]} and as {channel}; each channel needs its own file"
            )
        seen[path] = channel
    return PatientFiles(
        patient_key=patient_key if patient_key is not None else _key_from(next(iter(channels.values()))),
        channels=channels,
        lesion=None if lesion is None else Path(lesion),
        anatomy=None if anatomy is None else Path(anatomy),
    )


def require_channels(files: PatientFiles, required: tuple[str, ...]) -> None:
    """Raise `MissingChannelError` for the first required channel that the patient lacks."""
    for channel in required:
        _check_channel(channel)
        if channel not in files.channels:
            folder = next(iter(files.channels.values())).parent if files.channels else Path()
            looked_for = ", ".join(f"{files.patient_key}-{name}.nii[.gz]" for name in NAMES[channel])
            raise MissingChannelError(
                f"{one_line(folder)}: patient {files.patient_key} has no {channel}, which is needed; "
                f"add it under one of the names {looked_for}, or use a model trained without {channel}"
            )


def require_described(files: PatientFiles, description: Description) -> None:
    """Raise `MissingChannelError` for a patient of whom too little is there to be read as described."""
    needed = description.needed(files.channels)
    if needed and description.enough:
        folder = next(iter(files.channels.values())).parent if files.channels else Path()
        raise MissingChannelError(
            f"{one_line(folder)}: patient {files.patient_key} has neither {' nor '.join(needed)}; "
            "one of them is needed, whatever else is there: add it"
        )
    require_channels(files, needed)


def split_name(path: Path) -> tuple[str, str] | None:
    """The patient key and the bare name (`t1ce`, `seg`) that a file's name spells, or None.

    >>> split_name(Path("BraTS20_Training_001_t1ce.nii.gz"))
    ('BraTS20_Training_001', 't1ce')
    """
    match = _FILE_NAME.fullmatch(path.name)
    if match is None:
        return None
    return match["key"] or path.absolute().parent.name, match["name"].lower()


def one_line(path: Path | str) -> str:
    """A path as it may stand in a one-line message: line breaks and control characters are spelled out."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(path))


def _folders(source: Path) -> Iterator[Path]:
    """Each folder once, links followed, so that a link that leads back up ends the walk instead of looping."""
    waiting, seen = [source], set()
    while waiting:
        folder = waiting.pop()
        try:
            status = folder.stat()
            children = sorted(entry.path for entry in os.scandir(folder) if _is_folder(entry))
        except OSError as error:
            raise LayoutError(
                f"{one_line(folder)}: cannot be listed ({error.strerror}); check its permissions"
            ) from None
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        yield folder
        waiting.extend(Path(child) for child in reversed(children) if not _is_archive(Path(child)))


def _is_archive(folder: Path) -> bool:
    """Archives keep copies of patients under other names, which must not be taken for patients."""
    return (folder / "archive.sqlite").is_file()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return not entry.name.startswith(".") and entry.is_dir()
    except OSError:  # a link that points at itself
        return False


def _bids_patients(files: list[_NamedFile], source: Path) -> list[PatientFiles]:
    """The persons and visits of a BIDS data set, whose files may lie in several folders."""
    original = {file.patient_key for file in files if _is_image(file) and not is_derived(file.path, source)}
    by_key: dict[str, list[_NamedFile]] = defaultdict(list)
    for file in files:
        if not (_is_image(file) and file.patient_key in original and is_derived(file.path, source)):
            by_key[file.patient_key].append(file)
    for key, own in by_key.items():  # of two images of a channel, the one that says that its skull is gone
        better = {file.panel for file in own if file.stripped and _is_image(file)}
        by_key[key] = [file for file in own if file.stripped or not _is_image(file) or file.panel not in better]
    with_images = sorted(key for key, own in by_key.items() if any(_is_image(file) for file in own))
    return [_gather(key, by_key[key]) for key in with_images]


def _patients_in(folder: Path, persons: list[_NamedFile]) -> list[PatientFiles]:
    """The patients whose files lie directly in one folder; what BIDS names goes to `persons` instead."""
    by_key: dict[str, list[_NamedFile]] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and (named := _named_file(path)) is not None:
            (persons if person_of(named.patient_key) else by_key[named.patient_key]).append(named)
    with_images = {key for key, files in by_key.items() if any(_is_image(file) for file in files)}
    if len(with_images) == 1:
        _adopt_stray_labels(by_key, next(iter(with_images)))
    return [_gather(key, by_key[key]) for key in sorted(with_images)]


def _adopt_stray_labels(by_key: dict[str, list[_NamedFile]], only_key: str) -> None:
    """Give the only patient of a folder a label file that carries another name.

    BraTS 2020 ships one: `BraTS20_Training_355/W39_1998.09.19_Segm.nii`.
    """
    own = {file.panel for file in by_key[only_key] if not file.twin}
    strays = [file for key, files in by_key.items() if key != only_key for file in files if not _is_mask(file)]
    by_key[only_key].extend(file for file in strays if not file.twin and file.panel not in own)


def _is_mask(file: _NamedFile) -> bool:
    named = split_name(file.path)
    return named is not None and named[1] in MASKS


def _is_image(file: _NamedFile) -> bool:
    return file.panel in CHANNELS and not file.twin


def _named_file(path: Path) -> _NamedFile | None:
    match = _FILE_NAME.fullmatch(path.name)
    if path.is_dir():
        return None
    if (bids := parse_name(path.name)) is not None:
        return _NamedFile(path, bids.key, bids.panel, False, bids.stripped)
    if match is None or (match["name"].lower() in MASKS and "brain" in (match["key"] or "").lower()):
        return None
    if (match["key"] or "").startswith("sub-") and match["name"].lower() in MASKS:
        return None  # a mask of another kind, of a data set whose lesions have names of their own
    key = match["key"] or path.absolute().parent.name
    return _NamedFile(path, key, _PANEL_OF[match["name"].lower()], match["twin"] is not None)


def _gather(patient_key: str, files: list[_NamedFile]) -> PatientFiles:
    images: dict[str, Path] = {}
    twin: dict[str, Path] = {}
    for file in files:
        panels = twin if file.twin else images
        if file.panel in panels:
            raise LayoutError(
                f"{one_line(file.path)}: patient {one_line(patient_key)} already has a {file.panel} file, "
                f"{one_line(panels[file.panel].name)}; keep one of the two"
            )
        panels[file.panel] = file.path
    return PatientFiles(
        patient_key=patient_key,
        channels={panel: path for panel, path in images.items() if panel in CHANNELS},
        lesion=images.get("lesion"),
        anatomy=images.get("anatomy"),
        twin={panel: path for panel, path in twin.items() if panel in CHANNELS},
    )


def _check_unique(patients: list[PatientFiles]) -> None:
    folders: dict[str, Path] = {}
    for patient in patients:
        folder = next(iter(patient.channels.values())).parent
        first = folders.setdefault(patient.patient_key.lower(), folder)
        if first != folder:
            raise LayoutError(
                f"{one_line(folder)}: patient {patient.patient_key} is also in {one_line(first)}; give one folder only"
            )


def _key_from(path: Path) -> str:
    named = split_name(path)
    return named[0] if named else re.sub(r"\.nii(\.gz)?$", "", path.name, flags=re.IGNORECASE)


def _check_channel(channel: str) -> None:
    if channel not in CHANNELS:
        raise LayoutError(f"channel {channel!r} is not known; channels are {', '.join(CHANNELS)}")


def _check_key(patient_key: str) -> None:
    if _SAFE_KEY.fullmatch(patient_key) is None:
        raise LayoutError(
            f"{one_line(patient_key)[:80]!r} cannot be a patient key; a key has 1 to 64 letters, digits, "
            "'.', '_' or '-' and starts with a letter or digit: rename the file or give patient_key"
        )
