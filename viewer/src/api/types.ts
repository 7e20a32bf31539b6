/** What the server says and is told: the JSON of /api/v1 as types. Knows nothing about the page. */

/** A channel's name, as the model has it. */
export type Channel = string;
const CHANNEL_TITLES: Record<string, string> = { t1: "T1", t1gd: "T1Gd", t2: "T2", flair: "FLAIR" };

/** How a channel is called on the page. */
export const titleOf = (channel: string): string => CHANNEL_TITLES[channel] ?? channel.toUpperCase();

/** What is shown black and white. */
export type Range = readonly [low: number, high: number];

export interface LabelClass {
  id: number;
  name: string;
  colour: string;
}

/** A distance; one that is not ready is still being prepared. */
export interface Metric {
  name: string;
  ready: boolean;
}

export interface ArchiveInfo {
  name: string;
  model: {
    fingerprint: string;
    image_size: [height: number, width: number];
    grid: [rows: number, columns: number];
    can_sketch: boolean;
    can_refine: boolean;
  };
  patients: number;
  volumes: number;
  slices: number;
  version: string;
  channels: Channel[];
  metrics: Metric[];
  default_metric: string;
  /** Width of a good question about a level, in millimetres. */
  default_level_mm: number;
  lesion_classes: LabelClass[];
  /** Whether whole patients can be asked for. */
  can_find_patients: boolean;
  sources: string[];
  tags: string[];
  problems: string[];
  disease: string;
  /** All archives of this server, this one too; empty where it is the only one. */
  beside: { name: string; disease: string; path: string }[];
}

/** How pixels of a slice lie in the patient: (column, row, z index) to RAS+ millimetres. */
export interface Geometry {
  slice_affine: number[][];
  image_size: [height: number, width: number];
  field_mm: [height: number, width: number];
}

export interface VolumeSummary {
  volume_key: string;
  patient_key: string;
  slices: number;
  representative_z: number;
  largest_lesion_mm2: number | null;
  lesion_source: "labels" | "predicted" | "unknown";
  sex: string | null;
  age: number | null;
  study_date: string | null;
  source: string | null;
  tags: string[];
  has_pixels: boolean;
  thumbnail_url: string | null;
}

export interface Volume extends VolumeSummary {
  z_indices: number[];
  positions: number[];
  z_mm: number[];
  lesion_area: (number | null)[];
  geometry: Geometry;
  channel_urls: Partial<Record<Channel, string>>;
  label_urls: Partial<Record<"lesion" | "anatomy", string>>;
  export_urls: Partial<Record<string, string>>;
  /** Signal that is usually shown black and white. */
  windows: Partial<Record<Channel, Range>>;
  warnings: string[];
}

export interface VolumeList {
  total: number;
  items: VolumeSummary[];
}

export type Subject =
  | { volume: string; z?: number }
  | { upload: string; z?: number }
  | { compose: { normal: Subject; abnormal: Subject } }
  | { sketch: { base: Subject; labels: string; use_base_anatomy: boolean } };

export interface Trust {
  level: string;
  warnings: string[];
}

/** Addresses of pictures of a slice; null where there is no such picture. */
export interface Pictures {
  image: string | null;
  label: string | null;
  reconstruction: string;
  twin: string;
  /** The scan with healthy tissue painted over the lesion. */
  refined: string | null;
  mask: string;
  difference: string;
}

export interface SubjectView {
  name: string;
  z: number | null;
  position: number | null;
  pictures: Pictures;
  areas_mm2: Record<string, number>;
  trust: Trust;
}

export type By = "normal" | "abnormal" | "both";
export type Anywhere = "shifted" | "mirrored" | "both" | "histogram";

export interface SearchBody {
  subject: Subject;
  by: By;
  weight: number;
  /** The server's best for that panel where it is left out. */
  metric?: string;
  top: number;
  filter: { text?: string; source?: string; tags?: string[]; lesion_free?: boolean };
  region?: { cells: [row: number, column: number][] };
  inside_lesion: boolean;
  anywhere: Anywhere | null;
  level_mm?: number;
  include_own: boolean;
}

/** A question about a whole patient. */
export interface PatientSearchBody {
  subject: Subject;
  by: By;
  weight: number;
  top: number;
  filter: SearchBody["filter"];
  anywhere: Anywhere | null;
}

