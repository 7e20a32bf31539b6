/**
 * The address of a view: `View` ↔ the part of the URL after `#`.
 *
 * No patient data: volumes are written as a short hash of their key and the archive's model, which only somebody with
 * the archive can turn back. Uploads are never written.
 */

import type { Anywhere, Channel, Range } from "../api/types";
import { START, type Cell, type Measure, type Question, type SliceRef, type Stroke, type View } from "./view";

/** Turns the hash of a volume into its key, where the archive has it. */
export type Resolve = (hash: string) => string | undefined;

/** FNV-1a over 64 bits, as 11 characters of base 36 or so: enough to tell volumes apart, not to name one. */
export function hashKey(salt: string, key: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(`${salt}\n${key}`)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash.toString(36);
}

export function writeAddress(view: View, salt: string): string {
  const { question, ask, compare } = view;
  const parts = new URLSearchParams();
  const put = (name: string, value: string | null | undefined, usual = "") => {
    if (value && value !== usual) parts.set(name, value);
  };
  put("s", writeSlice(view.reading, salt));
  put("c", view.channel, START.channel);
  put("four", view.four ? "1" : "");
  put("zoom", view.zoom.toFixed(2), "1.00");
  put("pan", view.pan.map((mm) => mm.toFixed(1)).join(","), "0.0,0.0");
  put("x", view.crosshair?.map((mm) => mm.toFixed(1)).join(","));
  put("h", view.hanging, START.hanging);
  put("ms", view.measures.map(writeMeasure).join("_"));
  put("o", view.overlay, START.overlay);
  put("op", view.opacity.toFixed(2), START.opacity.toFixed(2));
  put("tw", view.twin, "decoded");
  put("sw", view.swipe.toFixed(2), "0.00");
  put("d", view.changed, START.changed);
  put(
    "w",
    Object.entries(view.windows)
      .flatMap(([name, range]) => (range ? [[name, range] as const] : []))
      .map(([name, range]) => `${name}:${range[0].toFixed(2)}:${range[1].toFixed(2)}`)
      .join(","),
  );
  put("l", question.layout, START.question.layout);
  put("share", question.lesionShare.toFixed(2), "0.50");
  put("m", question.metric);
  put("n", String(question.top), String(START.question.top));
  put("fs", question.source);
  put("ft", question.tag);
  put("fx", question.text);
  put("lv", String(question.level), START.question.level as string);
  put("in", question.insideLesion ? "1" : "");
  put("any", question.anywhere);
  put("ask", ask.mode, START.ask.mode);
  put("r", ask.region.map((cell) => cell.join(".")).join("_"));
  put("k", ask.strokes.map(writeStroke).join("_"));
  put("a", writeSlice(ask.anatomyOf, salt));
  put("b", writeSlice(ask.lesionOf, salt));
  if (compare) {
    put("v", writeSlice(compare.with, salt));
    put("vf", String(compare.from));
    put("vl", compare.layout, "side");
    put("vo", compare.labels, "none");
    put("vs", compare.swipe.toFixed(2), "0.50");
    put("va", compare.agreement ? "1" : "");
    put("vn", compare.lane);
  }
  put("pr", view.prior && writeSlice({ kind: "volume", key: view.prior.key, z: 0 }, salt));
  put("prs", view.prior?.show, "lesions");
  return parts.toString();
}

export function readAddress(address: string, resolve: Resolve): View {
  const parts = new URLSearchParams(address);
  const text = (name: string) => parts.get(name) ?? "";
  const slice = (name: string) => readSlice(text(name), resolve);
  const compared = slice("v");
  const prior = slice("pr");
  return {
    ...START,
    reading: slice("s"),
    channel: /^[a-z0-9_-]{1,20}$/.test(text("c")) ? text("c") : START.channel,
    four: text("four") === "1",
    zoom: bounded(Number(text("zoom") || 1), 0.5, 12, 1),
    pan: pair(text("pan")) ?? [0, 0],
    crosshair: pair(text("x")),
    hanging: oneOf(["one", "three", "planes"] as const, text("h"), START.hanging),
    measures: text("ms")
      .split("_")
      .map(readMeasure)
      .filter((measure): measure is Measure => measure !== null),
    overlay: oneOf(["none", "predicted", "known"] as const, text("o"), START.overlay),
    opacity: bounded(Number(text("op") || START.opacity), 0.1, 1, START.opacity),
    twin: oneOf(["decoded", "refined"] as const, text("tw"), "decoded"),
    swipe: bounded(Number(text("sw") || 0), 0, 1, 0),
    changed: oneOf(["lesion", "difference", "both"] as const, text("d"), START.changed),
    windows: readWindows(text("w")),
    question: readQuestion(text),
    ask: {
      mode: oneOf(["patient", "slice", "region", "sketch", "compose"] as const, text("ask"), START.ask.mode),
      region: text("r")
        .split("_")
        .map(numbers("."))
        .filter((cell): cell is number[] => cell?.length === 2) as unknown as Cell[],
      strokes: text("k")
        .split("_")
        .map(readStroke)
        .filter((stroke): stroke is Stroke => stroke !== null),
      anatomyOf: slice("a"),
      lesionOf: slice("b"),
    },
    compare: compared && {
      with: compared,
      from: Math.round(bounded(Number(text("vf")), 0, 65_535, compared.z)),
      layout: oneOf(["side", "swipe", "blink"] as const, text("vl"), "side"),
      labels: oneOf(["none", "predicted", "known"] as const, text("vo"), "none"),
      swipe: bounded(Number(text("vs") || 0.5), 0, 1, 0.5),
      agreement: text("va") === "1",
      lane: oneOf(["", "normal", "both", "abnormal", "comparators"] as const, text("vn"), ""),
    },
    prior: prior && {
      key: prior.key,
      show: oneOf(["none", "lesions", "abnormal", "normal", "subtraction"] as const, text("prs"), "lesions"),
    },
  };
}

