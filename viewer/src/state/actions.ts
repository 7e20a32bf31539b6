/** Everything a reader can do, each as one named change of the `View`. Knows no rendering and asks no server. */

import type { Channel, Range } from "../api/types";
import { data, volumeOf } from "./data";
import { History } from "./history";
import { Store, useStore } from "./store";
import {
  START,
  sameVolume,
  type Ask,
  type Compare,
  type Measure,
  type Prior,
  type Question,
  type SliceRef,
  type Stroke,
  type View,
} from "./view";

export const view = new Store<View>(START);
export const history = new History(view);
export const useView = <S>(select: (value: View) => S): S => useStore(view, select);

/** The usual window of a channel, to which chosen ones are relative. */
export const USUAL: Range = [0, 1];
const ZOOM: Range = [0.5, 12];
const MOST_MEASURES = 40;

const clamp = (value: number, [low, high]: Range): number => Math.min(high, Math.max(low, value));

/** Look at a slice; one of another volume starts with the whole picture. */
export function open(slice: SliceRef): void {
  history.change("open", (now) => {
    if (sameVolume(now.reading, slice)) return { ...now, reading: slice, compare: null, prior: null };
    // Whoever opens a patient asks for patients; whoever composes goes on composing.
    const mode = now.ask.mode === "compose" ? "compose" : "patient";
    const ask: Ask = { ...now.ask, mode, region: [], strokes: [] };
    const picture = { zoom: 1, pan: [0, 0], crosshair: null, windows: {}, swipe: 0, measures: [] } as const;
    return { ...now, ...picture, reading: slice, ask, compare: null, prior: null };
  });
}

/** Go up or down by some slices of the brain. */
export function scroll(steps: number): void {
  const { reading } = view.get();
  const slices = volumeOf(data.get(), reading)?.z_indices;
  if (!reading || !slices?.length) return;
  const place = slices.indexOf(reading.z);
  goTo(slices[clamp((place < 0 ? 0 : place) + steps, [0, slices.length - 1])]!);
}

export function goTo(z: number): void {
  history.change("scroll", (now) =>
    now.reading && now.reading.z !== z ? { ...now, reading: { ...now.reading, z } } : now,
  );
}

/** Go to the slice with the largest lesion. */
export function goToLesion(): void {
  const volume = volumeOf(data.get(), view.get().reading);
  if (volume) goTo(volume.representative_z);
}

export const showChannel = (channel: Channel): void => history.change("channel", (now) => ({ ...now, channel }));

export const set = <K extends "four" | "overlay" | "opacity" | "changed" | "twin" | "swipe" | "crosshair" | "hanging" | "tool">(
  name: K,
  value: View[K],
): void => history.change(name, (now) => ({ ...now, [name]: value }));

/** Move the window: `width` makes it wider, `level` brightens or darkens; both as shares of the usual window. */
export function changeWindow(width: number, level: number): void {
  history.change("window", (now) => {
    const [low, high] = now.windows[now.channel] ?? USUAL;
    const middle = clamp((low + high) / 2 + level, [-1, 2]);
    const half = clamp((high - low) / 2 + width / 2, [0.02, 2]);
    return { ...now, windows: { ...now.windows, [now.channel]: [middle - half, middle + half] as const } };
  });
}

/** Show a channel in a window, as shares of the usual one; without it, in the usual one. */
export function setWindow(window: Range | null): void {
  history.change("window preset", (now) => {
    const { [now.channel]: _, ...others } = now.windows;
    return { ...now, windows: window ? { ...others, [now.channel]: window } : others };
  });
}

/** Keep a measurement; each is a step of its own. */
export const addMeasure = (measure: Measure): void =>
  history.change(`measure ${view.get().measures.length}`, (now) => ({
    ...now,
    measures: [...now.measures, measure].slice(-MOST_MEASURES),
  }));

export const removeMeasure = (measure: Measure): void =>
  history.change("measure removed", (now) => ({ ...now, measures: now.measures.filter((one) => one !== measure) }));

/** Zoom, keeping the point `at` (millimetres from the field's centre) where it is. */
export function zoomBy(factor: number, at: readonly [number, number] = view.get().pan): void {
  history.change("zoom", (now) => {
    const zoom = clamp(now.zoom * factor, ZOOM);
    const kept = now.zoom / zoom;
    const pan = [at[0] + (now.pan[0] - at[0]) * kept, at[1] + (now.pan[1] - at[1]) * kept] as const;
    return { ...now, zoom, pan };
  });
}

export const panBy = (x: number, y: number): void =>
  history.change("pan", (now) => ({ ...now, pan: [now.pan[0] + x, now.pan[1] + y] }));

/** Window, zoom and position as they were at first. */
export const resetPicture = (): void =>
  history.change("reset", (now) => ({ ...now, windows: {}, zoom: 1, pan: [0, 0], crosshair: null }));

export const askWith = (change: Partial<Question>): void =>
  history.change(`question ${Object.keys(change).join()}`, (now) => ({
    ...now,
    question: { ...now.question, ...change },
  }));

export const setAsk = (change: Partial<Ask>): void =>
  history.change(`ask ${Object.keys(change).join()}`, (now) => ({ ...now, ask: { ...now.ask, ...change } }));

/** Each stroke is a step of its own, however fast they follow each other. */
export const addStroke = (stroke: Stroke): void =>
  history.change(`stroke ${view.get().ask.strokes.length}`, (now) => ({
    ...now,
    ask: { ...now.ask, strokes: [...now.ask.strokes, stroke] },
  }));

/** Put a match beside the patient; `from` is the patient's slice that it belongs to, the open one unless told. */
export const compareWith = (slice: SliceRef, lane = "", from?: number): void =>
  history.change(`compare ${slice.key} ${slice.z}`, (now) => ({
    ...now,
    compare: {
      layout: "side",
      labels: now.overlay,
      swipe: 0.5,
      agreement: false,
      ...now.compare,
      lane,
      with: slice,
      from: from ?? now.reading?.z ?? 0,
    },
  }));

export const setCompare = (change: Partial<Compare>): void =>
  history.change(`compare ${Object.keys(change).join()}`, (now) =>
    now.compare ? { ...now, compare: { ...now.compare, ...change } } : now,
  );

/** Put an earlier study beside the one that is read, or beside `present`, which is read from then on. */
export const showPrior = (key: string, present?: SliceRef): void =>
  history.change(`prior ${key} ${present?.key ?? ""}`, (now) => ({
    ...now,
    reading: present ?? now.reading,
    measures: present ? [] : now.measures,
    prior: { show: "lesions", ...now.prior, key },
    compare: null,
  }));

export const setPrior = (change: Partial<Prior>): void =>
  history.change(`prior ${Object.keys(change).join()}`, (now) =>
    now.prior ? { ...now, prior: { ...now.prior, ...change } } : now,
  );

export const closePrior = (): void => history.change("prior", (now) => ({ ...now, prior: null }));

export const closeCompare = (): void => history.change("compare", (now) => ({ ...now, compare: null }));
