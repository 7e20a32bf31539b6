/** From strokes of a brush to a label map of the network's size. Knows millimetres, no canvas and no page. */

import type { Stroke } from "../state/view";

export interface Canvas {
  /** Rows and columns. */
  size: readonly [height: number, width: number];
  /** What they show, in millimetres; pixels need not be square. */
  field_mm: readonly [height: number, width: number];
}

/** Paint strokes in order, `[height × width]`; label 0 erases. */
export function paint(strokes: readonly Stroke[], canvas: Canvas): Uint8Array {
  const [height, width] = canvas.size;
  const labels = new Uint8Array(height * width);
  for (const stroke of strokes) {
    stroke.points.forEach((point, i) => {
      for (const [x, y] of between(stroke.points[i - 1] ?? point, point)) dab(labels, canvas, x, y, stroke);
    });
  }
  return labels;
}

/** Points from one to another, close enough that no gap shows. */
function between(from: readonly [number, number], to: readonly [number, number]): [number, number][] {
  const steps = Math.max(1, Math.ceil(Math.hypot(to[0] - from[0], to[1] - from[1]) * 160));
  return Array.from({ length: steps }, (_, i) => {
    const part = (i + 1) / steps;
    return [from[0] + (to[0] - from[0]) * part, from[1] + (to[1] - from[1]) * part];
  });
}

/** One round spot in millimetres, an ellipse in pixels. */
function dab(labels: Uint8Array, { size, field_mm }: Canvas, x: number, y: number, { label, radius_mm }: Stroke): void {
  const [height, width] = size;
  const radius = [(radius_mm / field_mm[0]) * height, (radius_mm / field_mm[1]) * width] as const;
  const centre = [y * height - 0.5, x * width - 0.5] as const;
  for (
    let row = Math.max(0, Math.ceil(centre[0] - radius[0]));
    row <= Math.min(height - 1, centre[0] + radius[0]);
    row++
  ) {
    const reach = radius[1] * Math.sqrt(Math.max(0, 1 - ((row - centre[0]) / radius[0]) ** 2));
    const first = Math.max(0, Math.ceil(centre[1] - reach));
    const last = Math.min(width - 1, Math.floor(centre[1] + reach));
    if (last >= first) labels.fill(label, row * width + first, row * width + last + 1);
  }
}
