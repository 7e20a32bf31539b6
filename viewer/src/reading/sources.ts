/** Which pictures the panes show: of the slice that is read, or of the painted or composed one that is asked about. */

import * as api from "../api/client";
import type { Channel, Pictures, Range } from "../api/types";
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

/** Pictures of one slice, straight from its address. */
export function sliceSource(slice: SliceRef, plane: Plane): Source {
  return {
    plane,
    picture: (kind, channel, window, height) => api.pictureUrl(slice, kind, { channel, window, height }),
  };
}

/** What the panes show now; null while nothing is chosen. */
export function sourceOf(view: View, now: Data): Source | null {
  const slice = planeSlice(view);
  const plane = planeFor(now, slice);
  if (view.ask.mode === "slice" || view.ask.mode === "region") return slice && sliceSource(slice, plane);
  const pictures = now.subject.view?.pictures;
  if (!pictures) return view.ask.mode === "sketch" && slice ? sliceSource(slice, plane) : null;
  return {
    plane,
    picture: (kind, channel, window, height) => {
      const url = pictures[kind];
      return url && api.styledUrl(url, { channel, window, height });
    },
  };
}
