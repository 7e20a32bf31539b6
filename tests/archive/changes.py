"""Run as a program: open ARCHIVE, arm the failing disk, replace a volume, print how that went."""

from __future__ import annotations

import sys
from pathlib import Path

from diptych.archive import ArchiveWriter
from diptych.errors import ArchiveError
from tests.archive.samples import make_record

if __name__ == "__main__":
    archive, armed = Path(sys.argv[1]), Path(sys.argv[2])
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
