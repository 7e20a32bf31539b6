"""`diptych users …`: who may use a served archive, and for what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="users",
    help="Say who may use a served archive, and for what.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ArchivePath = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The archive's folder.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)]


@app.command()
def add(
    archive: ArchivePath,
    name: Name,
    role: Annotated[
        list[str],
        typer.Option(
            help="search, read (images), upload, curate, send (to a PACS) or administer; repeat for more.",
            show_default=False,
        ),
    ],
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days until the token expires.")] = 90,
) -> None:
    """Make a user, or give a user other roles and one more token. The token is printed once and kept nowhere."""
    from diptych.archive.archive_store import require_archive
    from diptych.server.users import Users

    token = Users.of_archive(require_archive(archive)).add(name, role, days=days)
    print(token)
    typer.echo(f"{name}: this token is good for {days} days and is not shown again.", err=True)


@app.command(name="list")
def list_users(archive: ArchivePath) -> None:
    """List users with their roles and the numbers of their tokens."""
    from diptych.archive.archive_store import require_archive
    from diptych.server.users import Users

    for user in Users.of_archive(require_archive(archive)).all().values():
        tokens = ", ".join(f"{one.id} until {(one.expires or 'revoked')[:10]}" for one in user.tokens) or "no token"
        print(f"{user.name}  {', '.join(user.roles) or 'no role'}  {tokens}")


@app.command()
def revoke(
    archive: ArchivePath,
    name: Name,
    token: Annotated[str | None, typer.Option(help="Only the token of this number.", show_default=False)] = None,
) -> None:
    """Shut a user out, or one of their tokens. Open sessions end at once."""
    from diptych.archive.archive_store import require_archive
    from diptych.server.users import Users

    Users.of_archive(require_archive(archive)).revoke(name, token)
    print(f"{name}: revoked")
