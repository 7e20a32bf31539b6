"""Write what the lock of `constraints.txt` means in bytes, and a bill of materials:

    python .ci/lock.py            constraints.lock: SHA-256 of every file of every pinned release, for all platforms
                                  sbom.cdx.json: the same packages as CycloneDX, with their licences

`pip install --require-hashes -r constraints.lock` then takes nothing that was exchanged since. `constraints.txt` stays
the plain list for `pip install -c`, also beside a torch that was built elsewhere. Needs the package index; the rest of
the project does not.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from urllib.request import urlopen

ROOT = Path(__file__).parents[1]
LOCK, BILL = ROOT / "constraints.lock", ROOT / "sbom.cdx.json"
LINK = re.compile(r'href="[^"#]*?([^"#/]+)#sha256=([0-9a-f]{64})"')
"""A file in the index's list, and its hash."""


def main() -> None:
    """Ask the index about each pin, then write both files."""
    pins, index = pinned(), index_url()
    hashes = {name: release_hashes(index, name, version) for name, version in pins.items()}
    LOCK.write_text(lock_text(pins, hashes), encoding="utf-8")
    BILL.write_text(json.dumps(bill(pins, hashes), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{LOCK.name}, {BILL.name}: {len(pins)} packages, {sum(map(len, hashes.values()))} files")


def pinned() -> dict[str, str]:
    """Names and versions of `constraints.txt`, as they stand there."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = (line.partition("#")[0].strip().partition("==") for line in lines)
    return {name: version for name, sign, version in pins if sign}


def index_url() -> str:
    """The index that pip asks, whatever it is here."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0 and done.stdout.strip():
        return done.stdout.strip().rstrip("/")
    from pip._internal.models.index import PyPI

    return str(PyPI.simple_url).rstrip("/")


def release_hashes(index: str, name: str, version: str) -> list[str]:
    """SHA-256 of every wheel and source archive of a release."""
    with urlopen(f"{index}/{normal(name)}/", timeout=120) as page:
        links = LINK.findall(page.read().decode())
    return sorted({digest for file, digest in links if version_of(unquote(file), name) == version})


def version_of(filename: str, name: str) -> str:
    """The version in the name of a distribution.

    >>> version_of("scikit_learn-1.5.0-cp311-cp311-linux_x86_64.whl", "scikit-learn")
    '1.5.0'
    """
    if filename.endswith(".whl"):
        return filename.split("-")[1]
    stem = filename.removesuffix(".tar.gz").removesuffix(".zip")
    return stem[len(normal(name)) + 1 :]


def normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def lock_text(pins: dict[str, str], hashes: dict[str, list[str]]) -> str:
    lines = ["# Written by .ci/lock.py from constraints.txt: pip install --require-hashes -r constraints.lock"]
    for name, version in pins.items():
        marks = " \\\n".join(f"    --hash=sha256:{one}" for one in hashes[name])
        lines.append(f"{name}=={version} \\\n{marks}" if marks else f"# {name}=={version}: the index has no file of it")
    return "\n".join(lines) + "\n"


def bill(pins: dict[str, str], hashes: dict[str, list[str]]) -> dict[str, Any]:
    """CycloneDX 1.5; no time and no serial number, so that the same lock gives the same bill."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "diptych", "licenses": [_licence("Apache-2.0")]}},
        "components": [component(name, version, hashes[name]) for name, version in pins.items()],
    }


def component(name: str, version: str, files: list[str]) -> dict[str, Any]:
    url = f"pkg:pypi/{normal(name)}@{version}"
    found: dict[str, Any] = {"type": "library", "name": name, "version": version, "purl": url, "bom-ref": url}
    found["hashes"] = [{"alg": "SHA-256", "content": one} for one in files]
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return found
    words = about.get("License-Expression") or next(
        (line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License ::")),
        None,
    )
    return {**found, "licenses": [_licence(words)]} if words else found


def _licence(words: str) -> dict[str, Any]:
    return {"license": {"name": words}}


if __name__ == "__main__":
    main()
