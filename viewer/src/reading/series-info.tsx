/** What is known of the images themselves: voxels, signal, where labels come from, what the reader of files noticed. */

import { useEffect, useState } from "preact/hooks";
import * as api from "../api/client";
import { titleOf, type ChannelSignal } from "../api/types";
import { useView } from "../state/actions";
import { useData, volumeOf } from "../state/data";
import { Menu } from "../shell/menu";

const SOURCES = { labels: "a label map", predicted: "the model's prediction", unknown: "nowhere: unknown" };

export function SeriesInfo() {
  return (
    <Menu title="Info" hint="About these images" name="series">
      {() => <Facts />}
    </Menu>
  );
}

function Facts() {
  const reading = useView((view) => view.reading);
  const channel = useView((view) => view.channel);
  const volume = useData((now) => volumeOf(now, reading));
  const [signal, setSignal] = useState<ChannelSignal | null>(null);
  useEffect(() => {
    setSignal(null);
    if (reading) api.signal(reading, channel).then(setSignal, () => undefined);
  }, [reading?.key, channel]);
  if (!volume) return null;
  const rows: [string, string][] = [
    ["Patient", volume.patient_key],
    ["Study", [volume.volume_key, volume.study_date].filter(Boolean).join(", ")],
    ["Channels", Object.keys(volume.channel_urls).map(titleOf).join(", ") || "codes only"],
    ["Slices with brain", `${volume.z_indices.length}, ${volume.z_mm[0]?.toFixed(0)} to ${volume.z_mm.at(-1)?.toFixed(0)} mm`],
    ["Lesion areas from", SOURCES[volume.lesion_source]],
    ...(volume.tags.length ? [["Tags", volume.tags.join(", ")] as [string, string]] : []),
  ];
  if (signal) {
    rows.push(
      [`${titleOf(channel)} voxels`, `${signal.shape.join(" × ")} of ${signal.voxel_mm.map((mm) => mm.toFixed(1)).join(" × ")} mm`],
      [`${titleOf(channel)} signal`, `${signal.range[0].toFixed(0)} to ${signal.range[1].toFixed(0)}, mean ${signal.mean.toFixed(0)}`],
    );
  }
  return (
    <dl class="menu-items facts-list">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      {volume.warnings.map((text) => (
        <p class="trust" key={text}>
          {text}
        </p>
      ))}
    </dl>
  );
}
