/**
 * `View`: everything that a reader has chosen, and nothing that the server said.
 *
 * It is one plain value. Undo keeps older ones, the address bar writes one down, and all data on the page follow from it.
 */

import type { Anywhere, Channel, Range } from "../api/types";

/** A slice of an archived volume or of an upload; `key` is the volume's key or the upload's id. */
export interface SliceRef {
  readonly kind: "volume" | "upload";
  readonly key: string;
  readonly z: number;
}

export type Cell = readonly [row: number, column: number];
/** What is asked about: the whole patient finds patients, everything else finds slices. */
export type AskMode = "patient" | "slice" | "region" | "sketch" | "compose";

/** One movement of a brush; points are fractions of the image's width and height. */
export interface Stroke {
  readonly label: number;
  readonly radius_mm: number;
  readonly points: readonly (readonly [x: number, y: number])[];
}

export type MeasureKind = "length" | "bidirectional" | "area";

/** Something measured in one slice; points are millimetres from the centre of the field, as the crosshair's are. */
export interface Measure {
  readonly kind: MeasureKind;
  readonly z: number;
  /** Length: both ends. Bidirectional: the ends of the long axis, then of the short one. Area: the outline. */
  readonly points: readonly (readonly [right: number, front: number])[];
}

export type Tool = "crosshair" | MeasureKind;
/** How panes hang: the patient alone, the diptych, or three planes with the twin. */
export type Hanging = "one" | "three" | "planes";

export interface Question {
  readonly layout: "lanes" | "one";
  /** Share of the lesion in a search by both: 0 compares anatomy alone, 1 the lesion alone. */
  readonly lesionShare: number;
  /** Empty for the archive's default. */
  readonly metric: string;
  readonly top: number;
  readonly source: string;
  readonly tag: string;
  readonly text: string;
  readonly insideLesion: boolean;
  readonly anywhere: Anywhere | null;
  /** Only slices within so many millimetres of the same level; the archive's usual width, or any level. */
  readonly level: number | "usual" | "any";
}

export interface Ask {
  readonly mode: AskMode;
  readonly region: readonly Cell[];
  readonly strokes: readonly Stroke[];
  readonly anatomyOf: SliceRef | null;
  readonly lesionOf: SliceRef | null;
}

export interface Compare {
  readonly with: SliceRef;
  /** The slice of the patient who is read that it was compared with first; both then move by the same millimetres. */
  readonly from: number;
  readonly layout: "side" | "swipe" | "blink";
  readonly labels: "none" | "predicted" | "known";
  /** The lane that it was found in; empty where nobody knows. */
  readonly lane: string;
  /** Share of the patient that covers the match while swiping, from the left. */
  readonly swipe: number;
  /** Whether the map of agreeing cells lies over the match. */
  readonly agreement: boolean;
}

/** An earlier study of the same patient, beside the one that is read. */
export interface Prior {
  readonly key: string;
  /** What lies over both: nothing, their lesions, cells whose code changed in either panel, or the plain subtraction. */
  readonly show: "none" | "lesions" | "abnormal" | "normal" | "subtraction";
}

export interface View {
  readonly reading: SliceRef | null;
  readonly channel: Channel;
  /** Whether all four channels are shown at once. */
  readonly four: boolean;
  /** Windows that were changed by hand: 0 is what is usually black in that volume, 1 what is usually white. */
  readonly windows: Partial<Record<Channel, Range>>;
  readonly zoom: number;
  /** Shift of the picture's centre in millimetres: to the patient's right, and to the front. */
  readonly pan: readonly [x: number, y: number];
  /** Millimetres from the centre of the field, in the same directions. */
  readonly crosshair: readonly [x: number, y: number] | null;
  readonly hanging: Hanging;
  readonly tool: Tool;
  readonly measures: readonly Measure[];
  readonly overlay: "none" | "predicted" | "known";
  readonly opacity: number;
  readonly changed: "lesion" | "difference" | "both";
  /** Which healthy twin is shown: decoded from the code, or the lesion painted over in the patient's own pixels. */
  readonly twin: "decoded" | "refined";
  /** Share of the original that covers the twin, from the left. */
  readonly swipe: number;
  readonly question: Question;
  readonly ask: Ask;
  readonly compare: Compare | null;
  readonly prior: Prior | null;
}

export const START: View = {
  reading: null,
  channel: "t1gd",
  four: false,
  windows: {},
  zoom: 1,
  pan: [0, 0],
  crosshair: null,
  hanging: "three",
  tool: "crosshair",
  measures: [],
  overlay: "none",
  opacity: 0.5,
  changed: "both",
  twin: "decoded",
  swipe: 0,
  question: {
    layout: "lanes",
    lesionShare: 0.5,
    metric: "",
    top: 12,
    source: "",
    tag: "",
    text: "",
    insideLesion: false,
    anywhere: null,
    level: "usual",
  },
  ask: { mode: "patient", region: [], strokes: [], anatomyOf: null, lesionOf: null },
  compare: null,
  prior: null,
};

export const sameSlice = (one: SliceRef | null, other: SliceRef | null): boolean =>
  one === other || (one?.kind === other?.kind && one?.key === other?.key && one?.z === other?.z);

export const sameVolume = (one: SliceRef | null, other: SliceRef | null): boolean =>
  one === other || (one?.kind === other?.kind && one?.key === other?.key);
