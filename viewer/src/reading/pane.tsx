/**
 * `Pane`: a window on a plane, with side marks, crosshair and everything a pointer does in it.
 *
 * Drag: crosshair, or the tool that is given. Right drag or Shift: window and level. Middle drag or Alt: move. Wheel:
 * scroll, with Ctrl: zoom. Double click: as it was. Knows no volume; what is shown are its children.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { changeWindow, panBy, resetPicture, scroll, set, useView, zoomBy } from "../state/actions";
import { useSize } from "./hooks";
import { frameOf, toPlace, toScreen, type Frame, type Place, type Plane } from "./plane";

/** What a pressed pointer does instead of moving the crosshair. */
export interface Tool {
  cursor: string;
  down(place: Place, event: PointerEvent): void;
  move(place: Place): void;
  up(place: Place): void;
}

interface PaneProps {
  title: string;
  note?: ComponentChildren;
  plane: Plane;
  tool?: Tool | undefined;
  /** What the wheel does; scrolls the slice that is read unless told otherwise. */
  onScroll?: (steps: number) => void;
  marks?: boolean;
  children: (frame: Frame) => ComponentChildren;
}

const WHEEL_STEP = 40;
/** Share of the usual window that a drag by one pixel changes. */
const WINDOW_PER_PIXEL = 0.004;

type Drag = "window" | "pan" | "tool" | "crosshair";

function kindOfDrag(event: PointerEvent, tool: Tool | undefined): Drag {
  if (event.button === 1 || event.altKey) return "pan";
  if (event.button === 2 || event.shiftKey) return "window";
  return tool ? "tool" : "crosshair";
}

export function Pane({ title, note, plane, tool, onScroll = scroll, marks = true, children }: PaneProps) {
  const element = useRef<HTMLDivElement>(null);
  const size = useSize(element);
  const zoom = useView((view) => view.zoom);
  const pan = useView((view) => view.pan);
  const frame = frameOf(size, plane, zoom, pan);
  const latest = useRef({ frame, tool, onScroll });
  latest.current = { frame, tool, onScroll };
  usePointer(element, latest);
  useWheel(element, latest);
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
        {size.width > 0 && <Crosshair frame={frame} />}
        {marks && <SideMarks />}
      </div>
      <figcaption class="pane-title">
        <strong>{title}</strong>
        {note}
      </figcaption>
    </figure>
  );
}

interface Latest {
  current: { frame: Frame; tool: Tool | undefined; onScroll: (steps: number) => void };
}

function placeOf(event: MouseEvent, node: HTMLElement, frame: Frame): Place {
  const box = node.getBoundingClientRect();
  return toPlace(frame, event.clientX - box.left, event.clientY - box.top);
}

function usePointer(element: { current: HTMLDivElement | null }, latest: Latest): void {
  useEffect(() => {
    const node = element.current;
    if (!node) return;
    let drag: Drag | null = null;
    let last = [0, 0];
    const act = (event: PointerEvent) => {
      const { frame, tool } = latest.current;
      const [x, y] = [event.clientX - last[0]!, event.clientY - last[1]!];
      last = [event.clientX, event.clientY];
      if (drag === "pan") panBy(x / frame.scale, y / frame.scale);
      else if (drag === "window") changeWindow(x * WINDOW_PER_PIXEL, y * WINDOW_PER_PIXEL);
      else if (drag === "tool") tool?.move(placeOf(event, node, frame));
      else if (drag === "crosshair") set("crosshair", placeOf(event, node, frame));
    };
    const down = (event: PointerEvent) => {
      if ((event.target as HTMLElement).closest("button, input, .swipe-handle")) return;
      const { frame, tool } = latest.current;
      drag = kindOfDrag(event, tool);
      last = [event.clientX, event.clientY];
      node.setPointerCapture(event.pointerId);
      if (drag === "tool") tool?.down(placeOf(event, node, frame), event);
      if (drag === "crosshair") act(event);
    };
    const move = (event: PointerEvent) => drag && act(event);
    const up = (event: PointerEvent) => {
      const { frame, tool } = latest.current;
      if (drag === "tool") tool?.up(placeOf(event, node, frame));
      drag = null;
    };
    node.addEventListener("pointerdown", down);
    node.addEventListener("pointermove", move);
    node.addEventListener("pointerup", up);
    node.addEventListener("pointercancel", up);
    return () => {
      node.removeEventListener("pointerdown", down);
      node.removeEventListener("pointermove", move);
      node.removeEventListener("pointerup", up);
      node.removeEventListener("pointercancel", up);
    };
  }, [element, latest]);
}

/** A listener of its own: only one that is not passive may keep the page from scrolling or zooming. */
function useWheel(element: { current: HTMLDivElement | null }, latest: Latest): void {
  useEffect(() => {
    const node = element.current;
    if (!node) return;
    let rest = 0;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const { frame, onScroll } = latest.current;
      if (event.ctrlKey || event.metaKey) {
        zoomBy(Math.exp(-event.deltaY / 300), placeOf(event, node, frame));
        return;
      }
      rest += event.deltaY;
      const steps = Math.trunc(rest / WHEEL_STEP);
      rest -= steps * WHEEL_STEP;
      if (steps) onScroll(-Math.sign(steps) * Math.min(Math.abs(steps), 3));
    };
    node.addEventListener("wheel", wheel, { passive: false });
    return () => node.removeEventListener("wheel", wheel);
  }, [element, latest]);
}

function Crosshair({ frame }: { frame: Frame }) {
  const place = useView((view) => view.crosshair);
  if (!place) return null;
  const [x, y] = toScreen(frame, place);
  const gap = 7;
  return (
    <svg class="crosshair" width={frame.width} height={frame.height} aria-hidden="true">
      <path d={`M0 ${y}H${x - gap}M${x + gap} ${y}H${frame.width}M${x} 0V${y - gap}M${x} ${y + gap}V${frame.height}`} />
    </svg>
  );
}

/** Sides follow from how panes are hung, see `plane.ts`. */
function SideMarks() {
  return (
    <div class="side-marks" aria-hidden="true">
      <span class="mark-left">R</span>
      <span class="mark-right">L</span>
      <span class="mark-top">A</span>
      <span class="mark-bottom">P</span>
    </div>
  );
}
