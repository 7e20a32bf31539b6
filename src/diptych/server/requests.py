"""What comes in: the bodies of requests, typed and bounded.

Knows shapes and limits only. What a value means is in its description, which the API's own page shows.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from diptych.errors import UsageError
from diptych.search.query import By, panel_named, panel_word

Key = Annotated[str, Field(min_length=1, max_length=256)]
Z = Annotated[int, Field(ge=0, le=65_535, description="Index of the axial plane in its volume, from the bottom.")]
Channel = Literal["t1", "t1gd", "t2", "flair"]
PLAIN = 'a slice is {"volume": key, "z": number} or {"upload": id, "z": number}'
ANY = "a subject has one of the names volume, upload, compose, sketch"
SAFE_KEY = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
MAX_RUNS = 20_000
MAX_LABELS = 1_500_000


class Asked(BaseModel):
    """Unknown names are refused: a misspelt option must not be ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ArchivedSubject(Asked):
    """A slice of an archived volume."""

    volume: Key = Field(description="The volume's key.", examples=["Phantom-02023-00003"])
    z: Z | None = Field(default=None, description="Axial plane; without it, the one with the largest known lesion.")


class UploadedSubject(Asked):
    """A slice of an uploaded patient."""

    upload: Key = Field(description="The upload's id.")
    z: Z | None = Field(default=None, description="Axial plane; without it, the one with the largest predicted lesion.")


def _which(value: Any) -> str | None:
    """The name by which subjects are told apart."""
    names = ("volume", "upload", "compose", "sketch")
    if isinstance(value, dict):
        return next((name for name in names if name in value), None)
    return next((name for name in names if hasattr(value, name)), None)


PlainSubject = Annotated[
    Annotated[ArchivedSubject, Tag("volume")] | Annotated[UploadedSubject, Tag("upload")],
    Discriminator(_which, custom_error_type="subject", custom_error_message=PLAIN),
]


class Composition(Asked):
    """Two slices, one panel of each."""

    normal: PlainSubject = Field(description="Whose anatomy.")
    abnormal: PlainSubject = Field(description="Whose lesion.")


class ComposedSubject(Asked):
    """This lesion in that anatomy."""

    compose: Composition


class Sketch(Asked):
    """A lesion painted by hand: 0 background, 1 NET, 2 ED, 3 ET, as large as a slice (see `image_size`)."""

    base: PlainSubject | None = Field(
        default=None, description="The slice it was painted on, whose patient is left out."
    )
    use_base_anatomy: bool = Field(default=True, description="Whether the anatomy of the base is asked for too.")
    labels: str | None = Field(
        default=None,
        max_length=MAX_LABELS,
        description="The label map as a base64 PNG of greys or palette numbers 0 to 3.",
    )
    runs: list[tuple[Annotated[int, Field(ge=0, le=3)], Annotated[int, Field(ge=1, le=1 << 24)]]] | None = Field(
        default=None,
        max_length=MAX_RUNS,
        description="The same as runs of [label, pixels], row by row from the top left.",
        examples=[[[0, 8000], [2, 12], [0, 8372]]],
    )

    @model_validator(mode="after")
    def _one_map(self) -> Sketch:
        if (self.labels is None) == (self.runs is None):
            raise ValueError("give the label map once: as labels, or as runs")
        return self


class SketchedSubject(Asked):
    """A painted lesion, in the anatomy of a slice or on its own."""

    sketch: Sketch


Subject = Annotated[
    Annotated[ArchivedSubject, Tag("volume")]
    | Annotated[UploadedSubject, Tag("upload")]
    | Annotated[ComposedSubject, Tag("compose")]
    | Annotated[SketchedSubject, Tag("sketch")],
    Discriminator(_which, custom_error_type="subject", custom_error_message=ANY),
]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Region(Asked):
    """The part of the slice that is compared: cells of the grid, or a rectangle of the picture."""

    cells: list[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]] | None = Field(
        default=None, min_length=1, max_length=4096, description="Cells as [row, column], from 0 at the top left."
    )
    rectangle: tuple[Fraction, Fraction, Fraction, Fraction] | None = Field(
        default=None,
        description="[top, left, bottom, right] as fractions of the picture.",
        examples=[[0.2, 0.5, 0.6, 0.9]],
    )

    @model_validator(mode="after")
    def _one_way(self) -> Region:
        if (self.cells is None) == (self.rectangle is None):
            raise ValueError("give either cells or a rectangle")
        return self


class SearchFilter(Asked):
    """What may be found. Everything that is given must hold."""

    text: str | None = Field(default=None, max_length=200, description="Part of a key, source or tag, in any case.")
    source: str | None = Field(default=None, max_length=200, description="Name of the collection.")
    tags: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(default=[], max_length=20)
    exclude_patients: list[Key] = Field(default=[], max_length=10_000, description="Patient keys that are left out.")
    lesion_free: bool = Field(default=False, description="Only slices known to hold no lesion.")
    where: str | None = Field(
        default=None, max_length=1000, description="A condition on metadata.", examples=["sex = 'F' and age > 60"]
    )


