"""What is installed is what was looked at: the lock has hashes for every pin, the bill of materials lists the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in (line.partition("#")[0].strip() for line in lines) if line)


def test_the_lock_has_a_hash_for_every_pin() -> None:
    blocks = (ROOT / "constraints.lock").read_text(encoding="utf-8").split("\n\n")[0]
    locked = re.findall(r"^([A-Za-z0-9._-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", blocks, flags=re.M)
    missing = sorted(set(pins().items()) - set(locked))
    assert missing == [], "run .ci/lock.py"
    assert len(locked) == len(pins())


def test_the_bill_lists_the_same_packages() -> None:
    bill = json.loads((ROOT / "sbom.cdx.json").read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert {one["name"]: one["version"] for one in bill["components"]} == pins()


def test_the_plain_list_stays_plain() -> None:
    """`pip install -c constraints.txt` must work beside a torch that was built elsewhere."""
    assert "--hash" not in (ROOT / "constraints.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_two_builds_of_the_wheel_are_equal(tmp_path: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("the sources are not in git here, which says what goes in")
    command = [sys.executable, str(ROOT / ".ci" / "wheel.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert "the same from two builds" in done.stdout, done.stderr
