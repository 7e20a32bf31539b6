"""The archive: codes and metadata of many volumes in one SQLite file, with de-identified copies beside it.

records   what is stored                       schema    the tables and their format version
rows      a row to a record and back, checked   lock      one writer at a time
store     Archive: read                        writer    ArchiveWriter: add, remove, compact, repair
filters   which volumes: "sex = 'F' and age > 60"
indexing  files → codes → archive              copies    NIfTI to look at
integrity verify everything                    exchange  export and import
"""

from __future__ import annotations

from diptych.archive.records import ArchiveCodes, ModelIdentity, PixelFile, VolumeInfo, VolumeRecord
from diptych.archive.store import Archive, ArchiveStat, Listing
from diptych.archive.writer import ArchiveWriter

__all__ = [
    "Archive",
    "ArchiveCodes",
    "ArchiveStat",
    "ArchiveWriter",
    "Listing",
    "ModelIdentity",
    "PixelFile",
    "VolumeInfo",
    "VolumeRecord",
]