function readQuestion(text: (name: string) => string): Question {
  const any = oneOf(["", "shifted", "mirrored", "both", "histogram"] as const, text("any"), "");
  return {
    ...START.question,
    layout: oneOf(["lanes", "one"] as const, text("l"), "lanes"),
    lesionShare: bounded(Number(text("share") || 0.5), 0, 1, 0.5),
    metric: text("m"),
    top: Math.round(bounded(Number(text("n") || START.question.top), 1, 100, START.question.top)),
    source: text("fs").slice(0, 200),
    tag: text("ft").slice(0, 100),
    text: text("fx").slice(0, 200),
    level: readLevel(text("lv")),
    insideLesion: text("in") === "1",
    anywhere: (any || null) as Anywhere | null,
  };
}

function readLevel(text: string): Question["level"] {
  if (!text) return "usual";
  return text === "any" ? "any" : bounded(Number(text), 2, 100, 20);
}

function writeSlice(slice: SliceRef | null, salt: string): string {
  return slice?.kind === "volume" ? `${hashKey(salt, slice.key)}.${slice.z}` : "";
}

function readSlice(text: string, resolve: Resolve): SliceRef | null {
  const [hash = "", z = ""] = text.split(".");
  const key = hash && resolve(hash);
  return key && /^\d+$/.test(z) ? { kind: "volume", key, z: Number(z) } : null;
}

/** Points are written in thousandths of the image. */
function writeStroke({ label, radius_mm, points }: Stroke): string {
  return [label, radius_mm, ...points.flat().map((part) => Math.round(part * 1000).toString(36))].join(".");
}

function readStroke(text: string): Stroke | null {
  const [label, radius, ...rest] = text.split(".");
  const places = rest.map((part) => parseInt(part, 36) / 1000);
  if (!label || !radius || places.length < 2 || places.some((place) => !Number.isFinite(place))) return null;
  const points = Array.from({ length: places.length >> 1 }, (_, i) => [places[2 * i]!, places[2 * i + 1]!] as const);
  return { label: bounded(Number(label), 0, 9, 1), radius_mm: bounded(Number(radius), 1, 40, 6), points };
}

const MEASURES = { l: "length", b: "bidirectional", a: "area" } as const;

/** Points are written in tenths of a millimetre. */
function writeMeasure({ kind, z, points }: Measure): string {
  return [kind[0], z, ...points.flat().map((mm) => Math.round(mm * 10))].join(".");
}

function readMeasure(text: string): Measure | null {
  const [letter = "", z, ...rest] = text.split(".");
  const kind = MEASURES[letter as keyof typeof MEASURES];
  const mm = rest.map((part) => Number(part) / 10);
  if (!kind || !/^\d+$/.test(z ?? "") || mm.length < 4 || mm.some((one) => !Number.isFinite(one))) return null;
  return {
    kind,
    z: Number(z),
    points: Array.from({ length: mm.length >> 1 }, (_, i) => [mm[2 * i]!, mm[2 * i + 1]!] as const),
  };
}

function readWindows(text: string): Partial<Record<Channel, Range>> {
  const windows: Partial<Record<Channel, Range>> = {};
  for (const part of text.split(",")) {
    const [name = "", low, high] = part.split(":");
    if (/^[a-z0-9_-]{1,20}$/.test(name) && Number(low) < Number(high)) windows[name] = [Number(low), Number(high)];
  }
  return windows;
}

function numbers(separator: string): (text: string) => number[] | null {
  return (text) => {
    const parts = text.split(separator).map(Number);
    return text && parts.every(Number.isFinite) ? parts : null;
  };
}

function pair(text: string): [number, number] | null {
  const parts = numbers(",")(text);
  return parts?.length === 2 ? [parts[0]!, parts[1]!] : null;
}

function oneOf<T extends string>(choices: readonly T[], text: string, usual: T): T {
  return choices.find((choice) => choice === text) ?? usual;
}

const bounded = (value: number, low: number, high: number, usual: number): number =>
  Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : usual;
