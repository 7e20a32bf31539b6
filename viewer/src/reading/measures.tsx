/** Measuring in the axial plane: length, two diameters as RANO has them, area; in millimetres of the patient. */

import { useRef, useState } from "preact/hooks";
import { addMeasure, goTo, removeMeasure, set, useView } from "../state/actions";
import type { Measure, MeasureKind, Tool as ToolName } from "../state/view";
import { Segmented } from "../shell/controls";
import { Menu } from "../shell/menu";
import { toScreen, type Frame, type Place } from "./plane";
import type { Tool } from "./pointer";

const SHORTEST_MM = 1;

const distance = (a: Place, b: Place): number => Math.hypot(a[0] - b[0], a[1] - b[1]);

/** Area inside an outline, by the shoelace formula, in square millimetres. */
export function areaOf(points: readonly Place[]): number {
  const twice = points.reduce((sum, [x, y], i) => {
    const [nextX, nextY] = points[(i + 1) % points.length]!;
    return sum + x * nextY - nextX * y;
  }, 0);
  return Math.abs(twice) / 2;
}

/** Numbers of a measurement, for people and for exports. */
export function valuesOf({ kind, points }: Measure): Record<string, number> {
  const round = (value: number) => Math.round(value * 10) / 10;
  if (kind === "area") return { area_mm2: round(areaOf(points)) };
  const long = distance(points[0]!, points[1]!);
  if (kind === "length") return { length_mm: round(long) };
  const short = distance(points[2]!, points[3]!);
  return { long_mm: round(long), short_mm: round(short), product_mm2: round(long * short) };
}

export function measureWords(measure: Measure): string {
  const values = valuesOf(measure);
  if (measure.kind === "area") return `${(values.area_mm2! / 100).toFixed(2)} cm²`;
  if (measure.kind === "length") return `${values.length_mm!.toFixed(1)} mm`;
  return `${values.long_mm!.toFixed(1)} × ${values.short_mm!.toFixed(1)} mm`;
}

export interface MeasureTool extends Tool {
  /** What is being drawn. */
  draft: Measure | null;
}

/** The tool that the reader has chosen; undefined for the crosshair. */
export function useMeasureTool(z: number): MeasureTool | undefined {
  const kind = useView((view) => view.tool);
  const [draft, setDraft] = useState<Measure | null>(null);
  const latest = useRef<Measure | null>(null);
  const draw = (next: Measure | null) => {
    latest.current = next;
    setDraft(next);
  };
  if (kind === "crosshair") return undefined;
  return {
    cursor: "crosshair",
    draft: draft?.kind === kind && draft.z === z ? draft : null,
    down(place) {
      const before = latest.current;
      const second = kind === "bidirectional" && before?.kind === kind && before.z === z && before.points.length === 2;
      draw(second ? { ...before, points: [...before.points, place, place] } : { kind, z, points: [place, place] });
    },
    move(place) {
      if (latest.current) draw(moved(latest.current, place));
    },
    up() {
      const done = latest.current && finished(latest.current);
      if (done) addMeasure(done);
      if (done || !latest.current || !awaitsMore(latest.current)) draw(null);
    },
  };
}

function moved(measure: Measure, place: Place): Measure {
  const { kind, points } = measure;
  if (kind === "area") return distance(points.at(-1)!, place) < 1 ? measure : { ...measure, points: [...points, place] };
  const end = kind === "bidirectional" && points.length === 4 ? perpendicular(points, place) : place;
  return { ...measure, points: [...points.slice(0, -1), end] };
}

/** The second diameter stands at right angles to the first, as RANO asks for. */
function perpendicular(points: readonly Place[], place: Place): Place {
  const [a, b, start] = [points[0]!, points[1]!, points[2]!];
  const [x, y] = [a[1] - b[1], b[0] - a[0]];
  const along = ((place[0] - start[0]) * x + (place[1] - start[1]) * y) / (x * x + y * y || 1);
  return [start[0] + along * x, start[1] + along * y];
}

