"""`pacs.toml`: which servers there are, how they are reached, and which studies are wanted. An administrator writes it.

    [servers.hospital]                  a name of your choice
    web = "https://pacs.example.org/dicom-web"
    token_file = "hospital.token"       a file of mode 0600; never the secret itself
    [servers.scanner]
    dimse = "10.0.0.7:104"
    title = "SCANNER"
    plain = true                        no TLS, and somebody has decided so

Nobody else names a server: no address ever comes from a page, an upload or a DICOM header. Paths are relative to the
file. Knows TOML and rules; nothing is contacted here.
"""

from __future__ import annotations

import ipaddress
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar, get_type_hints
from urllib.parse import urlsplit

from diptych.errors import InputError, UsageError
from diptych.files import read_regular
from diptych.volumes.layout import one_line

LARGEST = 1 << 20
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
TITLE = re.compile(r"[!-\[\]-~]([ -\[\]-~]{0,14}[!-\[\]-~])?")
"""What DICOM allows as the title of an application: 1 to 16 characters, no backslash."""
Table = TypeVar("Table")


@dataclass(frozen=True)
class Server:
    """One archive of images, reached by DICOMweb (`web`) or by DIMSE (`dimse`)."""

    name: str
    web: str | None = None
    """Root of its DICOMweb service."""
    changes: str | None = None
    """Root of Orthanc's own interface, for its feed of changes; without it the server is asked again and again."""
    dimse: str | None = None
    """host:port of its DIMSE service."""
    title: str = "ANY-SCP"
    """Its application entity title."""
    calling: str = "DIPTYCH"
    """The title that we call ourselves."""
    fetch: str = "get"
    """`get` (C-GET) or `move` (C-MOVE to `calling`, which must know `move_port` of this machine)."""
    move_port: int = 11113
    move_host: str = "127.0.0.1"
    token_file: Path | None = None
    """First line is a bearer token; read again when the server says 401."""
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    """Certificates that the server's must come from (PEM); the system's otherwise."""
    cert_file: Path | None = None
    key_file: Path | None = None
    """Our own certificate and key (PEM), where the server wants to know us."""
    plain: bool = False
    """Without TLS off this machine: patient data travels in the clear."""
    tls: bool = False
    """TLS for DIMSE; DICOMweb has it by `https`."""
    timeout: float = 30.0
    """Seconds without a byte after which a request has failed."""
    retries: int = 4
    """How often a request is repeated, with growing pauses."""
    page: int = 200
    """Studies asked for at a time."""
    viewer: str | None = None
    """Address of a study in the hospital's viewer, with `{study}` for its StudyInstanceUID."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of DIMSE."""
        host, _, port = (self.dimse or "").rpartition(":")
        return host.strip("[]"), int(port)

    def secret(self, path: Path | None) -> str | None:
        """First line of a secret file that nobody else may read."""
        if path is None:
            return None
        try:
            if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InputError(f"{one_line(path)}: others may read this secret; chmod 600 {one_line(path.name)}")
            lines = read_regular(path, limit=LARGEST).decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{one_line(path)}: the secret of server {self.name} cannot be read ({error})") from None
        if not lines or not lines[0].strip():
            raise InputError(f"{one_line(path)}: is empty; its first line must be the secret of server {self.name}")
        return lines[0].strip()


@dataclass(frozen=True)
class Rules:
    """Which studies are wanted, and when."""

    modality: tuple[str, ...] = ("MR",)
    description: tuple[str, ...] = ("*",)
    """Patterns of StudyDescription, such as `*brain*`; small and capital letters are the same."""
    newest_days: int | None = None
    """Only studies that are at most so old."""
    stable_seconds: float = 60.0
    """A study to which nothing was added for so long is whole."""
    poll_seconds: float = 30.0
    priors: int = 0
    """Older studies of the same patient that are fetched with a new one, newest first."""
    keep_hours: float = 24.0
    """How long what was sent to `listen` is kept, in case more of the same study comes."""

    def wants(self, description: str) -> bool:
        """Whether a study is called as the rules say.

        >>> Rules(description=("*brain*",)).wants("MR Brain 3T")
        True
        """
        return any(fnmatchcase(description.lower(), pattern.lower()) for pattern in self.description)


