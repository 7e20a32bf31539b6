"""The service on a socket: bind, serve, and end well on Ctrl-C.

Knows uvicorn and sockets. Off loopback there must be users or a token, and TLS or a declared proxy; on loopback the
owner gets a link that signs one browser in. What is printed is the address, never a patient.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from diptych.errors import UsageError
from diptych.processes import cores
from diptych.retrieval import Archive
from diptych.server.connections import limited_protocol
from diptych.server.service import Service
from diptych.server.settings import ServerSettings
from diptych.server.side_by_side import SideBySide, create_apps
from diptych.server.sign_in import SignIn
from diptych.server.users import Users

KEEP_ALIVE = 30
M_ARENA_MAX = -8


def serve(
    archives: Sequence[Archive],
    settings: ServerSettings,
    *,
    ready: Callable[[str], None] = lambda address: None,
    link: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve an archive, or several side by side, until Ctrl-C or SIGTERM.

    `ready` is told the address once the port is ours; on loopback, `link` is told an address that signs one browser in,
    and another one whenever that was used.
    """
    check_reach(settings, has_users=bool(Users.of_archive(archives[0].store.path)))
    listener = bind(settings.host, settings.port) if settings.socket is None else bind_socket(settings.socket)
    torch.set_num_threads(max(1, cores() // 2))  # a slice is too small to share, and searches want a core
    _log_to_stderr(plain=settings.json_log)
    _return_memory()
    app = create_apps(archives, settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # the guards write one without queries
        server_header=False,
        timeout_graceful_shutdown=settings.grace_seconds,
        timeout_keep_alive=KEEP_ALIVE,
        http=limited_protocol(settings),
        ws="none",
        proxy_headers=False,  # `sign_in.py` believes declared proxies only
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    _load_tls(config, settings)
    address = address_of(listener, settings)
    ready(address)
    if settings.local and settings.socket is None:
        _hand_out_links(_door(app), address, link)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that both ways of ending come past here
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn has shut down in good order, and passes the signal on
        pass
    finally:
        listener.close()
        if settings.socket is not None:
            settings.socket.unlink(missing_ok=True)


def bind_socket(path: Path) -> socket.socket:
    """A listening Unix socket that only its owner can open; what a killed service left in its place is taken away."""
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)  # no moment in which others could connect
    try:
        if path.is_socket() and not _answers(path):
            path.unlink()
        listener.bind(str(path))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        reason = "something is there already" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise UsageError(f"--socket {path}: cannot listen there ({reason}); choose another name") from None
    finally:
        os.umask(before)
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0


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


def address_of(listener: socket.socket, settings: ServerSettings) -> str:
    """Where a browser on this machine finds the service."""
    if settings.socket is not None:
        return f"unix:{settings.socket}"
    host = settings.host
    name = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, f"[{host}]" if ":" in host else host)
    scheme = "http" if settings.tls_certificate is None else "https"
    return f"{scheme}://{name}:{listener.getsockname()[1]}/"


def check_reach(settings: ServerSettings, *, has_users: bool) -> None:
    """Refuse to be reached by others without knowing them, or in the clear."""
    if settings.local:
        return
    if not settings.token and not has_users and not settings.proxies:
        raise UsageError(
            f"host {settings.host}: others can reach it, so a token is needed; "
            "make users with 'diptych users add', or give --token-file"
        )
    if not settings.encrypted:
        raise UsageError(
            f"host {settings.host}: patient data would travel in the clear; "
            "give --tls-cert and --tls-key, or name the proxy that does TLS with --proxy"
        )


def _load_tls(config: uvicorn.Config, settings: ServerSettings) -> None:
    """Read certificate and key now, so that a wrong one is a clear line."""
    try:
        config.load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise UsageError(f"{settings.tls_certificate}: cannot be used for TLS ({error}); give PEM files") from None


def _door(app: ASGIApp) -> SignIn:
    if isinstance(app, SideBySide):
        return app.sign_in
    assert isinstance(app, FastAPI)
    service: Service = app.state.service
    return service.sign_in


def _hand_out_links(sign_in: SignIn, address: str, link: Callable[[str], None]) -> None:
    """The key follows `#`, which browsers send to nobody: no log and no other program sees it."""

    def next_link() -> None:
        link(f"{address}#key={sign_in.link_key()}")

    sign_in.link_used = next_link
    next_link()


def _return_memory() -> None:
    """Two arenas for all threads: glibc otherwise keeps one for each, and what a thread freed is lost to the others."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").mallopt(M_ARENA_MAX, 2)


def _log_to_stderr(*, plain: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s" if plain else "%(asctime)s %(message)s", "%H:%M:%S"))
    for name, level in (("diptych.server", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
