/** A volume in a pane at full resolution, painted by NiiVue over the picture that was there first. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Channel, Range, Volume } from "../api/types";
import { say } from "../state/data";
import type { Frame, Plane } from "./plane";
import { SlicePainter } from "./niivue";

interface VolumeLayerProps {
  /** Where the plane cuts, in the scanner's millimetres along its normal; undefined where nothing is to be shown. */
  depth: number | undefined;
  volume: Volume;
  channel: Channel;
  plane: Plane;
  frame: Frame;
  /** Signal that is shown black and white. */
  window: Range | null;
}

let told = false;

export function VolumeLayer({ depth, volume, channel, plane, frame, window: range }: VolumeLayerProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [painter, setPainter] = useState<SlicePainter | null>(null);
  const [loaded, setLoaded] = useState("");
  const url = volume.channel_urls[channel] ?? null;

  useEffect(() => {
    let made: SlicePainter | null = null;
    let gone = false;
    SlicePainter.on(canvas.current!, plane.axis).then(
      (one) => {
        made = one;
        if (gone) one.close();
        else setPainter(one);
      },
      () => tellOnce("This browser cannot draw volumes (no WebGL 2); slices are shown as pictures instead."),
    );
    return () => {
      gone = true;
      made?.close();
    };
  }, []);

  useEffect(() => {
    if (!painter || !url) return;
    painter.load(url).then(
      (done) => done && setLoaded(url),
      () => tellOnce("The volume could not be loaded; slices are shown as pictures instead."),
    );
  }, [painter, url]);

  const ready = painter !== null && loaded === url && depth !== undefined;
  useLayoutEffect(() => {
    if (ready) painter.paint({ frame, plane, depth, window: range });
  }, [ready, painter, frame.width, frame.height, frame.scale, ...frame.pan, plane, depth, range?.[0], range?.[1], volume]);

  return <canvas class={`volume-layer${ready ? " ready" : ""}`} ref={canvas} aria-hidden="true" />;
}

function tellOnce(text: string): void {
  if (!told) say(text);
  told = true;
}
