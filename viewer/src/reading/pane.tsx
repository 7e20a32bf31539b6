/**
 * `Pane`: a window on a plane, with side marks, scale bar, crosshair and what a pointer does in it.
 *
 * Drag: crosshair, or the tool that is given. Right drag or Shift: window and level. Middle drag or Alt: move. Wheel:
 * scroll one slice a notch, with Ctrl: zoom. Double click: as it was. One finger scrolls, two zoom and move, a tap sets
 * the crosshair. Knows no volume; what is shown are its children.
 */

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { resetPicture, scroll, set, useView } from "../state/actions";
import { useSize } from "./hooks";
import { frameOf, SIDES, toScreen, toWorld, worldWords, type Frame, type Place, type Plane } from "./plane";
import { usePointer, useWheel, type Latest, type Tool } from "./pointer";
import { signalAt } from "./niivue";

interface PaneProps {
  title: string;
  note?: ComponentChildren;
  plane: Plane;
  tool?: Tool | undefined;
  /** What the wheel does; scrolls the slice that is read unless told otherwise. */
  onScroll?: (steps: number) => void;
  /** What a drag without a tool does; moves the crosshair in the axial plane unless told otherwise. */
  onPlace?: (place: Place) => void;
  /** The crosshair in this plane; that of the axial plane unless told otherwise. */
  crosshair?: Place | null;
  /** What the cursor tells of: where the plane cuts, and the volume whose signal it reads. */
  cursor?: { depth: number | undefined; url: string | undefined } | undefined;
  children: (frame: Frame) => ComponentChildren;
}

export function Pane(props: PaneProps) {
  const { title, note, plane, tool, onScroll = scroll, onPlace = setCrosshair, cursor, children } = props;
  const element = useRef<HTMLDivElement>(null);
  const readout = useRef<HTMLOutputElement>(null);
  const size = useSize(element);
  const zoom = useView((view) => view.zoom);
  const pan = useView((view) => view.pan);
  const axialCrosshair = useView((view) => view.crosshair);
  const moved: Place = plane.axis === "axial" ? pan : [plane.axis === "coronal" ? pan[0] : pan[1], 0];
  const frame = frameOf(size, plane, zoom, moved);
  const latest = useRef<Latest>({ frame, tool, onScroll, onPlace, onHover: () => undefined });
  latest.current = { frame, tool, onScroll, onPlace, onHover: (place) => void tell(readout.current, plane, cursor, place) };
  usePointer(element, latest);
  useWheel(element, latest);
  const crosshair = props.crosshair === undefined ? axialCrosshair : props.crosshair;
  return (
    <figure class="pane" aria-label={title}>
      <div
        class="pane-stage"
        ref={element}
        style={{ cursor: tool?.cursor ?? "crosshair" }}
        onContextMenu={(event) => event.preventDefault()}
        onDblClick={() => !tool && resetPicture()}
      >
        {size.width > 0 && children(frame)}
        {size.width > 0 && crosshair && <Crosshair frame={frame} place={crosshair} />}
        <SideMarks plane={plane} />
        {size.width > 0 && <ScaleBar frame={frame} />}
        <output class="readout" ref={readout} aria-live="off" />
      </div>
      <figcaption class="pane-title">
        <strong>{title}</strong>
        {note}
      </figcaption>
    </figure>
  );
}

const setCrosshair = (place: Place): void => set("crosshair", place);

let told = 0;

/** Where the cursor is and what signal lies there; only the newest answer is shown. */
async function tell(
  output: HTMLOutputElement | null,
  plane: Plane,
  cursor: PaneProps["cursor"],
  place: Place | null,
): Promise<void> {
  if (!output) return;
  const mine = ++told;
  if (!place || cursor?.depth === undefined) {
    output.textContent = "";
    return;
  }
  const world = toWorld(plane, place, cursor.depth);
  const signal = cursor.url ? await signalAt(cursor.url, world) : null;
  if (mine === told) output.textContent = worldWords(world) + (signal === null ? "" : ` · signal ${Math.round(signal)}`);
}

function Crosshair({ frame, place }: { frame: Frame; place: Place }) {
  const [x, y] = toScreen(frame, place);
  const gap = 7;
  return (
    <svg class="crosshair" width={frame.width} height={frame.height} aria-hidden="true">
      <path d={`M0 ${y}H${x - gap}M${x + gap} ${y}H${frame.width}M${x} 0V${y - gap}M${x} ${y + gap}V${frame.height}`} />
    </svg>
  );
}

/** Sides follow from how panes are hung, see `plane.ts`. */
function SideMarks({ plane }: { plane: Plane }) {
  const [left, right, top, bottom] = SIDES[plane.axis];
  return (
    <div class="side-marks" aria-hidden="true">
      <span class="mark-left">{left}</span>
      <span class="mark-right">{right}</span>
      <span class="mark-top">{top}</span>
      <span class="mark-bottom">{bottom}</span>
    </div>
  );
}

const BARS_MM = [100, 50, 20, 10, 5, 2];

/** The longest round length that takes up to a third of the pane. */
function ScaleBar({ frame }: { frame: Frame }) {
  const mm = BARS_MM.find((length) => length * frame.scale <= frame.width / 3) ?? 2;
  return (
    <div class="scale-bar" style={{ width: `${mm * frame.scale}px` }} aria-hidden="true">
      {mm >= 10 ? `${mm / 10} cm` : `${mm} mm`}
    </div>
  );
}
