"""`diptych pacs`: find, fetch, watch, listen, send and status, beside a server of images. Knows options only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.pacs_demo import demo
from diptych.errors import PartialFailure, UsageError

if TYPE_CHECKING:
    from threading import Event

    from diptych.pacs.incoming import Incoming, Outcome

app = typer.Typer(
    name="pacs",
    help="Take studies from a PACS, de-identified, and give results back as DICOM. Servers are those of pacs.toml.",
    no_args_is_help=True,
)

ServerName = Annotated[str, typer.Argument(metavar="SERVER", help="A server of pacs.toml.", show_default=False)]
ConfigFile = Annotated[
    Path,
    typer.Option("--config", help="The administrator's file with servers and rules.", envvar="DIPTYCH_PACS"),
]
ArchiveFolder = Annotated[
    Path, typer.Option("--archive", help="The archive; made where there is none.", show_default=False)
]
ModelFolder = Annotated[
    Path | None,
    typer.Option("--model", help="Folder of the model that encodes, or a shipped one.", show_default="the archive's"),
]
CONFIG = Path("pacs.toml")


@app.command()
def find(
    server: ServerName,
    config: ConfigFile = CONFIG,
    patient_id: Annotated[str, typer.Option(help="PatientID, whole.", show_default=False)] = "",
    since: Annotated[str, typer.Option(help="First day, YYYY-MM-DD.", show_default=False)] = "",
    until: Annotated[str, typer.Option(help="Last day, YYYY-MM-DD.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, help="Studies shown at most.")] = 100,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List MR studies of a server: StudyInstanceUID, date, images, description.

    What is printed is the hospital's own: it names studies, not patients.
    """
    from dataclasses import asdict
    from itertools import islice

    from diptych.cli.console import print_json
    from diptych.pacs.remote import Wanted, connect
    from diptych.pacs.servers import read_config

    wanted = Wanted(patient_id=patient_id, since=_day("--since", since), until=_day("--until", until))
    found = list(islice(connect(read_config(config).server(server)).studies(wanted), limit + 1))
    shown = found[:limit]
    if json_output:
        print_json([{name: value for name, value in asdict(one).items() if name != "patient_id"} for one in shown])
        return
    for one in shown:
        print(f"{one.uid}  {one.date or '-':8}  {one.instances or '?':>5}  {one.description}")
    more = f"; more than --limit {limit}" if len(found) > limit else ""
    print(f"{len(shown)} studies{more}", file=sys.stderr)