@dataclass(frozen=True)
class Listen:
    """How `diptych pacs listen` is reached."""

    host: str = "127.0.0.1"
    port: int = 11112
    title: str = "DIPTYCH"
    callers: tuple[str, ...] = ()
    """Titles that may send; nobody else."""
    server: str | None = None
    """The server that results of such studies are sent to, and whose viewer shows them."""
    cert_file: Path | None = None
    key_file: Path | None = None
    ca_file: Path | None = None
    """Certificates that senders' must come from."""
    plain: bool = False
    image_mb: float = 512.0
    """Largest image that is taken, in MB; the association of who sends more is ended."""
    associations: int = 4
    """Senders at a time."""
    disk_gb: float = 50.0
    """Disk that images which were sent may take in all, in GB; more is not taken until there is room."""


@dataclass(frozen=True)
class PacsConfig:
    """Everything in the file."""

    path: Path
    vault: Path
    """Folder of the secret key and of the way back to patients, kept apart from the archive."""
    servers: Mapping[str, Server] = field(default_factory=dict)
    rules: Rules = Rules()
    listen: Listen = Listen()
    keep_characteristics: bool = True
    """Whether sex and age (90 at most) stay, for filters."""

    def server(self, name: str) -> Server:
        """A server by its name."""
        if name not in self.servers:
            known = ", ".join(sorted(self.servers)) or "none"
            raise UsageError(
                f"server {one_line(name)[:60]!r}: {one_line(self.path)} has no such server; known: {known}"
            )
        return self.servers[name]


def read_config(path: Path | str) -> PacsConfig:
    """Read and check the administrator's file.

    Raises:
        InputError: it cannot be read, has a key that nobody knows, or asks for something unsafe.
    """
    path = Path(path)
    try:
        values = tomllib.loads(read_regular(path, limit=LARGEST).decode("utf-8"))
        if path.stat().st_mode & stat.S_IWOTH:
            raise InputError(f"{one_line(path)}: everybody may write it; chmod o-w {one_line(path.name)}")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{one_line(path)}: cannot be read as TOML ({reason}); see docs/how-to/pacs.md") from None
    known = {"servers", "rules", "listen", "deidentify"}
    if unknown := sorted(set(values) - known):
        raise InputError(
            f"{one_line(path)}: [{one_line(unknown[0])[:40]}] is not known; tables are {', '.join(sorted(known))}"
        )
    home = path.absolute().parent
    hiding = _table(path, "deidentify", values.get("deidentify", {}), _Hiding, home)
    servers = {name: _server(path, name, table, home) for name, table in values.get("servers", {}).items()}
    config = PacsConfig(
        path=path,
        vault=hiding.vault or home / "vault",
        servers=servers,
        rules=_rules(path, values.get("rules", {}), home),
        listen=_listen(path, values.get("listen", {}), home),
        keep_characteristics=hiding.keep_characteristics,
    )
    if config.listen.server is not None and config.listen.server not in servers:
        raise InputError(f"{one_line(path)}: [listen] server {config.listen.server!r} is not one of [servers]")
    return config


@dataclass(frozen=True)
class _Hiding:
    vault: Path | None = None
    keep_characteristics: bool = True


def _server(path: Path, name: str, table: Any, home: Path) -> Server:
    where = f"servers.{one_line(name)[:40]}"
    if not NAME.fullmatch(name):
        raise InputError(f"{one_line(path)}: [{where}]: a name is letters, digits, - and _")
    server = _table(path, where, table, Server, home, name=name)
    if (server.web is None) == (server.dimse is None):
        raise InputError(f"{one_line(path)}: [{where}] needs either web or dimse")
    for field_name in ("web", "changes"):
        if (url := getattr(server, field_name)) is not None:
            _check_url(path, where, field_name, url, server)
    if server.dimse is not None:
        _check_dimse(path, where, server)
    for title in (server.title, server.calling):
        _check_title(path, where, title)
    if server.fetch not in ("get", "move"):
        raise InputError(f"{one_line(path)}: [{where}] fetch = {server.fetch!r} must be get or move")
    if (server.cert_file is None) != (server.key_file is None):
        raise InputError(f"{one_line(path)}: [{where}] needs cert_file and key_file, or neither")
    if (server.user is None) != (server.password_file is None):
        raise InputError(f"{one_line(path)}: [{where}] needs user and password_file, or neither")
    if server.viewer is not None and (
        urlsplit(server.viewer).scheme not in ("http", "https") or server.viewer.count("{study}") != 1
    ):
        raise InputError(f"{one_line(path)}: [{where}] viewer must be http(s)://…{{study}}…, with {{study}} once")
    if not 0.1 <= server.timeout <= 3600 or not 0 <= server.retries <= 20 or not 1 <= server.page <= 10_000:
        raise InputError(f"{one_line(path)}: [{where}] timeout, retries or page is out of all reason")
    return server


