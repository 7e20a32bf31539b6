"""`ServerSettings`: where the service listens, who may use it, and how much of anything it takes.

Knows numbers and names only. The limits are for strangers: a request that exceeds one is refused before the work.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from diptych.volumes import Limits

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class ServerSettings:
    """How the service behaves; every limit can be lowered in tests."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8765
    """Port to listen on; 0 takes any free one."""
    socket: Path | None = None
    """Unix socket to listen on instead of host and port; only its owner can open it."""
    sign_in: bool = True
    """Whether callers must say who they are; False only for programs that hold the application themselves."""
    token: str | None = field(default=None, repr=False)
    """Secret that opens everything, for services without users."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose word on users, clients and TLS is believed."""
    pacs: Path | None = None
    """`pacs.toml` of the servers that studies came from; without it, nothing goes back."""
    tls_certificate: Path | None = None
    """Certificate chain (PEM)."""
    tls_key: Path | None = None
    """Its private key (PEM)."""
    cookie_path: str = "/api/v1"
    """Addresses to which a browser shows its session."""
    session_seconds: float = 12 * 3600.0
    """How long a browser stays signed in after its last request."""
    max_body: int = 2 * MEGABYTE
    """Bytes of a request, uploads aside."""
    max_upload: int = 512 * MEGABYTE
    """Bytes of one upload."""
    max_unpacked: int = 2048 * MEGABYTE
    """Bytes of one uploaded ZIP, unpacked."""
    max_files: int = 8
    """Files of one upload: four channels, two label maps, and some room."""
    max_study_files: int = 6000
    """Files of an upload that is a dropped DICOM folder."""
    volume_limits: Limits = field(default_factory=lambda: Limits(max_voxels=40_000_000, max_bytes=256 * MEGABYTE))
    """How large one uploaded file may be, decompressed."""
    max_connections: int = 512
    """Open connections; beyond, the longest idle one is closed."""
    header_seconds: float = 10.0
    """How long a connection may take to send the header of a request."""
    body_seconds: float = 20.0
    """How long a body may take, and longer only as long as it comes at `body_rate`."""
    body_rate: int = 64 * 1024
    """Bytes of a body per second, at least."""
    grace_seconds: int = 60
    """How long running requests may take after SIGTERM."""
    max_receiving: int = 8
    """Uploads that may come in at a time."""
    max_receiving_per_user: int = 2
    """Of these, uploads of one user: nobody alone can keep the others out."""
    max_uploads: int = 8
    """Uploads kept at a time."""
    max_uploads_per_user: int = 6
    """Of these, uploads of one user."""
    upload_quota: int = 4096 * MEGABYTE
    """Bytes of all uploads on disk."""
    audit: bool = True
    """Whether an audit log is written in the archive's folder."""
    json_log: bool = False
    """Whether the log is written as JSON lines."""
    upload_seconds: float = 3600.0
    """How long an upload is kept after it was last used."""
    decode_seconds: float = 900.0
    """How long one upload may take to be read, taken in and encoded; others wait behind it."""
    max_waiting: int = 16
    """Jobs that may wait in one queue."""
    picture_bytes: int = 128 * MEGABYTE
    """Memory for finished pictures."""
    signal_bytes: int = 512 * MEGABYTE
    """Memory for images read from disk."""
    decoded_bytes: int = 128 * MEGABYTE
    """Memory for what codes decode to."""
    overlap_slices: int = 20_000
    """Archives up to this many slices are made ready for the metric `overlap` at start, others when asked."""

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the service."""
        return self.socket is not None or is_loopback(self.host)

    @property
    def encrypted(self) -> bool:
        """Whether what travels over a network is encrypted, by ourselves or by a declared proxy."""
        return self.tls_certificate is not None or bool(self.proxies)


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
