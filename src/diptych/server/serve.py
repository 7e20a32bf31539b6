"""The service on a socket: bind, serve, and end well on Ctrl-C.

Knows uvicorn and sockets. Off loopback there must be a token; what is printed is the address, never a patient.
"""

from __future__ import annotations

import errno
import logging
import socket
import sys
from collections.abc import Callable

import torch
import uvicorn

from diptych.errors import UsageError
from diptych.processes import cores
from diptych.retrieval import Archive
from diptych.server.settings import ServerSettings
from diptych.server.web_app import create_app

GRACE = 5
"""Seconds that open requests get to finish."""
KEEP_ALIVE = 30


def serve(archive: Archive, settings: ServerSettings, *, ready: Callable[[str], None] = lambda address: None) -> None:
    """Serve an archive until Ctrl-C or SIGTERM; `ready` is told the address once the port is ours."""
    if not settings.local and not settings.token:
        raise UsageError(f"host {settings.host}: others can reach it, so a token is needed; give --token-file")
    listener = bind(settings.host, settings.port)
    torch.set_num_threads(max(1, cores() // 2))  # a slice is too small to share, and searches want a core
    _log_to_stderr()
    config = uvicorn.Config(
        create_app(archive, settings),
        log_config=None,
        access_log=False,  # the guards write one without queries
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=KEEP_ALIVE,
        limit_concurrency=512,
    )
    ready(address_of(listener, settings.host))
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn has shut down in good order, and passes the signal on
        pass
    finally:
        listener.close()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or one clear line."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise UsageError(f"host {host}: no such address on this machine; use 127.0.0.1") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port}: something else uses it on {host}; choose another with --port") from None
        raise UsageError(f"{host}:{port}: cannot listen there ({error.strerror}); choose another address") from None
    return listener


def address_of(listener: socket.socket, host: str) -> str:
    """Where a browser on this machine finds the service."""
    name = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{listener.getsockname()[1]}/"


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    for name, level in (("diptych.server", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
