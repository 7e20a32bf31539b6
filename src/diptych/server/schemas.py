"""What goes out: the API's resources, typed.

Knows shapes only. The same sentences describe the fields on the API's own page.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

Grid = list[list[float]]


class ErrorBody(BaseModel):
    code: str = Field(description="For programs; never changes.", examples=["not_found"])
    message: str = Field(description="One clear line for people.")
    detail: Any = None


class ErrorResponse(BaseModel):
    """Every error has this shape."""

    error: ErrorBody


class Health(BaseModel):
    status: Literal["ok", "degraded"] = Field(
        default="ok", description="Degraded: searches work, something else fails."
    )
    version: str
    notice: str
    token_needed: bool = Field(description="Whether the API asks who calls.")


class SessionResource(BaseModel):
    user: str
    roles: list[str] = Field(description="What this user may do: search, read, upload, curate, send, administer.")


class ModelResource(BaseModel):
    fingerprint: str
    image_size: tuple[int, int] = Field(description="Rows and columns of a slice as the model sees it.")
    grid: tuple[int, int] = Field(description="Rows and columns of the code grid.")
    pixel_spacing_mm: tuple[float, float] | None = Field(description="Between rows and between columns.")
    can_sketch: bool = Field(description="Whether painted lesions can be asked about.")
    can_refine: bool = Field(description="Whether healthy twins can be painted in the patient's own pixels.")


class Metric(BaseModel):
    name: str
    ready: bool = Field(description="False while it is being prepared; see `job`.")
    job: str | None = None


class LabelClass(BaseModel):
    id: int
    name: str
    colour: str = Field(examples=["#0072b2"])


class ArchiveLink(BaseModel):
    """An archive that the same service holds."""

    name: str
    disease: str
    path: str = Field(description="Where its page is; its API lies below.")


class ArchiveResource(BaseModel):
    """The archive that is served."""

    name: str
    version: str = Field(description="Changes whenever the content does.")
    notice: str
    model: ModelResource
    patients: int
    volumes: int
    slices: int
    channels: list[str]
    metrics: list[Metric]
    default_metric: str
    default_level_mm: float = Field(
        description="How many millimetres above and below make a good question about this level; see `level_mm`."
    )
    can_find_patients: bool = Field(description="Whether whole patients can be asked for: label maps are stored.")
    lesion_classes: list[LabelClass]
    anatomy_classes: list[LabelClass]
    sources: list[str]
    tags: list[str]
    problems: list[str] = Field(description="Damaged volumes that no answer contains; show them.")
    disease: str
    beside: list[ArchiveLink] = Field(description="All archives side by side, this one too; empty for a single one.")


class PatientResource(BaseModel):
    patient_key: str
    volumes: list[str]


class Patients(BaseModel):
    total: int
    items: list[PatientResource]


class VolumeSummary(BaseModel):
    """One volume in a list."""

    volume_key: str
    patient_key: str
    slices: int
    z_first: int
    z_last: int
    representative_z: int = Field(description="The slice with the largest known lesion, or one through the middle.")
    largest_lesion_mm2: float | None = Field(description="Largest lesion area in one slice; null where unknown.")
    lesion_source: Literal["labels", "predicted", "unknown"]
    sex: str | None
    age: float | None
    study_date: str | None = Field(description="Shifted by a secret number of days per patient.")
    source: str | None
    tags: list[str]
    has_pixels: bool = Field(description="Whether there are images to look at, or codes only.")
    thumbnail_url: str | None


class Volumes(BaseModel):
    total: int = Field(description="How many fit, beyond this page too.")
    items: list[VolumeSummary]


class Geometry(BaseModel):
    """Where slices lie in the body."""

    slice_affine: list[list[float]] = Field(description="(column, row, z index) of a slice to RAS+ millimetres, 4 x 4.")
    image_size: tuple[int, int] = Field(description="Rows and columns of a slice.")
    field_mm: tuple[float, float] = Field(description="Height and width that a slice shows, as its pictures do.")


class VolumeResource(VolumeSummary):
    """One volume in full."""

    geometry: Geometry

    z_indices: list[int]
    positions: list[float] = Field(description="0 at the lowest slice of the brain, 1 at the highest.")
    z_mm: list[float]
    lesion_area: list[float | None] = Field(description="Square millimetres per slice; see `lesion_source`.")
    channel_urls: dict[str, str] = Field(description="NIfTI files by channel.")
    label_urls: dict[str, str] = Field(description="NIfTI label maps where they are known: lesion, anatomy.")
    export_urls: dict[str, str] = Field(description="Predicted mask and healthy twin as NIfTI; made when asked for.")
    windows: dict[str, tuple[float, float]] = Field(description="Signal shown black and white, by channel.")
    warnings: list[str]


class ClassChangeResource(BaseModel):
    """One kind of lesion in two studies."""

    name: str
    old_ml: float
    new_ml: float
    percent: float | None = Field(description="Change in % of the old volume; null where there was nothing.")
    rano: Literal["none", "new", "gone", "increased", "stable", "decreased"] = Field(
        description="What RANO's thresholds for volumes call it; no diagnosis."
    )


class SliceChange(BaseModel):
    z: int
    old_mm2: float
    new_mm2: float


class ChangeResource(BaseModel):
    """What has changed between two studies of one patient; lesions are predicted."""

    old: str
    new: str
    words: str
    has_changed: bool
    changed_share: float = Field(description="Lesion in changed cells, as a share of the lesion.")
    classes: list[ClassChangeResource] = Field(description="The whole lesion first, then each kind.")
    rotation_deg: float = Field(description="How far the old study was turned to fit; likewise moved.")
    shift_mm: float
    changed_cells: dict[str, int] = Field(description="By panel.")
    slices: list[SliceChange]
    source: Literal["predicted"]
    notice: str
    geometry: Geometry
    channel_urls: dict[str, str] = Field(description="The old study on the grid of the new one, by channel.")


class JobResource(BaseModel):
    """Long work and how far it has come."""

    id: str
    kind: str
    state: Literal["queued", "running", "done", "failed"]
    done: int
    total: int
    message: str
    error: str | None = None


class PacsResource(BaseModel):
    """Where a volume is in the PACS that it came from."""

    known: bool = Field(description="Whether it came from a PACS that this service knows.")
    server: str | None = Field(description="The administrator's name for that server.")
    viewer: str | None = Field(description="Address of the study in the hospital's viewer.")
    sent: list[str] = Field(description="Results that were sent: seg, sr, twin, capture.")
    job: str | None = Field(description="Job that fetches older studies of the patient, where the rules want it.")


class UploadedFileResource(BaseModel):
    name: str
    bytes: int
    channel: str | None = Field(description="t1, t1gd, t2, flair, lesion or anatomy; null when nobody knows.")


class UploadResource(BaseModel):
    """An uploaded patient; it is forgotten some time after it was last used."""

    id: str
    state: Literal["needs_channels", "queued", "running", "ready", "failed"]
    job: str | None
    files: list[UploadedFileResource]
    channels: dict[str, str | None] = Field(description="File name to channel: a guess until it is corrected.")
    missing: list[str] = Field(description="Channels that are needed and that no file has.")
    patient_key: str
    expires_in: float = Field(description="Seconds.")
    error: str | None = None
    volume: VolumeResource | None = Field(default=None, description="As of an archived volume, once it is ready.")


class TrustResource(BaseModel):
    """Whether the subject looks like what the model and the archive know."""

    level: Literal["good", "caution"]
    warnings: list[str]
    quantisation_error: float | None
    normal_isolation: float | None
    abnormal_isolation: float | None
    rare_codes: float


class Pictures(BaseModel):
    """Where the pictures of a slice are: addresses, or data: addresses of what no address can name."""

    image: str | None = Field(description="As scanned; null where only codes are known.")
    label: str | None = Field(description="Known lesion as an overlay; null where unknown.")
    reconstruction: str
    twin: str = Field(description="The generated healthy twin, decoded from the normal code.")
    refined: str | None = Field(
        description="As scanned, with generated healthy tissue in place of the lesion; null without image or refiner."
    )
    mask: str = Field(description="The predicted lesion as an overlay.")
    difference: str = Field(description="What is brighter (violet) and darker (green) than the twin, as an overlay.")
    anatomy: str | None = Field(description="The predicted anatomy as an overlay.")


class SubjectView(BaseModel):
    """A subject as it is seen."""

    name: str
    z: int | None
    position: float | None
    z_mm: float | None
    z_indices: list[int] = Field(description="Slices of the volume it belongs to.")
    pictures: Pictures
    areas_mm2: dict[str, float] = Field(description="Predicted area of each kind of lesion.")
    lesion_cells: list[list[bool]] = Field(description="Grid cells with predicted lesion.")
    trust: TrustResource


class LesionPart(BaseModel):
    """A lesion in one slice, as one source has it."""

    areas_mm2: dict[str, float] = Field(description="Area of each kind; kinds that are not there have 0.")
    whole_mm2: float
    side: Literal["left", "right", "both"] | None = Field(description="Of the patient; null without a lesion.")
    centre_mm: tuple[float, float] | None = Field(
        description="Centre from the middle of the field: to the patient's right, and to the front."
    )


class SliceLesion(BaseModel):
    """The lesion of a slice: what is known and what is predicted, never mixed."""

    z: int
    known: LesionPart | None = Field(description="From a label map; null where there is none.")
    predicted: LesionPart = Field(description="From the abnormal code.")


class ChannelSignal(BaseModel):
    """One image of a volume in numbers."""

    channel: str
    window: tuple[float, float] = Field(description="Signal that is shown black and white unless told otherwise.")
    range: tuple[float, float] = Field(description="Lowest and highest signal of the brain.")
    mean: float = Field(description="Of the brain, as is the deviation.")
    deviation: float
    shape: tuple[int, int, int] = Field(description="Voxels to the left, to the back and upwards.")
    voxel_mm: tuple[float, float, float]


class Shift(BaseModel):
    rows: int
    columns: int
    mirrored: bool


class AgreementResource(BaseModel):
    """Label Dice between query and match, 0…1."""

    expected: float
    low: float = Field(description="Nine in ten such matches lie between low and high.")
    high: float


class WorthResource(BaseModel):
    """What a match is worth; a panel of which nothing is known is null."""

    anatomy: AgreementResource | None
    lesion: AgreementResource | None


class MatchResource(BaseModel):
    rank: int
    volume_key: str
    patient_key: str
    z: int
    position: float
    z_mm: float
    lesion_area_mm2: float | None
    sex: str | None
    age: float | None
    source: str | None
    tags: list[str]
    distance: float = Field(description="Smaller is nearer.")
    normal_part: float = Field(description="What the normal panels add to the distance.")
    abnormal_part: float = Field(description="What the abnormal panels add; both parts make up the distance.")
    normal_distance: float | None = Field(description="In the metric itself, neither weighted nor normalised.")
    abnormal_distance: float | None
    worth: WorthResource | None = Field(
        default=None, description="How well labels can be expected to agree, where that was measured for such a search."
    )
    contributions: Grid = Field(description="Each cell's part of the distance; they add up to it.")
    agreement: dict[str, Grid] = Field(
        description="By panel and cell: 1 where nothing is added to the distance, 0 where most is added in this answer."
    )
    same_codes: dict[str, list[list[bool]]] = Field(description="By panel: cells with the very same code.")
    image_url: str | None
    label_url: str | None
    mask_url: str
    twin_url: str
    shift: Shift | None = Field(default=None, description="Where the lesion was put, in a search anywhere.")


class SearchResponse(BaseModel):
    took_ms: float
    metric: str
    version: str
    subject: str
    matches: list[MatchResource]
    problems: list[str]
    missing: list[str] = Field([], description="Parts of the archive that did not answer; empty for a whole answer.")


class VolumeMatchResource(BaseModel):
    rank: int
    volume_key: str
    patient_key: str
    distance: float
    normal_distance: float
    abnormal_distance: float
    profile: list[float] = Field(description="Each level's part of the distance, bottom to top.")
    representative_z: int
    image_url: str | None


class VolumeSearchResponse(BaseModel):
    took_ms: float
    metric: str
    version: str
    matches: list[VolumeMatchResource]
    missing: list[str] = Field([], description="Parts of the archive that did not answer; empty for a whole answer.")


class PatientMatchResource(BaseModel):
    rank: int
    volume_key: str
    patient_key: str
    distance: float = Field(description="1 - Dice in three dimensions, weighted over the panels.")
    panels: dict[str, float] = Field(description="The same of each panel that was compared.")
    z_index: int = Field(description="The slice that shares most with the subject's at the same height.")
    query_z_index: int = Field(description="The subject's slice at that height.")
    heights_mm: list[float] = Field(description="Heights at which both have slices, bottom to top.")
    profile: list[float] = Field(description="Distance of the two slices at each of these heights.")
    shift: list[int] = Field(description="Where the lesion was put: heights up, pixels of the map down and right.")
    mirrored: bool
    lesion_ratio: float | None = Field(
        description="Amount of the match's predicted lesion over the subject's; null where lesions were not compared."
    )
    sex: str | None
    age: float | None
    source: str | None
    z_indices: list[int] = Field(description="All slices of the volume, bottom to top.")
    z_mm: list[float] = Field(description="Their heights.")
    image_url: str | None = Field(description="Pictures of the slice `z_index`.")
    label_url: str | None
    mask_url: str


class PatientSearchResponse(BaseModel):
    took_ms: float
    version: str
    matches: list[PatientMatchResource]
    problems: list[str]
    missing: list[str] = Field([], description="Parts of the archive that did not answer; empty for a whole answer.")


class Explained(BaseModel):
    """Query and match, decoded beside one another."""

    match: MatchResource
    query: Pictures
    found: Pictures
    lesion_agreement: float = Field(description="Dice of the two predicted lesions, all kinds together.")
