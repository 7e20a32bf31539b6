/** The second panel: the generated healthy twin, with a swipe that uncovers the original. */

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { SketchLayer, type SketchTool } from "../ask/sketch";
import { set, useView } from "../state/actions";
import { useData, volumeOf } from "../state/data";
import type { View } from "../state/view";
import { Segmented } from "../shell/controls";
import { useSettled } from "./hooks";
import { Pane } from "./pane";
import { Picture, pictureHeight } from "./picture";
import type { Frame } from "./plane";
import type { Source } from "./sources";
import { pictureWindow } from "./windows";

const TWINS: [View["twin"], string][] = [
  ["decoded", "Decoded"],
  ["refined", "Own pixels"],
];

/** While sketching, one paints here too: this is the healthy twin that one is told to paint on. */
export function TwinPane({ source, sketch }: { source: Source; sketch?: SketchTool | undefined }) {
  const { channel, windows, swipe, reading, twin } = useView((view) => view);
  const canRefine = useData((now) => now.archive?.model.can_refine ?? false);
  const volume = useData((now) => volumeOf(now, reading));
  const window = useSettled(pictureWindow(volume, { windows }, channel), 150);
  const { plane } = source;
  const refined = canRefine && twin === "refined" && !sketch;
  const note = canRefine && !sketch && (
    <Segmented label="Which twin" choices={TWINS} value={twin} onChange={(value) => set("twin", value)} />
  );
  const words = refined ? "the scan, generated where a lesion is predicted" : "generated, not a scan";
  return (
    <Pane title="Healthy twin" note={note} plane={plane} tool={sketch}>
      {(frame) => {
        const height = pictureHeight(frame, plane);
        const original =
          source.picture("image", channel, window, height) ?? source.picture("reconstruction", channel, window, height);
        return (
          <>
            <Picture
              url={
                (refined ? source.picture("refined", channel, window, height) : null) ??
                source.picture("twin", channel, window, height)
              }
              frame={frame}
              plane={plane}
              alt="Healthy twin, generated"
            />
            {swipe > 0 && original && (
              <Clipped frame={frame} to={swipe}>
                <Picture url={original} frame={frame} plane={plane} alt="Original" />
              </Clipped>
            )}
            <p class="pane-words safety">{words}</p>
            {sketch && <SketchLayer frame={frame} plane={plane} drawing={sketch.drawing} />}
            <SwipeHandle
              frame={frame}
              value={swipe}
              label="Swipe between original and healthy twin"
              onChange={(value) => set("swipe", value)}
            />
          </>
        );
      }}
    </Pane>
  );
}

/** Show what is inside up to a share of the pane's width, from the left. */
export function Clipped({ frame, to, children }: { frame: Frame; to: number; children: ComponentChildren }) {
  return (
    <div class="layer ground" style={{ clipPath: `inset(0 ${(1 - to) * frame.width}px 0 0)` }}>
      {children}
    </div>
  );
}

interface SwipeHandleProps {
  frame: Frame;
  value: number;
  label: string;
  onChange: (value: number) => void;
}

export function SwipeHandle({ frame, value, label, onChange }: SwipeHandleProps) {
  const dragged = useRef(false);
  const move = (event: PointerEvent) => {
    if (!dragged.current) return;
    const stage = (event.currentTarget as HTMLElement).parentElement!.getBoundingClientRect();
    onChange(Math.min(1, Math.max(0, (event.clientX - stage.left) / stage.width)));
  };
  return (
    <div
      class="swipe-handle"
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(value * 100)}
      aria-valuetext={`${Math.round(value * 100)} % original`}
      style={{ left: `${Math.min(frame.width - 12, Math.max(12, value * frame.width))}px` }}
      onPointerDown={(event) => {
        dragged.current = true;
        event.currentTarget.setPointerCapture(event.pointerId);
        event.stopPropagation();
      }}
      onPointerMove={move}
      onPointerUp={() => (dragged.current = false)}
      onKeyDown={(event) => {
        const step = { ArrowLeft: -0.05, ArrowRight: 0.05 }[event.key];
        if (!step) return;
        event.preventDefault();
        event.stopPropagation();
        onChange(Math.min(1, Math.max(0, value + step)));
      }}
    >
      <span aria-hidden="true">◂▸</span>
    </div>
  );
}
