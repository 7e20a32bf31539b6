/** Coronal and sagittal planes through the crosshair, painted from the volume; what is clicked moves all planes. */

import { titleOf, type Volume } from "../api/types";
import { goTo, set, useView, view } from "../state/actions";
import { useData, volumeOf } from "../state/data";
import { Pane } from "./pane";
import { uprightPlane, type Place, type Plane } from "./plane";
import { VolumeLayer } from "./volume-layer";
import { signalWindow } from "./windows";

export function UprightPane({ axial, axis }: { axial: Plane; axis: "coronal" | "sagittal" }) {
  const { reading, channel, windows, crosshair } = useView((now) => now);
  const volume = useData((now) => volumeOf(now, reading));
  if (!reading || !volume) return <div />;
  const plane = uprightPlane(axial, volume, axis);
  const [right, front] = crosshair ?? [0, 0];
  const depth = axial.centre[axis === "coronal" ? 1 : 0] + (axis === "coronal" ? front : right);
  const z_mm = volume.z_mm[volume.z_indices.indexOf(reading.z)] ?? plane.centre[1];
  const own = axis === "coronal" ? right : front;
  const title = axis === "coronal" ? "Coronal" : "Sagittal";
  return (
    <Pane
      title={title}
      note={<span>{titleOf(channel)}</span>}
      plane={plane}
      crosshair={[own, z_mm - plane.centre[1]]}
      cursor={{ depth, url: volume.channel_urls[channel] }}
      onScroll={(steps) => step(axis, steps)}
      onPlace={(place) => moveTo(axis, volume, plane, place)}
    >
      {(frame) =>
        volume.channel_urls[channel] ? (
          <VolumeLayer
            depth={depth}
            volume={volume}
            channel={channel}
            plane={plane}
            frame={frame}
            window={signalWindow(volume, windows[channel], channel)}
          />
        ) : (
          <p class="empty">The archive keeps no images of this patient.</p>
        )
      }
    </Pane>
  );
}

const STEP_MM = 2;

/** One step through the head: to the front in the coronal plane, to the right in the sagittal one. */
function step(axis: "coronal" | "sagittal", steps: number): void {
  const [right, front] = view.get().crosshair ?? [0, 0];
  set("crosshair", axis === "coronal" ? [right, front + steps * STEP_MM] : [right + steps * STEP_MM, front]);
}

function moveTo(axis: "coronal" | "sagittal", volume: Volume, plane: Plane, place: Place): void {
  const [right, front] = view.get().crosshair ?? [0, 0];
  set("crosshair", axis === "coronal" ? [place[0], front] : [right, place[0]]);
  const wanted = plane.centre[1] + place[1];
  const nearest = volume.z_mm.reduce(
    (best, mm, i) => (Math.abs(mm - wanted) < Math.abs(volume.z_mm[best]! - wanted) ? i : best),
    0,
  );
  goTo(volume.z_indices[nearest]!);
}
