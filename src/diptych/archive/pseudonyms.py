"""Keys that name nobody: research ids stay, anything else that a folder or file is called becomes a pseudonym.

`SMITH_JOHN_1957` becomes `Anon-` and twelve digits of a hash under a secret that lies beside the archive, for its owner
only. The same name always becomes the same pseudonym, so tables, searches and removals by the old name still work for
whoever has the secret, and nobody else can find out a name by trying. A research id is built of words of data sets
(`BraTS`, `sub`, `case`), single letters and short numbers; long numbers may be a hospital's own, or a birthday.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Container
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from diptych.errors import ArchiveError
from diptych.files import read_regular
from diptych.volumes import subject_of

Keys = Literal["auto", "pseudonyms", "names"]
SECRET = "date-shift.key"
"""Its name is that of its first use; it also moves dates."""
LONGEST = 256
PREFIX = "Anon"
WORDS = frozenset(
    """adni anon arc arm atlas baseline bids brain brats case cfb cohort control data dataset day exam fold followup gbm
    gli glioma gog group hc head healthy hgg hospital id image img intake isles ivygap ixi lesion lgg lumiere men met mr
    mri ms new nki oasis part participant patient ped peds phantom post pre pt ptgbm rembrandt rhuh rescan scan series
    ses session site ssa stroke strokecase study sub subj subject tcga tcia test time timepoint tp train training tumor
    tumour ucsd ucsf upenn pdgm phantomstroke remind upload utsw val validation visit volume vs week wk""".split()  # noqa: SIM905
)
"""Words that data sets are made of. None of them is a name that people often have."""
_NUMBER = re.compile(r"\d{0,5}(?:[a-z]{1,2}\d{1,5}){0,3}[a-z]?", re.IGNORECASE)
_DATE = re.compile(r"(?<!\d)(?:(?:19|20)\d\d[._-]\d\d?[._-]\d\d?|\d\d?[._-]\d\d?[._-](?:19|20)\d\d)(?!\d)")
_MADE = re.compile(rf"(?:Intake-[0-9a-f]{{10}}|{PREFIX}-[0-9a-f]{{12}})(?:-[0-9a-f]{{6}})?")


def is_research_id(key: str) -> bool:
    """Whether a key can be kept: it is made of words of data sets, single letters and short numbers.

    >>> [is_research_id(key) for key in ("BraTS20_Training_001", "sub-r009s012_ses-2", "Smith-John", "sub-19570312")]
    [True, True, False, False]
    """
    plain = _DATE.search(key) is None and all(_is_plain(part) for part in re.split(r"[._-]", key))
    return plain or _MADE.fullmatch(key) is not None


def _is_plain(part: str) -> bool:
    word = part.rstrip("0123456789")
    return _NUMBER.fullmatch(part[len(word) :] if word.lower() in WORDS else part) is not None


class ArchiveKeys:
    """What patients are called in one archive."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def of_archive(cls, archive: Path) -> ArchiveKeys:
        """For reading; an archive without a secret has no pseudonyms that could be found again."""
        path = archive / SECRET
        return cls(read_secret(path) if path.exists() else secrets.token_bytes(32))

    def pseudonym(self, key: str) -> str:
        """What a name becomes; time points of one person stay those of one.

        >>> keys = ArchiveKeys(bytes(32))
        >>> subject_of(keys.pseudonym("sub-Smith_ses-1")) == keys.pseudonym("sub-Smith")
        True
        """
        person = subject_of(key)
        name = f"{PREFIX}-{self._digest(person)[:12]}"
        return name if person == key else f"{name}-{self._digest(key)[:6]}"

    def choose(self, key: str, known: Container[str], how: Keys = "auto") -> str:
        """The key to store a patient under; whoever is stored already keeps the key they have."""
        if key in known:
            return key
        pseudonym = self.pseudonym(key)
        kept = how == "names" or (how == "auto" and is_research_id(key)) or _MADE.fullmatch(key) is not None
        return key if kept and pseudonym not in known else pseudonym

    def _digest(self, text: str) -> str:
        return blake2b(text.encode(), key=self._secret, digest_size=16, person=b"diptych-keys").hexdigest()


def archive_secret(archive: Path) -> bytes:
    """The archive's secret, made on first use; it is backed up and never exported."""
    path = archive / SECRET
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return read_secret(path)
    with open(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return read_secret(path)


def read_secret(path: Path) -> bytes:
    """A secret from its file, whole or refused: a short one would make other pseudonyms and other dates."""
    try:
        secret = bytes.fromhex(read_regular(path, limit=LONGEST).decode("ascii"))
    except (OSError, ValueError) as error:
        raise ArchiveError(f"{path}: the archive's secret cannot be read ({error}); restore it from a backup") from None
    if len(secret) != 32:
        raise ArchiveError(f"{path}: has {len(secret)} bytes instead of 32; restore it from a backup")
    return secret
