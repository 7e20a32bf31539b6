"""The archive: codes and metadata of many volumes in one SQLite file, with de-identified copies beside it.

records   what is stored                       schema    the tables and their format version
rows      a row to a record and back, checked   lock      one writer at a time
store     ArchiveStore: read                        writer    ArchiveWriter: add, remove, compact, repair
filters   which volumes: "sex = 'F' and age > 60"
indexing  files → codes → archive              copies    NIfTI to look at
integrity verify everything                    exchange  export and import
"""

from __future__ import annotations

from diptych.archive.archive_store import ArchiveStat, ArchiveStore, Listing
from diptych.archive.archive_writer import ArchiveWriter
from diptych.archive.records import ArchiveCodes, ModelIdentity, PixelFile, VolumeInfo, VolumeRecord

__all__ = [
    "ArchiveCodes",
    "ArchiveStat",
    "ArchiveStore",
    "ArchiveWriter",
    "Listing",
    "ModelIdentity",
    "PixelFile",
    "VolumeInfo",
    "VolumeRecord",
]
