/** One slice in a pane: picture, volume, and the lesion over it. */

import { titleOf, type Volume } from "../api/types";
import { useView } from "../state/actions";
import type { SliceRef } from "../state/view";
import { useSettled } from "./hooks";
import { Picture, pictureHeight } from "./picture";
import type { Frame, Plane } from "./plane";
import { sliceSource } from "./sources";
import { VolumeLayer } from "./volume-layer";
import { pictureWindow, signalWindow } from "./windows";

export interface ShownSlice {
  slice: SliceRef;
  plane: Plane;
  volume: Volume | undefined;
  /** What the slice is called in the description of its picture. */
  name: string;
}

export function SliceLayers({
  shown,
  frame,
  labels,
}: {
  shown: ShownSlice;
  frame: Frame;
  labels: "none" | "predicted" | "known";
}) {
  const channel = useView((view) => view.channel);
  const windows = useView((view) => view.windows);
  const opacity = useView((view) => view.opacity);
  const { slice, plane, volume, name } = shown;
  const window = useSettled(pictureWindow(volume, { windows }, channel), 150);
  const source = sliceSource(slice, plane, volume);
  const height = pictureHeight(frame, plane);
  return (
    <>
      <Picture
        url={source.picture("image", channel, window, height) ?? source.picture("reconstruction", channel, window, height)}
        frame={frame}
        plane={plane}
        alt={`${name}, slice ${slice.z}, ${titleOf(channel)}`}
      />
      {volume?.has_pixels === false && <p class="pane-words safety">decoded from its code: no image is kept</p>}
      {volume?.channel_urls[channel] && (
        <VolumeLayer
          depth={volume.z_mm[volume.z_indices.indexOf(slice.z)]}
          volume={volume}
          channel={channel}
          plane={plane}
          frame={frame}
          window={signalWindow(volume, windows[channel], channel)}
        />
      )}
      {labels !== "none" && (
        <Picture
          url={
            labels === "known" && !volume?.label_urls.lesion
              ? null
              : source.picture(labels === "known" ? "label" : "mask", channel, undefined, height)
          }
          frame={frame}
          plane={plane}
          alt={`${labels} lesion`}
          opacity={opacity}
        />
      )}
    </>
  );
}
