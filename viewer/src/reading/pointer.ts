/** Mouse, pen, fingers and wheel over a pane, as places in millimetres. Knows frames and actions, no volume. */

import { useEffect } from "preact/hooks";
import { changeWindow, panBy, zoomBy } from "../state/actions";
import { toPlace, type Frame, type Place } from "./plane";

/** What a pressed pointer does instead of moving the crosshair. */
export interface Tool {
  cursor: string;
  down(place: Place, event: PointerEvent): void;
  move(place: Place): void;
  up(place: Place): void;
}

/** A pane as it is now; listeners are added once and look here. */
export interface Latest {
  frame: Frame;
  tool: Tool | undefined;
  onScroll: (steps: number) => void;
  onPlace: (place: Place) => void;
  onHover: (place: Place | null) => void;
}

type Box = { current: HTMLDivElement | null };
type Drag = "window" | "pan" | "tool" | "crosshair" | "scroll" | "pinch";

/** Wheel movement that makes one slice on a touchpad; a notch of a wheel is always one slice. */
const TOUCHPAD_STEP = 40;
const NOTCH = 50;
/** Pixels that a finger moves for one slice. */
const FINGER_STEP = 12;
const TAP = 8;
/** Share of the usual window that a drag by one pixel changes. */
const WINDOW_PER_PIXEL = 0.004;

function kindOfDrag(event: PointerEvent, tool: Tool | undefined): Drag {
  if (event.button === 1 || event.altKey) return "pan";
  if (event.button === 2 || event.shiftKey) return "window";
  if (tool) return "tool";
  return event.pointerType === "touch" ? "scroll" : "crosshair";
}

function placeOf(event: { clientX: number; clientY: number }, node: HTMLElement, frame: Frame): Place {
  const box = node.getBoundingClientRect();
  return toPlace(frame, event.clientX - box.left, event.clientY - box.top);
}

/** Everything that is pressed and dragged. */
export function usePointer(element: Box, latest: { current: Latest }): void {
  useEffect(() => {
    const node = element.current;
    if (!node) return;
    const gesture = new Gesture(node, latest);
    const listeners = [
      ["pointerdown", gesture.down],
      ["pointermove", gesture.move],
      ["pointerup", gesture.up],
      ["pointercancel", gesture.up],
      ["pointerleave", gesture.leave],
    ] as const;
    for (const [name, listener] of listeners) node.addEventListener(name, listener);
    return () => listeners.forEach(([name, listener]) => node.removeEventListener(name, listener));
  }, [element, latest]);
}

/** From pressing to letting go, with one pointer or two fingers. */
class Gesture {
  private drag: Drag | null = null;
  private fingers = new Map<number, readonly [x: number, y: number]>();
  private travelled = 0;
  private rest = 0;

  constructor(
    private readonly node: HTMLDivElement,
    private readonly latest: { current: Latest },
  ) {}

  down = (event: PointerEvent): void => {
    if ((event.target as HTMLElement).closest("button, input, .swipe-handle")) return;
    const { frame, tool, onPlace } = this.latest.current;
    this.fingers.set(event.pointerId, [event.clientX, event.clientY]);
    this.node.setPointerCapture(event.pointerId);
    if (this.fingers.size === 2) {
      if (this.drag === "tool") tool?.up(placeOf(event, this.node, frame));
      this.drag = "pinch";
      return;
    }
    this.drag = kindOfDrag(event, tool);
    this.travelled = this.rest = 0;
    if (this.drag === "tool") tool?.down(placeOf(event, this.node, frame), event);
    if (this.drag === "crosshair") onPlace(placeOf(event, this.node, frame));
  };

  move = (event: PointerEvent): void => {
    const { frame, tool, onPlace, onHover } = this.latest.current;
    if (event.pointerType !== "touch") onHover(placeOf(event, this.node, frame));
    const last = this.fingers.get(event.pointerId);
    if (!this.drag || !last) return;
    const [x, y] = [event.clientX - last[0], event.clientY - last[1]];
    if (this.drag === "pinch") this.pinch(event, frame);
    this.fingers.set(event.pointerId, [event.clientX, event.clientY]);
    this.travelled += Math.hypot(x, y);
    if (this.drag === "pan") panBy(x / frame.scale, y / frame.scale);
    else if (this.drag === "window") changeWindow(x * WINDOW_PER_PIXEL, y * WINDOW_PER_PIXEL);
    else if (this.drag === "tool") tool?.move(placeOf(event, this.node, frame));
    else if (this.drag === "crosshair") onPlace(placeOf(event, this.node, frame));
    else if (this.drag === "scroll") this.scroll(y);
  };

  up = (event: PointerEvent): void => {
    const { frame, tool, onPlace } = this.latest.current;
    this.fingers.delete(event.pointerId);
    if (this.drag === "tool") tool?.up(placeOf(event, this.node, frame));
    if (this.drag === "scroll" && this.travelled < TAP) onPlace(placeOf(event, this.node, frame));
    if (this.drag !== "pinch" || !this.fingers.size) this.drag = null;
  };

  leave = (): void => this.latest.current.onHover(null);

  private scroll(y: number): void {
    this.rest += y;
    const steps = Math.trunc(this.rest / FINGER_STEP);
    this.rest -= steps * FINGER_STEP;
    if (steps) this.latest.current.onScroll(-steps);
  }

  /** Two fingers keep hold of what they touch. */
  private pinch(event: PointerEvent, frame: Frame): void {
    const other = [...this.fingers].find(([id]) => id !== event.pointerId)?.[1];
    const last = this.fingers.get(event.pointerId);
    if (!other || !last) return;
    const before = Math.hypot(last[0] - other[0], last[1] - other[1]);
    const after = Math.hypot(event.clientX - other[0], event.clientY - other[1]);
    const middle = { clientX: (event.clientX + other[0]) / 2, clientY: (event.clientY + other[1]) / 2 };
    if (before > 0) zoomBy(after / before, placeOf(middle, this.node, frame));
    panBy((event.clientX - last[0]) / 2 / frame.scale, (event.clientY - last[1]) / 2 / frame.scale);
  }
}

/** A listener of its own: only one that is not passive may keep the page from scrolling or zooming. */
export function useWheel(element: Box, latest: { current: Latest }): void {
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
      const notch = event.deltaMode !== 0 || Math.abs(event.deltaY) >= NOTCH;
      rest = notch ? 0 : rest + event.deltaY;
      const steps = notch ? Math.sign(event.deltaY) : Math.trunc(rest / TOUCHPAD_STEP);
      rest -= notch ? 0 : steps * TOUCHPAD_STEP;
      if (steps) onScroll(-steps);
    };
    node.addEventListener("wheel", wheel, { passive: false });
    return () => node.removeEventListener("wheel", wheel);
  }, [element, latest]);
}
