"""Run as a program, with the failing disk preloaded: replace a volume, once for each line of standard input.

A line is ARCHIVE, a tab, the file that arms the disk, a tab, and the number of the call that fails. Each change is made
in a process of its own, forked from this one, and tells in two lines how it went.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from diptych.archive import ArchiveWriter, schema
from diptych.errors import ArchiveError
from tests.archive.samples import make_record


def change(archive: Path, armed: Path) -> None:
    """Open the archive, arm the disk, replace a volume, read."""
    with ArchiveWriter.open(archive) as writer:
        armed.touch()
        try:
            writer.add(make_record(1, seed=5, slices=60))
            print("stored", flush=True)
        except ArchiveError as error:
            print(f"refused {error}", flush=True)
        try:
            print("readable", len(writer.codes().volumes), flush=True)
        except ArchiveError as error:
            print(f"unreadable {error}", flush=True)


if __name__ == "__main__":
    for line in sys.stdin:
        archive, armed, number = line.rstrip("\n").split("\t")
        child = os.fork()
        if child == 0:
            os.environ.update(FAIL_PATH=f"{archive}/{schema.DATABASE}", FAIL_ARMED=armed, FAIL_AT=number)
            change(Path(archive), Path(armed))
            os._exit(0)
        os.waitpid(child, 0)
