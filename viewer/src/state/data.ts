/** `Data`: what the server said, and what is under way. It follows from the `View`, never the other way round. */

import type { Answer, ArchiveInfo, Job, Match, SubjectView, Upload, Volume, VolumeSummary } from "../api/types";
import type { VolumeFilter } from "../api/client";
import { Store, useStore } from "./store";
import type { SliceRef } from "./view";

export const LANES = ["normal", "both", "abnormal", "comparators"] as const;
export type LaneName = (typeof LANES)[number];

export interface Lane {
  readonly busy: boolean;
  readonly answer: Answer | null;
  readonly error: string | null;
  /** From asking to having the answer, in milliseconds. */
  readonly roundTrip: number | null;
}

/** An uploaded patient and how far its reading has come. */
export interface UploadEntry {
  readonly upload: Upload;
  readonly job: Job | null;
}

export interface Notice {
  readonly id: number;
  readonly kind: "error" | "info";
  readonly text: string;
}

export interface Data {
  readonly archive: ArchiveInfo | null;
  readonly archiveError: string | null;
  readonly needsToken: boolean;
  /** Since when the server does not answer; null while it does. */
  readonly outage: number | null;
  readonly worklist: {
    readonly filter: VolumeFilter;
    readonly items: readonly VolumeSummary[];
    readonly total: number;
    readonly busy: boolean;
    readonly error: string | null;
  };
  readonly volumes: Readonly<Record<string, Volume>>;
  readonly subject: { readonly busy: boolean; readonly view: SubjectView | null; readonly error: string | null };
  readonly lanes: Readonly<Record<LaneName, Lane>>;
  readonly uploads: readonly UploadEntry[];
  /** Files on their way to the server, and how much has gone. */
  readonly sending: { readonly files: readonly string[]; readonly share: number } | null;
  /** The match under the pointer or the focus. */
  readonly pointed: { readonly lane: LaneName; readonly match: Match } | null;
  readonly notices: readonly Notice[];
}

export const EMPTY_LANE: Lane = { busy: false, answer: null, error: null, roundTrip: null };

export const data = new Store<Data>({
  archive: null,
  archiveError: null,
  needsToken: false,
  outage: null,
  worklist: { filter: { text: "", source: "", tag: "", lesion: "" }, items: [], total: 0, busy: true, error: null },
  volumes: {},
  subject: { busy: false, view: null, error: null },
  lanes: { normal: EMPTY_LANE, both: EMPTY_LANE, abnormal: EMPTY_LANE, comparators: EMPTY_LANE },
  uploads: [],
  sending: null,
  pointed: null,
  notices: [],
});

export const useData = <S>(select: (value: Data) => S): S => useStore(data, select);

export const volumeId = (slice: SliceRef): string => `${slice.kind}:${slice.key}`;

/** What is known of the volume of a slice, once it has come. */
export const volumeOf = (now: Data, slice: SliceRef | null): Volume | undefined =>
  slice ? now.volumes[volumeId(slice)] : undefined;

let noticeCount = 0;

/** Say something to the reader; it goes away by itself, errors more slowly. */
export function say(text: string, kind: Notice["kind"] = "info"): void {
  const notice: Notice = { id: ++noticeCount, kind, text };
  data.update((now) => ({ ...now, notices: [...now.notices.filter((one) => one.text !== text), notice].slice(-3) }));
  setTimeout(() => dismiss(notice.id), kind === "error" ? 12_000 : 5_000);
}

export function dismiss(id: number): void {
  data.update((now) => ({ ...now, notices: now.notices.filter((one) => one.id !== id) }));
}

export const messageOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));
