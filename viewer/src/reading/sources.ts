/** Which pictures the panes show: of the slice that is read, or of the painted or composed one that is asked about. */

import * as api from "../api/client";
import type { Channel, Pictures, Range, Volume } from "../api/types";
import type { Data } from "../state/data";
import { volumeOf } from "../state/data";
import type { SliceRef, View } from "../state/view";
import { planeOf, type Plane } from "./plane";

/** The usual field, where no patient says otherwise. */
const NO_PLANE: Plane = { axis: "axial", centre: [0, 0], field: [200, 160] };

export interface Source {
  /** Address of a picture; null where there is none. */
  picture(kind: keyof Pictures, channel: Channel, window: Range | undefined, height: number): string | null;
  plane: Plane;
}

/** The slice whose plane the panes have. */
export const planeSlice = (view: View): SliceRef | null =>
  view.ask.mode === "compose" ? (view.ask.anatomyOf ?? view.reading) : view.reading;

const planes = new WeakMap<object, Plane>();

/** The same object for the same volume, so that nothing is painted twice. */
export function planeFor(now: Data, slice: SliceRef | null): Plane {
  const geometry = volumeOf(now, slice)?.geometry;
  if (!geometry) return NO_PLANE;
  const known = planes.get(geometry) ?? planeOf(geometry);
  planes.set(geometry, known);
  return known;
}

/** What an archive of codes alone cannot show. */
const SCANNED: readonly (keyof Pictures)[] = ["image", "label", "refined"];

/** Pictures of one slice, straight from its address; of a volume that keeps no images, only what codes decode to. */
export function sliceSource(slice: SliceRef, plane: Plane, volume?: Volume): Source {
  const codesOnly = volume?.has_pixels === false;
  return {
    plane,
    picture: (kind, channel, window, height) =>
      codesOnly && SCANNED.includes(kind) ? null : api.pictureUrl(slice, kind, { channel, window, height }),
  };
}

/** What the panes show now; null while nothing is chosen. */
export function sourceOf(view: View, now: Data): Source | null {
  const slice = planeSlice(view);
  const plane = planeFor(now, slice);
  const own = slice && sliceSource(slice, plane, volumeOf(now, slice));
  if (view.ask.mode !== "sketch" && view.ask.mode !== "compose") return own;
  const pictures = now.subject.view?.pictures;
  if (!pictures) return view.ask.mode === "sketch" ? own : null;
  return {
    plane,
    picture: (kind, channel, window, height) => {
      const url = pictures[kind];
      return url && api.styledUrl(url, { channel, window, height });
    },
  };
}
