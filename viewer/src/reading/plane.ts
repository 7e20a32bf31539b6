/**
 * Where things lie in a pane: millimetres of the patient ↔ pixels of the screen.
 *
 * Every pane shows the same field at the same scale, as radiologists hang it: the patient's right on the left of the
 * screen, the front at the top. Places in a plane are millimetres from the centre of the field, to the patient's right
 * and to the front, so that they mean the same in every patient.
 */

import type { Geometry } from "../api/types";

export type Place = readonly [right: number, front: number];

export interface Plane {
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
  return { centre: [at(0), at(1)], field: field_mm };
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

export function toPlace(frame: Frame, x: number, y: number): [right: number, front: number] {
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
