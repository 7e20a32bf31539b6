/**
 * Where things lie in a pane: millimetres of the patient ↔ pixels of the screen.
 *
 * Panes hang as radiologists hang them: axial with the patient's right on the left of the screen and the front at the
 * top, coronal with the right on the left, sagittal with the nose on the left, both with the head up. Places in a plane
 * are millimetres from the centre of the field, growing to the left and the top of the screen, so that they mean the same
 * in every patient: right and front, right and up, front and up.
 */

import type { Geometry, Volume } from "../api/types";

export type Place = readonly [left: number, top: number];
export type Axis = "axial" | "coronal" | "sagittal";
/** What stands at the edges of the screen: left, right, top, bottom. */
export const SIDES: Record<Axis, readonly [string, string, string, string]> = {
  axial: ["R", "L", "A", "P"],
  coronal: ["R", "L", "S", "I"],
  sagittal: ["A", "P", "S", "I"],
};

export interface Plane {
  axis: Axis;
  /** Centre of the field in the scanner's world, RAS+ millimetres. */
  centre: Place;
  field: readonly [height: number, width: number];
}

export interface Frame {
  width: number;
  height: number;
  /** Screen pixels per millimetre. */
  scale: number;
  pan: Place;
}

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** The plane of a volume's slices; all of them share it. */
export function planeOf({ slice_affine, image_size, field_mm }: Geometry): Plane {
  const at = (row: number) =>
    slice_affine[row]![0]! * ((image_size[1] - 1) / 2) +
    slice_affine[row]![1]! * ((image_size[0] - 1) / 2) +
    slice_affine[row]![3]!;
  return { axis: "axial", centre: [at(0), at(1)], field: field_mm };
}

const MARGIN_MM = 12;

/** The coronal or sagittal plane of the same volume: as wide as its field, as high as its brain. */
export function uprightPlane(axial: Plane, volume: Volume, axis: "coronal" | "sagittal"): Plane {
  const [low, high] = [volume.z_mm[0] ?? 0, volume.z_mm.at(-1) ?? 0];
  const [front, right] = axial.field;
  return {
    axis,
    centre: [axial.centre[axis === "coronal" ? 0 : 1], (low + high) / 2],
    field: [Math.abs(high - low) + 2 * MARGIN_MM, axis === "coronal" ? right : front],
  };
}

/** A place and the height of the cut, or what stands for it, in the scanner's world: right, front, up. */
export function toWorld({ axis, centre }: Plane, place: Place, depth: number): [number, number, number] {
  const [u, v] = [centre[0] + place[0], centre[1] + place[1]];
  if (axis === "axial") return [u, v, depth];
  return axis === "coronal" ? [u, depth, v] : [depth, u, v];
}

/** Where a point of the scanner's world lies in a plane. */
export function fromWorld({ axis, centre }: Plane, [x, y, z]: readonly [number, number, number]): Place {
  const [u, v] = axis === "axial" ? [x, y] : axis === "coronal" ? [x, z] : [y, z];
  return [u - centre[0], v - centre[1]];
}

/** A point of the scanner's world in words: R 23 · A 10 · S 45 mm. */
export function worldWords([x, y, z]: readonly [number, number, number]): string {
  const one = (mm: number, plus: string, minus: string) => `${mm < 0 ? minus : plus} ${Math.abs(mm).toFixed(0)}`;
  return `${one(x, "R", "L")} · ${one(y, "A", "P")} · ${one(z, "S", "I")} mm`;
}

/** A frame that shows the whole field at zoom 1. */
export function frameOf(size: { width: number; height: number }, plane: Plane, zoom: number, pan: Place): Frame {
  const fit = Math.min(size.width / plane.field[1], size.height / plane.field[0]);
  return { ...size, scale: Math.max(fit, 1e-3) * zoom, pan };
}

export function toScreen(frame: Frame, place: Place): [x: number, y: number] {
  return [
    frame.width / 2 - (place[0] - frame.pan[0]) * frame.scale,
    frame.height / 2 - (place[1] - frame.pan[1]) * frame.scale,
  ];
}

export function toPlace(frame: Frame, x: number, y: number): [left: number, top: number] {
  return [frame.pan[0] - (x - frame.width / 2) / frame.scale, frame.pan[1] - (y - frame.height / 2) / frame.scale];
}

/** Where the whole field lies on the screen. */
export function fieldBox(frame: Frame, { field }: Plane): Box {
  const [left, top] = toScreen(frame, [field[1] / 2, field[0] / 2]);
  return { left, top, width: field[1] * frame.scale, height: field[0] * frame.scale };
}

/** A place as fractions of the field, from its left and its top. */
export function toFraction({ field }: Plane, place: Place): [x: number, y: number] {
  return [0.5 - place[0] / field[1], 0.5 - place[1] / field[0]];
}
