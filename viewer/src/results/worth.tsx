/** What a match is worth, in words a reader uses: agreement in per cent, side, level, size. Distances are for details. */

import type { Answer, Estimate, LesionPart, Match, SliceLesion, Volume, WholeMatch } from "../api/types";

/** Agreement below which a match is called poor, and below which the archive has nothing like it. */
const POOR = 0.35;
const NOTHING = 0.2;
const LEVEL_MM = 3;

/** How well one panel agrees, 0 to 1. */
interface Share {
  panel: "anatomy" | "lesion";
  value: number;
  /** Nine in ten such matches lie between; null where predicted labels were compared, which is what it is. */
  interval: readonly [low: number, high: number] | null;
}

const fromEstimate = (panel: Share["panel"], one: Estimate | null | undefined): Share[] =>
  one ? [{ panel, value: one.expected, interval: [one.low, one.high] }] : [];

const fromOverlap = (panel: Share["panel"], value: number | undefined): Share[] =>
  value === undefined ? [] : [{ panel, value, interval: null }];

/** All that is known: what labels can be expected to agree, or how far predicted ones do in three dimensions. */
function sharesOf({ worth, whole }: Match): Share[] {
  if (whole) return [...fromOverlap("anatomy", whole.overlap.normal), ...fromOverlap("lesion", whole.overlap.abnormal)];
  return [...fromEstimate("anatomy", worth?.anatomy), ...fromEstimate("lesion", worth?.lesion)];
}

/** The agreement that the lane is about: in a search by both, the lesser. */
function mainShare(match: Match, lane: string): Share | null {
  const wanted = { abnormal: ["lesion"], normal: ["anatomy"], comparators: ["anatomy"] }[lane] ?? ["anatomy", "lesion"];
  const shares = sharesOf(match).filter(({ panel }) => wanted.includes(panel));
  return shares.length ? shares.reduce((least, one) => (one.value < least.value ? one : least)) : null;
}

export const mainWorth = (match: Match, lane: string): number | null => mainShare(match, lane)?.value ?? null;

export const isPoor = (match: Match, lane: string): boolean => (mainWorth(match, lane) ?? 1) < POOR;

/** Whether even the best match of an answer is hardly like what was asked. */
export function isNothing({ matches }: Answer, lane: string): boolean {
  const values = matches.map((match) => mainWorth(match, lane)).filter((value) => value !== null);
  return values.length > 0 && Math.max(...values) < NOTHING;
}

/** Whether an answer's order means nothing: no match is nearer than another. */
export const isTied = ({ matches }: Answer): boolean =>
  matches.length > 1 && matches.every(({ distance }) => Math.abs(distance - matches[0]!.distance) < 1e-6);

const percent = (value: number): string => `${Math.round(value * 100)}\u00a0%`;

export const shareWords = (match: Match, lane: string): string => percent(mainWorth(match, lane) ?? 0);

/** "anatomy ≈ 71 %, lesion ≈ 55 %"; empty where the server does not know. */
export const worthWords = (match: Match): string =>
  sharesOf(match)
    .map(({ panel, value, interval }) => `${panel}\u00a0${interval ? "≈\u00a0" : ""}${percent(value)}`)
    .join(", ");

/** The same with intervals, and the raw distance; for those who point at it. */
export function detailWords(match: Match): string {
  const shares = sharesOf(match).map(({ panel, value, interval }) => {
    const range = interval && ` (90 %: ${percent(interval[0])} to ${percent(interval[1])})`;
    return `${panel} ${range ? "≈ " : ""}${percent(value)}${range ?? ""}`;
  });
  const parts = `anatomy ${match.normal_part.toFixed(3)}, lesion ${match.abnormal_part.toFixed(3)}`;
  const meaning = match.whole
    ? "Overlap (Dice) of predicted labels in three dimensions"
    : shares.length > 0 && "Overlap (Dice) to be expected of true labels";
  return [meaning, ...shares, `Distance ${match.distance.toFixed(3)}: ${parts}`].filter(Boolean).join("\n");
}

/** How the match's lesion lies and how large it is, against the one asked about. */
export function lesionWords(own: LesionPart | null, other: LesionPart | null, whole?: WholeMatch): string[] {
  if (!own || !other) return [];
  const here = whole ? " at the height compared" : ""; // whole patients have lesions elsewhere
  if (!own.side && !other.side) return [`no lesion in either${here}`];
  if (!own.side) return [`lesion ${other.side === "both" ? "on both sides" : other.side}`];
  if (!other.side) return [`no lesion${here}`];
  const words = [sideWords(own.side, other.side)];
  const ratio = whole?.lesion_ratio ?? other.whole_mm2 / own.whole_mm2;
  words.push(`${ratio < 10 ? ratio.toFixed(1) : ratio.toFixed(0)}× ${whole ? "volume" : "size"}`);
  return words;
}

function sideWords(own: NonNullable<LesionPart["side"]>, other: NonNullable<LesionPart["side"]>): string {
  if (own === other) return own === "both" ? "both sides, too" : "same side";
  if (own === "both" || other === "both") return other === "both" ? "both sides" : `${other} only`;
  return "other side";
}

/** How much higher or lower a level is; levels are shares of the brain's height, so that heads of all sizes compare. */
export function levelWords(volume: Volume | undefined, z: number | undefined, match: Match): string {
  const place = volume && z !== undefined ? volume.z_indices.indexOf(z) : -1;
  if (!volume || place < 0) return "";
  const height = Math.abs((volume.z_mm.at(-1) ?? 0) - (volume.z_mm[0] ?? 0));
  const shown = match.whole?.slices.find(([one]) => one === match.z)?.[1];
  const mm = shown === undefined ? (match.position - volume.positions[place]!) * height : shown - volume.z_mm[place]!;
  if (Math.abs(mm) < LEVEL_MM) return match.whole ? "" : "same level"; // patients are compared height by height
  return `${Math.abs(mm).toFixed(0)} mm ${mm > 0 ? "higher" : "lower"}`;
}

/** Known areas are compared with known ones, predicted with predicted; never one with the other. */
export function comparedParts(
  own: SliceLesion | null,
  other: SliceLesion | null,
  overlay: string,
): [LesionPart | null, LesionPart | null] {
  const known = overlay === "known" && own?.known && other?.known;
  return known ? [own.known, other.known] : [own?.predicted ?? null, other?.predicted ?? null];
}
