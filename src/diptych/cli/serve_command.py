"""`diptych serve`: an archive in the browser."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.cluster_command import CLUSTER, open_any
from diptych.cli.help_types import complete_model
from diptych.errors import InputError, UsageError

NOTICE = "Research use only, not a medical device."
SHORTEST = 16
"""Characters of a token."""


def serve(
    archives: Annotated[
        list[Path],
        typer.Argument(
            metavar="ARCHIVE...", help="Folders of archives; several stand side by side.", show_default=False
        ),
    ],
    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="The model that made the archive; repeat it for several archives, in their order.",
            show_default="the shipped ones",
            autocompletion=complete_model,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's own needs users and TLS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")] = 8765,
    unix_socket: Annotated[
        Path | None,
        typer.Option(
            "--socket",
            help="Unix socket to listen on instead: only you can open it, and need no token.",
            show_default=False,
        ),
    ] = None,
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
    pacs: Annotated[
        Path | None,
        typer.Option(
            help="pacs.toml: studies that came from a PACS link to its viewer, and results go back.", show_default=False
        ),
    ] = None,
    cluster: Annotated[str | None, CLUSTER] = None,
    replicas: Annotated[
        int, typer.Option(min=1, max=16, help="With --cluster: workers that hold each shard; two survive a loss.")
    ] = 1,
    json_log: Annotated[bool, typer.Option("--json-log", help="Write the log as JSON lines.")] = False,
) -> None:
    """Serve an archive, or several side by side, to browsers and programs until Ctrl-C.

    Several may be of different models and diseases: the page lets one choose, the API of each is below
    /archives/NAME/. Users are those of the first.

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
        socket=unix_socket,
        token=secret,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        proxies=_networks(proxy or []),
        json_log=json_log,
        pacs=pacs,
    )
    from diptych.server.serve import check_reach
    from diptych.server.serve import serve as run
    from diptych.server.users import Users

    if model and len(model) != len(archives):
        raise UsageError(
            f"--model: {len(model)} models for {len(archives)} archives; give one for each, in their order"
        )
    check_reach(settings, has_users=bool(Users.of_archive(archives[0])))
    models: list[Path | None] = [*model] if model else [None] * len(archives)
    opened = [
        open_any(path, model=of, cluster=cluster, replicas=replicas) for path, of in zip(archives, models, strict=True)
    ]
    for problem in (problem for archive in opened for problem in archive.problems):
        typer.echo(f"warning: {problem}", err=True)
    run(opened, settings, ready=lambda address: _announce(archives, address), link=_offer)
    _leave()


def _leave() -> None:
    """End at once, now that all is closed: a thread that is still inside the network would make Python's own way out
    end in "terminate called without an active exception"."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _announce(archives: list[Path], address: str) -> None:
    names = ", ".join(map(str, archives))
    served = "is served" if len(archives) == 1 else "are served side by side"
    typer.echo(f"{names} {served} at {address} (Ctrl-C stops it). {NOTICE}")


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
    if token_file is not None and token_file.is_file() and token_file.stat().st_mode & 0o077:
        typer.echo(f"warning: {token_file}: others of this machine may read it; chmod go-rwx it", err=True)
    return token
