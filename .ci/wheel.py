"""Build the wheel so that anybody gets the same bytes:

    python .ci/wheel.py OUT             builds it twice, in two folders, and keeps it where both are equal

What goes in is what git knows, and the built page; times come from the last commit (SOURCE_DATE_EPOCH), rights are the
same for every file, and nothing of the machine gets in. Equal bytes need the same setuptools and the same built page.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("src", "README.md", "LICENSE", "pyproject.toml")
PAGE = Path("src/diptych/server/static")


def main() -> None:
    """Two builds, one comparison."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    with tempfile.TemporaryDirectory() as scratch:
        first, second = (build(Path(scratch) / name) for name in ("one", "another/deeper"))
        if sha256(first) != sha256(second):
            sys.exit(f"{first.name}: two builds differ ({sha256(first)[:12]}, {sha256(second)[:12]})")
        out.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(first, out / first.name)
    print(f"{out / first.name}: sha256 {sha256(out / first.name)}, the same from two builds")


def build(folder: Path) -> Path:
    """A wheel from a copy of the sources in a folder of its own, with rights that depend on nobody's habits."""
    for name in sources():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
        (folder / name).chmod(0o644)
    committed = git("log", "-1", "--format=%ct").strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": committed, "PYTHONPATH": ""}
    command = [sys.executable, "-c", "from setuptools.build_meta import build_wheel as b; print(b('wheel'))"]
    (folder / "wheel").mkdir()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True, umask=0o022, timeout=600
    )
    return folder / "wheel" / done.stdout.splitlines()[-1]


def sources() -> list[Path]:
    """What git knows, and the built page, in one order."""
    known = [Path(name) for name in git("ls-files", "-z").split("\0") if name and (ROOT / name).is_file()]
    page = [path.relative_to(ROOT) for path in (ROOT / PAGE).rglob("*") if path.is_file()]
    return sorted({*(name for name in known if name.parts[0] in PARTS), *page})


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
