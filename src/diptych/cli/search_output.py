"""What `diptych search` prints and draws. Knows answers; nothing about how they are found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diptych.errors import ArchiveError, ClusterError, InputError, UsageError

if TYPE_CHECKING:
    from diptych.archive import VolumeRecord
    from diptych.retrieval import Answer, Archive, Question
    from diptych.retrieval.patient_search import PatientMatch
    from diptych.retrieval.trust import Trust
    from diptych.retrieval.volume_search import VolumeMatch


NOTICE = "Research use only, not a medical device."


def check_figure(figure: Path | None, *, of_volumes: bool) -> None:
    """Refuse a picture that cannot be made, before any work is done."""
    if figure is not None and figure.suffix.lower() != ".png":
        raise UsageError(f"--figure {figure}: pictures are written as PNG; give a name that ends in .png")
    if figure is not None and of_volumes:
        raise UsageError("--figure shows slices; leave it out with --find volumes")


def show_slices(archive: Archive, answer: Answer, figure: Path | None, json_output: bool) -> None:
    """Print an answer about a slice, and draw it where that is asked for."""
    from diptych.cli.console import print_json

    trust = archive.trust(answer.subject)
    if json_output:
        print_json(_report(archive, answer, trust))
    else:
        _print_slices(answer, trust)
    if figure is not None:
        try:
            archive.figure(answer).save(figure, optimize=True)
        except OSError as error:
            raise InputError(f"{figure}: cannot be written ({error.strerror or error}); choose another place") from None
        if not json_output:
            print(f"drawn to {figure}")


def _report(archive: Archive, answer: Answer, trust: Trust) -> dict[str, Any]:
    subject, question = answer.subject, answer.question
    asked = {name: value for name, value in vars(question).items() if name != "region"}
    return {
        "notice": NOTICE,
        "archive": str(archive.store.path),
        "version": answer.version,
        "query": {
            "name": subject.name,
            "slice": subject.z_index,
            "position": subject.position,
            "normal_ids": subject.normal_ids.tolist(),
            "abnormal_ids": subject.abnormal_ids.tolist(),
        },
        "question": {**asked, "region": None if question.region is None else question.region.tolist()},
        "trust": trust.to_json(),
        "matches": [match.to_json() for match in answer.matches],
        "problems": list(archive.problems),
        "missing": list(answer.missing),
    }


def _print_slices(answer: Answer, trust: Trust) -> None:
    from diptych.search.query import panel_word

    question = answer.question
    print(f"{answer.subject.name}, by {panel_word(question.by)} ({question.metric})")
    for place, match in enumerate(answer.matches, start=1):
        panels = [f"{panel.distance:.4g}" if panel else "-" for panel in (match.normal, match.abnormal)]
        print(
            f"{place:3}  {match.volume.volume_key}  slice {match.z_index}  distance {match.distance:.4g}  "
            f"(anatomy {panels[0]}, lesion {panels[1]}){_placed(match.placed)}"
        )
        if match.worth is not None:
            print(f"     {match.worth}")
    if answer.matches:
        print("Distances have no unit: smaller is nearer, 0 is the same.")
    else:
        print("no match: nothing in the archive fulfils the conditions")
    for warning in trust.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _placed(placed: Any) -> str:
    if placed is None:
        return ""
    side = "mirrored, " if placed.mirrored else ""
    return f"  {side}moved {placed.rows:+d} rows, {placed.columns:+d} columns"


def _whole_answer(
    archive: Archive,
    record: VolumeRecord,
    matches: tuple[VolumeMatch, ...] | tuple[PatientMatch, ...],
    missing: Sequence[str],
) -> dict[str, Any]:
    """What is like a whole volume or patient, for JSON."""
    return {
        "notice": NOTICE,
        "archive": str(archive.store.path),
        "version": archive.catalogue.version,
        "query": {"name": record.info.volume_key, "slices": record.slice_count},
        "matches": [match.to_json() for match in matches],
        "problems": list(archive.problems),
        "missing": list(missing),
    }


def show_volumes(
    archive: Archive,
    record: VolumeRecord,
    question: Question,
    matches: tuple[VolumeMatch, ...],
    json_output: bool,
    missing: Sequence[str] = (),
) -> None:
    """Print the volumes most like a whole volume."""
    from diptych.cli.console import print_json

    if json_output:
        print_json(_whole_answer(archive, record, matches, missing))
    else:
        _print_volumes(record.info.volume_key, question, matches)


def show_patients(
    archive: Archive,
    record: VolumeRecord,
    question: Question,
    matches: tuple[PatientMatch, ...],
    json_output: bool,
    missing: Sequence[str] = (),
) -> None:
    """Print the patients most like a whole one."""
    from diptych.cli.console import print_json
    from diptych.search.query import panel_word

    if json_output:
        print_json(_whole_answer(archive, record, matches, missing))
        return
    print(f"{record.info.volume_key}, the whole patient, by {panel_word(question.by)} (overlap in three dimensions)")
    for place, match in enumerate(matches, start=1):
        panels = ", ".join(f"{panel_word(panel)} {1 - distance:.0%}" for panel, distance in match.panels.items())
        print(
            f"{place:3}  {match.volume.volume_key}  agreement {panels}  "
            f"best slice {match.z_index} (query's {match.query_z_index}){', mirrored' if match.mirrored else ''}"
        )


def _print_volumes(name: str, question: Question, matches: tuple[VolumeMatch, ...]) -> None:
    from diptych.search.query import panel_word

    print(f"{name}, all slices, by {panel_word(question.by)} ({question.metric})")
    for place, match in enumerate(matches, start=1):
        print(
            f"{place:3}  {match.volume.volume_key}  distance {match.distance:.4g}  "
            f"(normal {match.normal:.4g}, abnormal {match.abnormal:.4g})"
        )


def finish(problems: Sequence[str], missing: Sequence[str] = ()) -> None:
    """Show what is damaged or did not answer, and leave with the exit code for that."""
    for part in missing:
        print(f"warning: {part}", file=sys.stderr)
    if missing:
        raise ClusterError("this answer is partial: what did not answer may hold nearer matches; ask again")
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    if problems:
        raise ArchiveError(f"{len(problems)} problems; damaged volumes were left out of this answer")
