"""Diptych beside a PACS: studies come in de-identified, results go back as DICOM. Extra `pacs`.

    from diptych.pacs import Incoming, connect, fetch_study, read_config

    config = read_config("pacs.toml")
    incoming = Incoming(Path("archive"), config)
    outcome = fetch_study(connect(config.server("hospital")), "1.2.840.…", incoming)

The names below are loaded when first used. Research use only, not a medical device.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diptych.pacs.fetch import fetch_study
    from diptych.pacs.incoming import Incoming, Outcome
    from diptych.pacs.remote import Wanted, connect
    from diptych.pacs.send import Desk, Sent, send_study
    from diptych.pacs.servers import PacsConfig, Server, read_config

_HOME = {
    "Desk": "send",
    "Incoming": "incoming",
    "Outcome": "incoming",
    "PacsConfig": "servers",
    "Sent": "send",
    "Server": "servers",
    "Wanted": "remote",
    "connect": "remote",
    "fetch_study": "fetch",
    "read_config": "servers",
    "send_study": "send",
}
__all__ = [
    "Desk",
    "Incoming",
    "Outcome",
    "PacsConfig",
    "Sent",
    "Server",
    "Wanted",
    "connect",
    "fetch_study",
    "read_config",
    "send_study",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'diptych.pacs' has no attribute {name!r}")
    return getattr(import_module(f"diptych.pacs.{_HOME[name]}"), name)
