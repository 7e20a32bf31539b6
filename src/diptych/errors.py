"""Every error that Diptych raises on purpose, and the exit code each one becomes.

Knows nothing about the rest of the package. A message is one line: the file (or value), the rule it broke,
and the way out.

    DiptychError                 1   base class; also what an unexpected failure exits with
    ├── UsageError               2   an option or argument that cannot be
    ├── InputError               3   a file, folder or store that cannot be used
    │   ├── VolumeError              an image file: damaged, wrong geometry, wrong values
    │   │   ├── GeometryError        affines or shapes that do not describe one place in the body
    │   │   ├── TooLargeError        more voxels or bytes than the configured cap
    │   │   └── LabelError           label values outside the known set
    │   ├── LayoutError              a folder in which no patient, or an ambiguous one, was found
    │   │   └── MissingChannelError  a channel that is needed and not there
    │   ├── StoreError               a slice store that is damaged or does not fit
    │   └── ModelError               weights or config that are damaged or do not fit
    ├── PartialFailure           4   some patients failed, the others went through
    ├── MissingExtraError        5   an optional part of Diptych is not installed
    ├── ArchiveError             6   an archive that is damaged, locked, or made by another model or format
    │   ├── ArchiveLockedError
    │   └── ArchiveMismatchError
    ├── TrainingError            7   training that cannot go on: NaN, collapse, out of memory
    ├── PacsError                8   a server of images that cannot be reached, or refuses
    └── ClusterError             9   a cluster that cannot be reached, or has no room
"""

from __future__ import annotations


class DiptychError(Exception):
    """Base of all errors that carry a message meant for the user."""

    exit_code = 1


class UsageError(DiptychError):
    exit_code = 2


class InputError(DiptychError):
    exit_code = 3


class VolumeError(InputError):
    pass


class GeometryError(VolumeError):
    pass


class TooLargeError(VolumeError):
    pass


class LabelError(VolumeError):
    pass


class LayoutError(InputError):
    pass


class MissingChannelError(LayoutError):
    pass


class StoreError(InputError):
    pass


class ModelError(InputError):
    pass


class PartialFailure(DiptychError):
    exit_code = 4


class MissingExtraError(DiptychError):
    exit_code = 5


class ArchiveError(DiptychError):
    exit_code = 6


class ArchiveLockedError(ArchiveError):
    pass


class ArchiveMismatchError(ArchiveError):
    pass


class TrainingError(DiptychError):
    exit_code = 7


class PacsError(DiptychError):
    exit_code = 8


class ClusterError(DiptychError):
    exit_code = 9