@app.command()
def fetch(
    server: ServerName,
    studies: Annotated[
        list[str],
        typer.Argument(metavar="STUDY...", help="StudyInstanceUIDs, as find prints them.", show_default=False),
    ],
    archive: ArchiveFolder,
    config: ConfigFile = CONFIG,
    model: ModelFolder = None,
    priors: Annotated[
        int | None,
        typer.Option(min=0, help="Older studies of the same patient to fetch as well.", show_default="rules"),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what is in the archive, or was refused.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Fetch studies, de-identify them at the door, take them in and index them; each at most once.

    Intake takes about a minute of processor time per study. One that fails is reported and the others go on; the exit
    code is then 4. Research use only, not a medical device.
    """
    from diptych.cli.console import progress_bar
    from diptych.pacs.fetch import fetch_study, prior_uids
    from diptych.pacs.remote import connect

    incoming = _door(archive, config, model)
    remote = connect(incoming.config.server(server))
    most = incoming.config.rules.priors if priors is None else priors
    uids = list(dict.fromkeys(uid for one in studies for uid in (one, *prior_uids(remote, one, incoming, most=most))))
    outcomes = []
    for uid in uids:
        with progress_bar("Study") as progress:
            outcomes.append(fetch_study(remote, uid, incoming, again=again, progress=progress))
    _report(outcomes, json_output)


@app.command()
def watch(
    server: ServerName,
    archive: ArchiveFolder,
    config: ConfigFile = CONFIG,
    model: ModelFolder = None,
    once: Annotated[bool, typer.Option("--once", help="End when nothing comes by itself any more.")] = False,
) -> None:
    """Follow a server: new studies that the rules want come in when nothing is added to them any more, each once.

    Runs until it is ended (Ctrl-C); a kill at any point is made good at the next start. Research use only, not a
    medical device.
    """
    from diptych.errors import PacsError
    from diptych.pacs.remote import connect
    from diptych.pacs.watch import Watcher

    incoming = _door(archive, config, model)
    complaints: list[str] = []

    def complain(line: str) -> None:
        complaints.append(line)
        print(line, file=sys.stderr, flush=True)

    watcher = Watcher(connect(incoming.config.server(server)), incoming, report=print_outcome, complain=complain)
    stop = _until_ended()
    print(f"watching {server}; Ctrl-C ends it", file=sys.stderr, flush=True)
    watcher.run(stop, until_quiet=once)
    if once and complaints:
        raise PacsError(complaints[-1])


@app.command()
def listen(archive: ArchiveFolder, config: ConfigFile = CONFIG, model: ModelFolder = None) -> None:
    """Be a DICOM destination: what the titles in [listen] send by C-STORE comes in as with fetch. Answers C-ECHO, too.

    Runs until it is ended (Ctrl-C); what was acknowledged is on the disk. Research use only, not a medical device.
    """
    from diptych.pacs.listen import Listener

    incoming = _door(archive, config, model)
    listener = Listener(incoming, report=print_outcome, complain=lambda line: print(line, file=sys.stderr, flush=True))
    stop = _until_ended()
    port = listener.start()
    told = incoming.config.listen
    print(f"listening as {told.title} on {told.host}:{port}; Ctrl-C ends it", file=sys.stderr, flush=True)
    try:
        listener.run(stop)
    finally:
        listener.stop()


def _until_ended() -> Event:
    """Set by Ctrl-C or a service manager; the study that is being taken in is finished first."""
    import signal
    from threading import Event

    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


@app.command()
def send(
    studies: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY...",
            help="Keys in the archive, pseudonyms as status prints them, or StudyInstanceUIDs.",
            show_default=False,
        ),
    ],
    archive: ArchiveFolder,
    config: ConfigFile = CONFIG,
    model: ModelFolder = None,
    to: Annotated[
        str | None, typer.Option(help="A server of pacs.toml.", show_default="the one that the study came from")
    ] = None,
    what: Annotated[
        str, typer.Option(help="Some of seg (lesion), sr (matches and volumes), twin and capture (figure).")
    ] = "seg,sr,twin,capture",
    on: Annotated[
        str, typer.Option(help="Channel whose series results lie on.", show_default="what intake registered to")
    ] = "",
    again: Annotated[bool, typer.Option("--again", help="As a new revision, though the server has results.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write DICOM files here instead of storing them; they name the patient.", show_default=False),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Give results back: lesion, matches, healthy twin and figure as DICOM under the study's own patient.

    Sending twice does not double: what the server has already is left as it is. One study that fails is reported and
    the others go on; the exit code is then 4. Research use only, not a medical device.
    """
    from dataclasses import asdict

    from diptych.cli.console import print_json, progress_bar
    from diptych.errors import DiptychError
    from diptych.pacs.send import Desk, send_study
    from diptych.pacs.servers import read_config
    from diptych.retrieval import Archive

    desk = Desk.open(archive, read_config(config))
    opened = Archive.open(archive, model=model)
    kinds = tuple(one.strip() for one in what.split(",") if one.strip())
    sent, failed = [], []
    for study in studies:
        try:
            with progress_bar("Results") as progress:
                options = {"what": kinds, "on": on, "again": again, "out": out}
                sent.append(send_study(desk, study, to=to, archive=opened, progress=progress, **options))  # type: ignore[arg-type]
        except DiptychError as error:
            if len(studies) == 1:
                raise
            failed.append(f"{study}: {error}")
    if json_output:
        print_json([asdict(one) for one in sent])
    for one in () if json_output else sent:
        stored = f"stored {', '.join(one.stored)} ({one.instances} instances)" if one.stored else "nothing to store"
        there = f"; there already: {', '.join(one.there)}" if one.there else ""
        none = f"; nothing to say: {', '.join(one.left)}" if one.left else ""
        print(f"{one.volume_key} to {out or one.server}: {stored}{there}{none}")
    for line in failed:
        print(line, file=sys.stderr)
    if failed:
        raise PartialFailure(f"results of {len(failed)} of {len(studies)} studies were not sent")


@app.command()
def status(
    archive: ArchiveFolder,
    config: ConfigFile = CONFIG,
    all_studies: Annotated[bool, typer.Option("--all", help="Also studies that are in the archive.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """List what became of studies: those that wait or were refused, each with its reason and the way out."""
    from dataclasses import asdict

    from diptych.cli.console import print_json
    from diptych.pacs.incoming import work_folders
    from diptych.pacs.ledger import FILE, Ledger
    from diptych.pacs.listen import LISTENED

    folder = work_folders(archive)[0]
    if not (folder / FILE).is_file():
        raise UsageError(f"{archive}: no study ever came to it from a PACS; use diptych pacs fetch, watch or listen")
    ledger = Ledger(folder)
    rows, aside = ledger.studies(), ledger.aside()
    if json_output:
        print_json({"studies": [{**asdict(row), "way_out": row.way_out} for row in rows], "aside": aside})
        return
    counts = {state: sum(row.state == state for row in rows) for state in ("done", "coming", "waiting", "refused")}
    print(", ".join(f"{count} {state}" for state, count in counts.items()))
    for row in rows:
        if row.state != "done":
            print(f"{row.state}: {row.study} from {row.server}: {row.reason or 'not whole yet'}; {row.way_out}")
        elif all_studies:
            print(f"done: {row.study} from {row.server}: {row.volume_key}")
    for study, series, reason, count in aside:
        if study == LISTENED:
            print(f"turned away: {count} images from {series}: {reason}")
        else:
            print(f"outside: {count} images of {study}, series {series}: {reason}")


app.command()(demo)


def _door(archive: Path, config: Path, model: Path | None) -> Incoming:
    from diptych.pacs.incoming import Incoming
    from diptych.pacs.servers import read_config

    return Incoming(archive, read_config(config), model=model)


def _report(outcomes: list[Outcome], json_output: bool) -> None:
    from dataclasses import asdict

    from diptych.cli.console import print_json

    if json_output:
        print_json([asdict(one) for one in outcomes])
    else:
        for one in outcomes:
            print_outcome(one)
    if failed := [one for one in outcomes if one.state != "done"]:
        raise PartialFailure(
            f"{len(failed)} of {len(outcomes)} studies are not in the archive; see diptych pacs status"
        )


def print_outcome(outcome: Outcome) -> None:
    """One line for a study."""
    if outcome.state == "done":
        print(f"{outcome.volume_key}: {outcome.reason or 'in the archive'}", flush=True)
    else:
        print(f"{outcome.state}: {outcome.study}: {outcome.reason}", file=sys.stderr, flush=True)


def _day(option: str, text: str) -> str:
    from datetime import date

    try:
        return date.fromisoformat(text).strftime("%Y%m%d") if text else ""
    except ValueError:
        raise UsageError(f"{option} {text}: give a day as YYYY-MM-DD") from None
