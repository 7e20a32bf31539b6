/** The first panel: the slice as it was scanned, or what is painted or composed in its place. */

import { titleOf, type Volume } from "../api/types";
import { RegionLayer, useRegionTool } from "../ask/region";
import { SketchLayer, useSketchTool } from "../ask/sketch";
import { useView } from "../state/actions";
import { useData, volumeOf } from "../state/data";
import type { SliceRef } from "../state/view";
import { AgreementLayer } from "../results/agreement";
import { useSettled } from "./hooks";
import { MeasureLayer, useMeasureTool } from "./measures";
import { Pane } from "./pane";
import { Picture, pictureHeight } from "./picture";
import type { Frame, Plane } from "./plane";
import { sliceSource, type Source } from "./sources";
import { SliceLayers } from "./slice-layers";
import { pictureWindow } from "./windows";

export function PatientPane({ source }: { source: Source }) {
  const mode = useView((view) => view.ask.mode);
  if (mode === "sketch") return <SketchPane source={source} />;
  if (mode === "compose") return <ComposedPane source={source} />;
  return <ScannedPane plane={source.plane} />;
}

function ScannedPane({ plane }: { plane: Plane }) {
  const view = useView((now) => now);
  const volume = useData((now) => volumeOf(now, view.reading));
  const region = useRegionTool(plane);
  const measuring = useMeasureTool(view.reading?.z ?? 0);
  const pointed = useData((now) => now.pointed);
  if (!view.reading) return null;
  const slice = view.reading;
  const hasLabels = Boolean(volume?.label_urls.lesion);
  const note =
    view.ask.mode === "region" ? "drag to mark a region" : `${titleOf(view.channel)}${overlayWords(view.overlay, hasLabels)}`;
  const depth = volume?.z_mm[volume.z_indices.indexOf(slice.z)];
  return (
    <Pane
      title="Patient"
      note={<span>{note}</span>}
      plane={plane}
      tool={view.ask.mode === "region" ? region : view.four ? undefined : measuring}
      cursor={view.four ? undefined : { depth, url: volume?.channel_urls[view.channel] }}
    >
      {(frame) => (
        <>
          {view.four ? (
            <FourChannels slice={slice} plane={plane} frame={frame} volume={volume} />
          ) : (
            <SliceLayers
              shown={{ slice, plane, volume, name: "Patient" }}
              frame={frame}
              labels={view.overlay}
            />
          )}
          {!view.four && view.ask.mode === "region" && <RegionLayer frame={frame} plane={plane} />}
          {!view.four && <MeasureLayer frame={frame} z={slice.z} draft={measuring?.draft} />}
          {!view.four && pointed && <AgreementLayer pointed={pointed} frame={frame} plane={plane} />}
        </>
      )}
    </Pane>
  );
}

/** Nobody may take a patient without labels for one without lesion. */
function overlayWords(overlay: "none" | "predicted" | "known", hasLabels: boolean): string {
  if (overlay === "known" && !hasLabels) return ", no known labels";
  return overlay === "none" ? "" : `, ${overlay} lesion`;
}

interface ChannelProps {
  slice: SliceRef;
  plane: Plane;
  frame: Frame;
  volume: Volume | undefined;
}

/** All channels at once, each a quarter of the pane. */
function FourChannels({ slice, plane, frame, volume }: ChannelProps) {
  const windows = useSettled(
    useView((now) => now.windows),
    150,
  );
  const quarter: Frame = { ...frame, width: frame.width / 2, height: frame.height / 2, scale: frame.scale / 2 };
  const source = sliceSource(slice, plane);
  const channels = useData((now) => now.archive?.channels) ?? [];
  return (
    <div class="four">
      {channels.map((channel) => (
        <div class="quarter" key={channel}>
          <Picture
            url={source.picture(
              "image",
              channel,
              pictureWindow(volume, { windows }, channel),
              pictureHeight(quarter, plane),
            )}
            frame={quarter}
            plane={plane}
            alt={`Slice ${slice.z}, ${titleOf(channel)}`}
          />
          <span class="quarter-name">{titleOf(channel)}</span>
        </div>
      ))}
    </div>
  );
}

function SketchPane({ source }: { source: Source }) {
  const channel = useView((view) => view.channel);
  const reading = useView((view) => view.reading);
  const tool = useSketchTool(source.plane);
  if (!reading) return null;
  const healthy = sliceSource(reading, source.plane);
  return (
    <Pane title="Sketch" note={<span>paint here, on the healthy twin</span>} plane={source.plane} tool={tool}>
      {(frame) => (
        <>
          <Picture
            url={healthy.picture("twin", channel, undefined, pictureHeight(frame, source.plane))}
            frame={frame}
            plane={source.plane}
            alt="Healthy slice to paint on"
          />
          <SketchLayer frame={frame} plane={source.plane} drawing={tool.drawing} />
        </>
      )}
    </Pane>
  );
}

function ComposedPane({ source }: { source: Source }) {
  const channel = useView((view) => view.channel);
  return (
    <Pane title="Composed" note={<span>generated preview</span>} plane={source.plane}>
      {(frame) => (
        <Picture
          url={source.picture("reconstruction", channel, undefined, pictureHeight(frame, source.plane))}
          frame={frame}
          plane={source.plane}
          alt="The lesion of one patient in the anatomy of another"
        />
      )}
    </Pane>
  );
}
