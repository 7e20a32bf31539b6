"""A real Orthanc for tests and demonstrations: its own folder, its own ports, gone at the end.

It answers this machine only: HTTP refuses other addresses, and DIMSE knows one caller, from loopback. (Orthanc 1.10
cannot be told to bind an address; later ones can, and are.)
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

SERVICES = ("Echo", "Find", "Get", "Move", "Store")
PLUGINS = ("/usr/share/orthanc/plugins", "/usr/local/share/orthanc/plugins")


def find_orthanc() -> Path | None:
    """The program, where it is installed together with its DICOMweb plugin."""
    found = shutil.which("Orthanc") or next((one for one in ("/usr/sbin/Orthanc",) if Path(one).is_file()), None)
    return Path(found) if found and dicomweb_plugin() else None


def dicomweb_plugin() -> Path | None:
    names = (path for folder in PLUGINS for path in Path(folder).glob("libOrthancDicomWeb.so*"))
    return next(names, None)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass
class Orthanc:
    """One server; `start`, `kill` and `start` again keep what it holds."""

    folder: Path
    title: str = "ORTHANC"
    stable_seconds: int = 1
    http: int = field(default_factory=free_port)
    dimse: int = field(default_factory=free_port)
    move_port: int = field(default_factory=free_port)
    settings: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    def start(self) -> Orthanc:
        self.folder.mkdir(parents=True, exist_ok=True)
        configuration = {
            "Name": "test",
            "StorageDirectory": str(self.folder.absolute() / "storage"),
            "IndexDirectory": str(self.folder.absolute() / "storage"),
            "HttpPort": self.http,
            "HttpBindAddresses": ["127.0.0.1"],
            "DicomPort": self.dimse,
            "DicomAet": self.title,
            "DicomCheckCalledAet": True,
            "DicomCheckModalityHost": True,
            "RemoteAccessAllowed": False,
            "AuthenticationEnabled": False,
            "StableAge": self.stable_seconds,
            "Plugins": [str(dicomweb_plugin())],
            "DicomWeb": {"Enable": True, "Root": "/dicom-web/"},
            "DicomModalities": {
                "diptych": {
                    "AET": "DIPTYCH", "Host": "127.0.0.1", "Port": self.move_port,
                    **{f"Allow{what}": True for what in SERVICES},
                }
            },
            **{f"DicomAlwaysAllow{what}": False for what in SERVICES},
            "ConcurrentJobs": 1,
            **self.settings,
        }  # fmt: skip
        path = self.folder / "orthanc.json"
        path.write_text(json.dumps(configuration), encoding="utf-8")
        program = find_orthanc()
        assert program is not None
        with open(self.folder / "orthanc.log", "ab") as log:
            self.process = subprocess.Popen([str(program), str(path)], stdout=log, stderr=log)
        for _ in range(300):
            try:
                requests.get(f"{self.url}/system", timeout=1).raise_for_status()
                return self
            except requests.RequestException:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise RuntimeError(f"Orthanc did not start; see {self.folder / 'orthanc.log'}")

    def kill(self, how: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=30)
            self.process = None

    def stop(self) -> None:
        self.kill(signal.SIGTERM)

    def put(self, folder: Path) -> None:
        """Store every DICOM file below a folder."""
        with requests.Session() as session:
            for path in sorted(folder.rglob("*.dcm")):
                session.post(f"{self.url}/instances", data=path.read_bytes(), timeout=30).raise_for_status()

    def file(self, instance: str) -> bytes:
        """An instance as the server keeps it."""
        return bytes(requests.get(f"{self.url}/instances/{instance}/file", timeout=30).content)

    def get(self, path: str) -> Any:
        return requests.get(f"{self.url}/{path}", timeout=30).json()
