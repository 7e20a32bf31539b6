"""Find and run the fenced code blocks of a Markdown page, in order, in one folder.

`bash` blocks run as `bash -e`, `python` blocks as one growing script per page. Blocks of other languages are shown,
not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    code: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    return [Block(language, code) for language, code in _FENCE.findall(page.read_text(encoding="utf-8"))]


def run_page(page: Path, folder: Path) -> list[str]:
    """Run the page's blocks in `folder`; return a line for each block that failed."""
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    failures: list[str] = []
    python = ""
    for block in blocks(page):
        if block.language == "bash":
            command = ["bash", "-e", "-c", block.code]
        elif block.language == "python":
            python += block.code + "\n"
            command = [sys.executable, "-W", "error", "-c", python]
        else:
            continue
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            failures.append(f"{page.name}: {block.code.strip()!r} exited {done.returncode}: {done.stderr[-2000:]}")
    return failures
