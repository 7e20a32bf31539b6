"""Find and run the fenced code blocks of a Markdown page, in order, in one folder.

`bash` blocks run as `bash -e`; `python` blocks share one interpreter per page, as a notebook's cells do. Neither starts
cold (see `warm_command`). Blocks of other languages are shown, not run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
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


def run_page(page: Path, folder: Path, commands: Path) -> list[str]:
    """Run the page's blocks in `folder`, `commands` first on the PATH; return a line for each block that failed."""
    environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    failures: list[str] = []
    with subprocess.Popen(
        [str(commands / "cells")], cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cells:
        assert cells.stdin
        assert cells.stdout
        for block in blocks(page):
            if block.language == "bash":
                command = ["bash", "-e", "-c", block.code]
                done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
                failure = done.stderr[-2000:] if done.returncode else ""
            elif block.language == "python":
                cells.stdin.write(json.dumps(block.code) + "\n")
                cells.stdin.flush()
                failure = json.loads(cells.stdout.readline() or '"the interpreter is gone"')
            else:
                continue
            if failure:
                failures.append(f"{page.name}: {block.code.strip()!r} failed: {failure}")
        cells.stdin.close()
    return failures