def _check_url(path: Path, where: str, name: str, url: str, server: Server) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"{one_line(path)}: [{where}] {name} must be an address such as https://pacs/dicom-web")
    if parts.username or parts.password:
        raise InputError(f"{one_line(path)}: [{where}] {name} holds a secret; use user and password_file")
    if parts.scheme == "http" and not is_loopback(parts.hostname) and not server.plain:
        raise InputError(
            f"{one_line(path)}: [{where}] {name}: patient data would travel in the clear; use https, or plain = true"
        )


def _check_dimse(path: Path, where: str, server: Server) -> None:
    try:
        host, port = server.address
        good = bool(host) and 0 < port < 65536
    except ValueError:
        good = False
    if not good:
        raise InputError(f"{one_line(path)}: [{where}] dimse must be host:port")
    if not server.tls and not server.plain and not is_loopback(host):
        raise InputError(
            f"{one_line(path)}: [{where}] dimse: patient data would travel in the clear; tls = true, or plain = true"
        )


def _check_title(path: Path, where: str, title: str) -> None:
    if not TITLE.fullmatch(title):
        raise InputError(f"{one_line(path)}: [{where}] title {title[:20]!r} must be 1 to 16 characters, no backslash")


def _rules(path: Path, table: Any, home: Path) -> Rules:
    rules = _table(path, "rules", table, Rules, home)
    if not rules.modality or not set(rules.modality) <= {"MR"}:
        raise InputError(f'{one_line(path)}: [rules] modality must be ["MR"]: intake reads nothing else')
    if not rules.description:
        raise InputError(f"{one_line(path)}: [rules] description has no pattern; leave it out to take every study")
    if rules.newest_days is not None and rules.newest_days < 1:
        raise InputError(f"{one_line(path)}: [rules] newest_days must be at least 1")
    if min(rules.stable_seconds, rules.poll_seconds, rules.priors, rules.keep_hours) < 0 or rules.priors > 20:
        raise InputError(f"{one_line(path)}: [rules] holds a number that is negative, or more than 20 priors")
    return rules


def _listen(path: Path, table: Any, home: Path) -> Listen:
    listen = _table(path, "listen", table, Listen, home)
    for title in (listen.title, *listen.callers):
        _check_title(path, "listen", title)
    if (listen.cert_file is None) != (listen.key_file is None):
        raise InputError(f"{one_line(path)}: [listen] needs cert_file and key_file, or neither")
    if not is_loopback(listen.host) and listen.cert_file is None and not listen.plain:
        raise InputError(
            f"{one_line(path)}: [listen] host {one_line(listen.host)[:60]}: patient data would come in the clear; "
            "give cert_file and key_file, or say plain = true"
        )
    if not 1 <= listen.image_mb <= 4096 or not 1 <= listen.associations <= 100 or not 0 < listen.disk_gb <= 1e6:
        raise InputError(
            f"{one_line(path)}: [listen] image_mb must be 1 to 4096, associations 1 to 100, disk_gb above 0"
        )
    return listen


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _table(path: Path, where: str, table: Any, kind: type[Table], home: Path, **given: Any) -> Table:
    """A table as a dataclass: no unknown key, every value of its type, files relative to the file's folder."""
    if not isinstance(table, dict):
        raise InputError(f"{one_line(path)}: [{where}] must be a table")
    types = get_type_hints(kind)
    names = [one.name for one in fields(kind) if one.name not in given]  # type: ignore[arg-type]
    if unknown := sorted(set(table) - set(names)):
        known = ", ".join(names)
        raise InputError(f"{one_line(path)}: [{where}] {one_line(unknown[0])[:40]} is not known; keys are {known}")
    values = {name: _value(path, f"[{where}] {name}", value, str(types[name]), home) for name, value in table.items()}
    return kind(**given, **values)


def _value(path: Path, where: str, value: Any, kind: str, home: Path) -> Any:
    if "Path" in kind and isinstance(value, str) and value:
        return home / value
    if "tuple" in kind and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    plain: dict[str, Any] = {"bool": bool, "int": int, "float": (int, float), "str": str}
    name = next(one for one in ("Path", "tuple", "bool", "float", "int", "str") if one in kind)
    wanted = plain.get(name)
    if wanted is not None and isinstance(value, wanted) and (name == "bool" or not isinstance(value, bool)):
        return float(value) if name == "float" else value
    words = {"Path": "the name of a file", "tuple": "a list of texts", "str": "text", "float": "a number"}
    raise InputError(f"{one_line(path)}: {where} must be {words.get(name, name)}")
