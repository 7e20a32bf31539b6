/** Painting a lesion: the brush, and the layer that shows what is painted. */

import { useEffect, useRef, useState } from "preact/hooks";
import { addStroke, useView } from "../state/actions";
import { useData, volumeOf } from "../state/data";
import { Store, useStore } from "../state/store";
import type { Stroke } from "../state/view";
import type { Tool } from "../reading/pointer";
import { fieldBox, toFraction, type Frame, type Plane } from "../reading/plane";
import { paint } from "./strokes";

export const BRUSH_MM = { least: 2, most: 24 };

/** What the next stroke will be; label 0 erases. Not part of the view: it changes nothing that is seen. */
export const brush = new Store({ label: 3, radius_mm: 8 });

export interface SketchTool extends Tool {
  /** The stroke under way. */
  drawing: Stroke | null;
}

export function useSketchTool(plane: Plane): SketchTool {
  const [drawing, setDrawing] = useState<Stroke | null>(null);
  const { label, radius_mm } = useStore(brush, (now) => now);
  const latest = useRef<Stroke | null>(null);
  const draw = (stroke: Stroke | null) => {
    latest.current = stroke;
    setDrawing(stroke);
  };
  return {
    cursor: "crosshair",
    drawing,
    down: (place) => draw({ label, radius_mm, points: [toFraction(plane, place)] }),
    move(place) {
      const stroke = latest.current;
      const last = stroke?.points.at(-1);
      const point = toFraction(plane, place);
      if (!stroke || !last || Math.hypot(point[0] - last[0], point[1] - last[1]) < 0.008) return;
      draw({ ...stroke, points: [...stroke.points, point] });
    },
    up() {
      if (latest.current) addStroke(latest.current);
      draw(null);
    },
  };
}

/** The label map itself, as the server will get it. */
export function SketchLayer({ frame, plane, drawing }: { frame: Frame; plane: Plane; drawing: Stroke | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const strokes = useView((view) => view.ask.strokes);
  const reading = useView((view) => view.reading);
  const geometry = useData((now) => volumeOf(now, reading)?.geometry);
  const classes = useData((now) => now.archive?.lesion_classes);
  const [height, width] = geometry?.image_size ?? [128, 128];
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !classes) return;
    const colours = new Map(classes.map(({ id, colour }) => [id, parseInt(colour.slice(1), 16)]));
    const labels = paint(drawing ? [...strokes, drawing] : strokes, { size: [height, width], field_mm: plane.field });
    const pixels = context.createImageData(width, height);
    labels.forEach((label, i) => {
      const colour = colours.get(label);
      if (colour !== undefined) pixels.data.set([colour >> 16, (colour >> 8) & 255, colour & 255, 190], i * 4);
    });
    context.putImageData(pixels, 0, 0);
  }, [strokes, drawing, classes, height, width, plane]);
  const box = fieldBox(frame, plane);
  return (
    <canvas
      class="picture"
      ref={canvas}
      width={width}
      height={height}
      role="img"
      aria-label={strokes.length ? `Sketch of ${strokes.length} strokes` : "Empty sketch"}
      style={{ left: `${box.left}px`, top: `${box.top}px`, width: `${box.width}px`, height: `${box.height}px` }}
    />
  );
}