/** Whether the first of two diameters stands, and the second is still to be drawn. */
const awaitsMore = ({ kind, points }: Measure): boolean =>
  kind === "bidirectional" && points.length === 2 && distance(points[0]!, points[1]!) >= SHORTEST_MM;

/** What is whole and large enough to keep; the longer diameter comes first. */
function finished(measure: Measure): Measure | null {
  const { kind, points } = measure;
  if (kind === "length") return distance(points[0]!, points[1]!) >= SHORTEST_MM ? measure : null;
  if (kind === "area") return points.length >= 4 && areaOf(points) >= SHORTEST_MM ? measure : null;
  if (points.length < 4 || distance(points[2]!, points[3]!) < SHORTEST_MM) return null;
  const [a, b, c, d] = points as [Place, Place, Place, Place];
  return distance(a, b) >= distance(c, d) ? measure : { ...measure, points: [c, d, a, b] };
}

/** Everything measured in a slice, drawn over it. */
export function MeasureLayer({ frame, z, draft }: { frame: Frame; z: number; draft?: Measure | null | undefined }) {
  const kept = useView((view) => view.measures);
  const shown = [...kept.filter((measure) => measure.z === z), ...(draft ? [draft] : [])];
  if (!shown.length) return null;
  return (
    <svg class="measures" width={frame.width} height={frame.height} role="img" aria-label={shown.map(wordsOf).join("; ")}>
      {shown.map((measure, i) => (
        <Drawn key={i} measure={measure} frame={frame} />
      ))}
    </svg>
  );
}

const wordsOf = (measure: Measure): string =>
  measure.kind === "bidirectional" && measure.points.length < 4 ? "first diameter" : measureWords(measure);

function Drawn({ measure, frame }: { measure: Measure; frame: Frame }) {
  const at = measure.points.map((point) => toScreen(frame, point));
  const line = (points: typeof at) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const path =
    measure.kind === "area" ? `${line(at)}Z` : line(at.slice(0, 2)) + (at.length > 2 ? line(at.slice(2, 4)) : "");
  const [x, y] = at.reduce((best, one) => (one[0] > best[0] ? one : best));
  return (
    <g>
      <path d={path} />
      {measure.kind !== "area" && at.map(([cx, cy], i) => <circle key={i} cx={cx} cy={cy} r={2.5} />)}
      <text x={Math.min(x + 6, frame.width - 90)} y={Math.max(y - 4, 12)}>
        {measure.kind === "bidirectional" && at.length < 4
          ? `${distance(measure.points[0]!, measure.points[1]!).toFixed(1)} mm`
          : measureWords(measure)}
      </text>
    </g>
  );
}

const TOOLS: [ToolName, string, string][] = [
  ["crosshair", "✛", "Crosshair (X)"],
  ["length", "Length", "Drag from end to end (D)"],
  ["bidirectional", "RANO", "Two diameters at right angles: drag the long one, then the short one (J)"],
  ["area", "Area", "Draw around it (A)"],
];

const TITLES: Record<MeasureKind, string> = { length: "Length", bidirectional: "RANO", area: "Area" };

/** Which tool is in hand, and what was measured. */
export function MeasureControls() {
  const tool = useView((view) => view.tool);
  const measures = useView((view) => view.measures);
  return (
    <span class="group">
      <Segmented label="Tool" choices={TOOLS} value={tool} onChange={(next) => set("tool", next)} />
      {measures.length > 0 && (
        <Menu title={`${measures.length} measured`}>
          {() => (
            <ul class="menu-items measured" aria-label="Measurements">
              {measures.map((measure, i) => (
                <li key={i}>
                  <button type="button" onClick={() => goTo(measure.z)} title="Go to its slice">
                    {TITLES[measure.kind]} {measureWords(measure)} <span class="hint">slice {measure.z}</span>
                  </button>
                  <button type="button" aria-label={`Remove ${measureWords(measure)}`} onClick={() => removeMeasure(measure)}>
                    ✕
                  </button>
                </li>
              ))}
            </ul>
          )}
        </Menu>
      )}
    </span>
  );
}
