/** What a match is worth, in words a reader uses: agreement in per cent, side, level, size. Distances are for details. */

import type { Estimate, LesionPart, Match, SliceLesion, Volume } from "../api/types";

/** Agreement below which a match is called poor. */
const POOR = 0.35;
const LEVEL_MM = 3;

/** The agreement that the lane is about, where the server tells it. */
export function mainWorth({ worth }: Match, lane: string): Estimate | null {
  if (!worth) return null;
  if (lane === "abnormal") return worth.lesion;
  if (lane === "normal" || lane === "comparators") return worth.anatomy;
  const both = [worth.anatomy, worth.lesion].filter((one) => one !== null);
  return both.length ? both.reduce((least, one) => (one.expected < least.expected ? one : least)) : null;
}

export function isPoor(match: Match, lane: string): boolean {
  const worth = mainWorth(match, lane);
  return worth !== null && worth.expected < POOR;
}

const percent = (value: number): string => `${Math.round(value * 100)} %`;

/** "anatomy ≈ 71 %, lesion ≈ 55 %"; empty where the server does not know. */
export function worthWords({ worth }: Match): string {
  if (!worth) return "";
  const parts = [worth.anatomy && `anatomy ≈ ${percent(worth.anatomy.expected)}`, worth.lesion && `lesion ≈ ${percent(worth.lesion.expected)}`];
  return parts.filter(Boolean).join(", ");
}

/** The same with intervals, and the raw distance; for those who point at it. */
export function detailWords(match: Match): string {
  const one = (name: string, estimate: Estimate | null) =>
    estimate && `${name} ≈ ${percent(estimate.expected)} (90 %: ${percent(estimate.low)} to ${percent(estimate.high)})`;
  const parts = `anatomy ${match.normal_part.toFixed(3)} + lesion ${match.abnormal_part.toFixed(3)}`;
  return [
    match.worth && one("Anatomy", match.worth.anatomy),
    match.worth && one("Lesion", match.worth.lesion),
    `Distance ${match.distance.toFixed(3)} = ${parts}`,
  ]
    .filter(Boolean)
    .join("\n");
}

/** How the match's lesion lies and how large it is, against the one asked about. */
export function lesionWords(own: LesionPart | null, other: LesionPart | null): string[] {
  if (!own || !other) return [];
  if (!own.side && !other.side) return ["no lesion in either"];
  if (!own.side) return [`lesion ${other.side === "both" ? "on both sides" : other.side}`];
  if (!other.side) return ["no lesion"];
  const words = [sideWords(own.side, other.side)];
  const ratio = other.whole_mm2 / own.whole_mm2;
  words.push(`${ratio < 10 ? ratio.toFixed(1) : ratio.toFixed(0)}× size`);
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
  const mm = (match.position - volume.positions[place]!) * height;
  if (Math.abs(mm) < LEVEL_MM) return "same level";
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
