/** One patient in a pane: picture, volume, and the lesion over it. */

import { CHANNEL_TITLES } from "../api/types";
import { useView } from "../state/actions";
import type { Compare } from "../state/view";
import { useSettled } from "../reading/hooks";
import { Picture, pictureHeight } from "../reading/picture";
import type { Frame } from "../reading/plane";
import { sliceSource } from "../reading/sources";
import { VolumeLayer } from "../reading/volume-layer";
import { pictureWindow, signalWindow } from "../reading/windows";
import type { Side } from "./compare";

export function PatientLayers({ side, frame, labels }: { side: Side; frame: Frame; labels: Compare["labels"] }) {
  const channel = useView((view) => view.channel);
  const windows = useView((view) => view.windows);
  const opacity = useView((view) => view.opacity);
  const { slice, plane, volume } = side;
  const window = useSettled(pictureWindow(volume, { windows }, channel), 150);
  const source = sliceSource(slice, plane);
  const height = pictureHeight(frame, plane);
  return (
    <>
      <Picture
        url={source.picture("image", channel, window, height)}
        frame={frame}
        plane={plane}
        alt={`${side.name}, slice ${slice.z}, ${CHANNEL_TITLES[channel]}`}
      />
      {volume?.channel_urls[channel] && (
        <VolumeLayer
          slice={slice}
          volume={volume}
          channel={channel}
          plane={plane}
          frame={frame}
          window={signalWindow(volume, windows[channel], channel)}
        />
      )}
      {labels !== "none" && (
        <Picture
          url={source.picture(labels === "known" ? "label" : "mask", channel, undefined, height)}
          frame={frame}
          plane={plane}
          alt={`${labels} lesion`}
          opacity={opacity}
        />
      )}
    </>
  );
}