class AskedBy(Asked):
    """What every search has: how to compare, and what may be found."""

    by: By = Field(
        default="both",
        description="The anatomy, the lesion, or both; normal and abnormal are the paper's words for them.",
    )
    weight: float = Field(default=0.5, ge=0, le=1, description="Share of the anatomy in a search by both.")
    combine: Literal["normalised", "paper"] = Field(
        default="normalised", description="By both: distances divided by their spread in the archive, or added raw."
    )
    metric: str | None = Field(
        default=None, max_length=40, description="One of the archive's metrics; its default if left out."
    )
    top: int = Field(default=10, ge=1, le=200, description="How many matches to return at most.")
    group: Literal["patient", "volume"] = Field(
        default="patient", description="One match per patient, or one per volume."
    )
    filter: SearchFilter = Field(default_factory=lambda: SearchFilter())
    region: Region | None = None
    include_own: bool = Field(default=False, description="Whether the subject's own patient may be found.")

    @field_validator("by")
    @classmethod
    def _panel(cls, by: By) -> By:
        return panel_named(by)


class SearchRequest(AskedBy):
    """A question about a slice."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"subject": {"volume": "Phantom-02023-00003", "z": 40}, "by": "lesion", "top": 5}]
        }
    )

    subject: Subject
    inside_lesion: bool = Field(default=False, description="Compare only where the subject's lesion is predicted.")
    anywhere: Literal["shifted", "mirrored", "both", "histogram"] | None = Field(
        default=None, description="Find the lesion elsewhere too; needs `by` lesion."
    )
    level_mm: float | None = Field(
        default=None, ge=1, le=200, description="Find only slices within so many millimetres of the subject's level."
    )
    rerank: int | None = Field(
        default=None, ge=1, le=10_000, description="Let the metric choose this many volumes and order them by overlap."
    )


class VolumeSearchRequest(AskedBy):
    """A question about a whole volume."""

    subject: PlainSubject


class PatientSearchRequest(AskedBy):
    """A question about a whole patient, compared in three dimensions."""

    subject: PlainSubject
    anywhere: Literal["shifted", "mirrored", "both"] | None = Field(
        default=None, description="Find the lesion elsewhere too; needs `by` abnormal."
    )


class ViewRequest(Asked):
    """What to look at; also the preview of a composed or painted subject."""

    subject: Subject
    channel: Channel = "t1gd"


class ExplainRequest(Asked):
    """Why a match was found: the search as it was asked, and the rank of the match."""

    search: SearchRequest
    rank: int = Field(default=1, ge=1, le=200, description="1 is the nearest.")
    channel: Channel = "t1gd"


class ExportedLane(Asked):
    """One list of an export: slices, or whole patients."""

    title: str = Field(min_length=1, max_length=80, description="What the list is called in the export.")
    search: SearchRequest | None = None
    comparators: bool = Field(default=False, description="Whether these are lesion-free comparators.")
    patients: PatientSearchRequest | None = Field(default=None, description="Whole patients, instead of `search`.")

    @model_validator(mode="after")
    def _one_question(self) -> ExportedLane:
        if (self.search is None) == (self.patients is None):
            raise ValueError("a list has either a search or patients")
        return self


class Measurement(Asked):
    """Something that was measured in a slice; points are millimetres from the centre of the field."""

    kind: Literal["length", "bidirectional", "area"]
    z: Z
    points_mm: list[tuple[float, float]] = Field(min_length=2, max_length=5000)
    length_mm: float | None = None
    long_mm: float | None = None
    short_mm: float | None = None
    product_mm2: float | None = None
    area_mm2: float | None = None


class ExportRequest(Asked):
    """Answers to keep: one search, or several lists in one file."""

    search: SearchRequest | None = Field(default=None, description="One question; or give `lanes`.")
    lanes: list[ExportedLane] = Field(default=[], max_length=6, description="Several lists, each with its question.")
    measures: list[Measurement] = Field(default=[], max_length=100, description="What was measured, to go along.")
    format: Literal["json", "csv", "figure"] = Field(default="json", description="JSON, a CSV table, or a PNG figure.")

    @model_validator(mode="after")
    def _something(self) -> ExportRequest:
        if (self.search is None) == (not self.lanes):
            raise ValueError("give either a search or lanes")
        return self

    @property
    def lists(self) -> list[ExportedLane]:
        """Every list that is asked for."""
        if self.search is None:
            return self.lanes
        return [ExportedLane(title=f"By {panel_word(self.search.by)}", search=self.search)]


class ChannelChoice(Asked):
    """Which uploaded file is which channel or label map; null takes a file out."""

    channels: dict[
        Annotated[str, Field(max_length=255)], Literal["t1", "t1gd", "t2", "flair", "lesion", "anatomy"] | None
    ] = Field(max_length=32, examples=[{"scan3.nii.gz": "flair"}])


class ArchiveUploadRequest(Asked):
    """Under which key an upload is stored in the archive."""

    volume_key: str | None = Field(
        default=None,
        pattern=rf"^{SAFE_KEY}$",
        description="A pseudonym; without it, the key that the file names spell.",
    )
    replace: bool = Field(default=False, description="Whether a volume of that key may be replaced.")

    @staticmethod
    def checked(key: str) -> str:
        """A key that file names spell, if it can be one."""
        if re.fullmatch(SAFE_KEY, key) is None or key == "upload":
            raise UsageError("volume_key: the file names spell no key; give one")
        return key


class TokenRequest(Asked):
    """The service's token."""

    token: str = Field(min_length=1, max_length=500)
