"""`diptych audit …`: who did what with an archive, whether the log is whole, and DICOM's form of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from diptych.errors import ArchiveError

app = typer.Typer(
    name="audit",
    help="Read, check and send the log of who did what with an archive.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ArchivePath = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The archive's folder.", show_default=False)]


@app.command()
def verify(
    archive: ArchivePath,
    head: Annotated[
        str | None,
        typer.Option(help="A head noted earlier: 'NUMBER HASH'. It must still be there.", show_default=False),
    ] = None,
) -> None:
    """Find lines that were changed, taken out, put in or moved; exits with 6 if there are any."""
    from diptych.archive.audit import AuditLog, holds_head

    log = AuditLog(archive)
    found = log.verify()
    problems = list(found.problems)
    if head is not None and not holds_head(log, head):
        problems.append(f"head {head[:20]}…: no such event is there any more")
    for problem in problems:
        typer.echo(f"warning: {problem}", err=True)
    if problems:
        raise ArchiveError(
            f"{archive}: {len(problems)} problems in its audit log; keep a copy and find out who wrote it"
        )
    print(f"{archive}: {found.events} events follow one another. Note the head elsewhere: {found.head}")


@app.command()
def show(archive: ArchivePath) -> None:
    """Print every event as a line of JSON."""
    import json

    from diptych.archive.audit import AuditLog

    for event in AuditLog(archive).read():
        print(json.dumps(event))


@app.command()
def dicom(
    archive: ArchivePath,
    file: Annotated[Path, typer.Argument(help="File to write: one message per line.", show_default=False)],
) -> None:
    """Write every event as a DICOM audit message (PS3.15 A.5)."""
    from diptych.archive.audit import AuditLog
    from diptych.archive.audit_messages import dicom_message
    from diptych.files import write_bytes

    lines = [dicom_message(event) for event in AuditLog(archive).read()]
    write_bytes(file, "".join(f"{line}\n" for line in lines).encode(), private=True)
    print(f"{file}: {len(lines)} messages")


@app.command()
def send(
    archive: ArchivePath,
    host: Annotated[str, typer.Argument(help="The audit record repository.", show_default=False)],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Its port for syslog over TLS.")] = 6514,
    ca: Annotated[Path | None, typer.Option(help="Certificate authority (PEM).", show_default="the system's")] = None,
) -> None:
    """Send every event to an ATNA repository, by syslog over TLS."""
    from diptych.archive.audit import AuditLog
    from diptych.archive.audit_messages import send_events

    print(f"{host}: {send_events(AuditLog(archive).read(), host, port, authority=ca)} messages sent")


def note(archive: Path, event: str, volumes: Sequence[str]) -> None:
    """Record what a command does, as the user of this machine who does it; an archive that is none has no log."""
    import getpass

    from diptych.archive.audit import AuditEvent, AuditLog
    from diptych.archive.schema import DATABASE

    if (archive / DATABASE).is_file():
        who = f"{getpass.getuser()} (command)"
        AuditLog(archive).append(AuditEvent(event, who, {"volumes": list(volumes)[:50], "count": len(volumes)}))