/** A lesion in one slice, as one source has it. */
export interface LesionPart {
  areas_mm2: Record<string, number>;
  whole_mm2: number;
  side: "left" | "right" | "both" | null;
  centre_mm: [right: number, front: number] | null;
}

/** What is known and what is predicted, never mixed. */
export interface SliceLesion {
  z: number;
  known: LesionPart | null;
  predicted: LesionPart;
}

/** One image of a volume in numbers. */
export interface ChannelSignal {
  channel: Channel;
  window: Range;
  range: Range;
  mean: number;
  deviation: number;
  shape: [number, number, number];
  voxel_mm: [number, number, number];
}

/** Agreement that a match is expected to have, 0 to 1, with its 90 % interval. */
export interface Estimate {
  expected: number;
  low: number;
  high: number;
}

export interface Worth {
  anatomy: Estimate | null;
  lesion: Estimate | null;
}

/** By cell: 1 where nothing is added to the distance, 0 where most is added in this answer. */
export type CellGrid = number[][];

export interface Match {
  rank: number;
  volume_key: string;
  patient_key: string;
  z: number;
  position: number;
  z_mm: number;
  lesion_area_mm2: number | null;
  sex: string | null;
  age: number | null;
  source: string | null;
  distance: number;
  normal_part: number;
  abnormal_part: number;
  agreement: Partial<Record<"normal" | "abnormal", CellGrid>>;
  image_url: string | null;
  label_url: string | null;
  mask_url: string;
  twin_url: string;
  worth?: Worth | null;
  /** Predicted lesion in what is known to be free of it, in square millimetres. */
  doubtful_mm2?: number | null;
  shift: { rows: number; columns: number; mirrored: boolean } | null;
  /** Where a whole patient was found. */
  whole?: WholeMatch;
}

/** What a search for patients says of one. */
export interface WholeMatch {
  /** Overlap of predicted labels in three dimensions, 0 to 1, by panel. */
  overlap: Partial<Record<"normal" | "abnormal", number>>;
  /** The slice of the one asked about that lies at the height of the match's `z`. */
  query_z: number;
  lesion_ratio: number | null;
  /** All slices of the match with their heights. */
  slices: readonly (readonly [z: number, mm: number])[];
}

export interface PatientMatch {
  rank: number;
  volume_key: string;
  patient_key: string;
  distance: number;
  panels: Partial<Record<"normal" | "abnormal", number>>;
  z_index: number;
  query_z_index: number;
  heights_mm: number[];
  profile: number[];
  shift: [up: number, down: number, right: number];
  mirrored: boolean;
  lesion_ratio: number | null;
  sex: string | null;
  age: number | null;
  source: string | null;
  z_indices: number[];
  z_mm: number[];
  image_url: string | null;
  label_url: string | null;
  mask_url: string;
}

export interface Answer {
  took_ms: number;
  /** Empty where whole patients were found. */
  metric: string;
  matches: Match[];
  problems: string[];
  /** Parts of the archive that did not answer, one sentence each. */
  missing?: string[];
}

/** What an uploaded file can be. */
export type FileRole = Channel | "lesion" | "anatomy";

export interface Upload {
  id: string;
  state: "needs_channels" | "queued" | "running" | "ready" | "failed";
  job: string | null;
  files: { name: string; bytes: number; channel: FileRole | null }[];
  missing: string[];
  patient_key: string;
  error: string | null;
  volume: Volume | null;
}

/** What has changed between two studies of one patient. */
export interface ChangeInfo {
  words: string;
  has_changed: boolean;
  classes: {
    name: string;
    old_ml: number;
    new_ml: number;
    percent: number | null;
    rano: "none" | "new" | "gone" | "increased" | "stable" | "decreased";
  }[];
  rotation_deg: number;
  shift_mm: number;
  slices: { z: number; old_mm2: number; new_mm2: number }[];
  geometry: Geometry;
  channel_urls: Partial<Record<Channel, string>>;
}

export interface Job {
  state: "queued" | "running" | "done" | "failed";
  done: number;
  total: number;
  message: string;
  error: string | null;
}

/** Where a volume is in the PACS that it came from. */
export interface PacsPlace {
  known: boolean;
  server: string | null;
  viewer: string | null;
  sent: string[];
}

export type ExportFormat = "figure" | "csv" | "json";
