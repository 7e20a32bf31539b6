"""`diptych serve`: an archive in the browser."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from diptych.errors import InputError, UsageError

NOTICE = "Research use only, not a medical device."
SHORTEST = 16
"""Characters of a token."""


def serve(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The archive's folder.", show_default=False)],
    model: Annotated[
        Path | None,
        typer.Option(help="The model that made the archive.", show_default="the shipped one"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's own needs users and TLS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            help="Secret that opens everything; other users of this machine may see it here.",
            envvar="DIPTYCH_TOKEN",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File whose first line is that secret.", show_default=False)
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain (PEM), to be reached by TLS.", show_default=False)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).", show_default=False)] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of a proxy that does TLS and may name users; repeat for more.",
            show_default=False,
        ),
    ] = None,
    json_log: Annotated[bool, typer.Option("--json-log", help="Write the log as JSON lines.")] = False,
) -> None:
    """Serve an archive to browsers and programs until Ctrl-C.

    On this machine, a link is printed that signs one browser in; others need a token ('diptych users add'). The API
    describes itself at /api/v1/docs. Uploads are kept in a temporary folder and forgotten after an hour. Research use
    only, not a medical device.
    """
    secret = _secret(token, token_file)
    from diptych.server.settings import ServerSettings

    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert, --tls-key: give both, or neither")
    settings = ServerSettings(
        host=host,
        port=port,
        token=secret,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        proxies=_networks(proxy or []),
        json_log=json_log,
    )
    from diptych.retrieval import Archive
    from diptych.server.serve import check_reach
    from diptych.server.serve import serve as run
    from diptych.server.users import Users

    check_reach(settings, has_users=bool(Users.of_archive(archive)))
    opened = Archive.open(archive, model=model)
    for problem in opened.problems:
        typer.echo(f"warning: {problem}", err=True)
    run(opened, settings, ready=lambda address: _announce(archive, address), link=_offer)
    _leave()


def _leave() -> None:
    """End at once, now that all is closed: a thread that is still inside the network would make Python's own way out
    end in "terminate called without an active exception"."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _announce(archive: Path, address: str) -> None:
    typer.echo(f"{archive} is served at {address} (Ctrl-C stops it). {NOTICE}")


def _offer(link: str) -> None:
    typer.echo(f"Open {link} : it signs one browser in, once.")


def _networks(given: list[str]) -> tuple[str, ...]:
    import ipaddress

    for proxy in given:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            raise UsageError(f"--proxy {proxy}: give an address such as 10.0.0.5, or a network 10.0.0.0/24") from None
    return tuple(given)


def _secret(token: str | None, token_file: Path | None) -> str | None:
    """The token, from wherever it was given."""
    if token is not None and token_file is not None:
        raise UsageError("--token, --token-file: give one of them")
    if token_file is not None:
        try:
            token = next(iter(token_file.read_text(encoding="utf-8").splitlines()), "").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{token_file}: cannot be read ({error}); give a text file") from None
    if token is not None and (len(token) < SHORTEST or not token.isascii() or not token.isprintable()):
        raise UsageError(f"token of {len(token)} characters: use at least {SHORTEST} letters and digits")
    return token
