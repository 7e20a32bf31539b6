/** The third panel: what disease changed. The lesion, the difference to the twin, and areas in words. */

import { set, useView } from "../state/actions";
import { useData, volumeOf } from "../state/data";
import type { AskMode, View } from "../state/view";
import { Segmented } from "../shell/controls";
import { useSettled } from "./hooks";
import { Areas, useLesion } from "./lesion-facts";
import { Pane } from "./pane";
import { Picture, pictureHeight } from "./picture";
import type { Source } from "./sources";
import { pictureWindow } from "./windows";

const CHOICES: [View["changed"], string][] = [
  ["lesion", "Lesion"],
  ["difference", "Change"],
  ["both", "Both"],
];

/** Whether the patient who is read is shown, not something painted or composed. */
const isScanned = (mode: AskMode): boolean => mode !== "sketch" && mode !== "compose";

export function ChangedPane({ source }: { source: Source }) {
  const { channel, changed, overlay, reading, windows, ask } = useView((view) => view);
  const volume = useData((now) => volumeOf(now, reading));
  const window = useSettled(pictureWindow(volume, { windows }, channel), 150);
  const { plane } = source;
  const scanned = isScanned(ask.mode);
  const known = overlay === "known" && scanned && Boolean(volume?.label_urls.lesion);
  const chooser = (
    <Segmented label="What to show" choices={CHOICES} value={changed} onChange={(value) => set("changed", value)} />
  );
  return (
    <Pane title="What disease changed" note={chooser} plane={plane}>
      {(frame) => {
        const height = pictureHeight(frame, plane);
        const ground =
          source.picture("image", channel, window, height) ?? source.picture("reconstruction", channel, window, height);
        return (
          <>
            <Picture url={ground} frame={frame} plane={plane} alt="" opacity={0.55} />
            {changed !== "lesion" && (
              <Picture
                url={source.picture("difference", channel, undefined, height)}
                frame={frame}
                plane={plane}
                alt="Brighter (violet) or darker (green) than the healthy twin"
                opacity={0.85}
              />
            )}
            {changed !== "difference" && (
              <Picture
                url={source.picture(known ? "label" : "mask", channel, undefined, height)}
                frame={frame}
                plane={plane}
                alt={known ? "Known lesion" : "Predicted lesion"}
                opacity={changed === "both" ? 0.5 : 0.75}
              />
            )}
            <Legend difference={changed !== "lesion"} lesion={changed !== "difference"} known={known} />
          </>
        );
      }}
    </Pane>
  );
}

/** Colours with their meaning, and how much there is of each. */
function Legend({ difference, lesion, known }: { difference: boolean; lesion: boolean; known: boolean }) {
  const reading = useView((view) => view.reading);
  const mode = useView((view) => view.ask.mode);
  const painted = useData((now) => now.subject.view?.areas_mm2);
  const scanned = isScanned(mode);
  const facts = useLesion(reading, scanned);
  const generated = painted && { areas_mm2: painted, whole_mm2: 0, side: null, centre_mm: null };
  const part = scanned ? (known ? facts?.known : facts?.predicted) : generated;
  return (
    <div class="areas">
      {lesion && <Areas part={part ?? undefined} source={known ? "known" : "predicted"} />}
      {difference && <Brightness than="than the twin" />}
    </div>
  );
}

/** The colours of a difference, which are those of no class of lesion. */
export function Brightness({ than }: { than: string }) {
  return (
    <ul class="areas-list brightness" aria-label={`Brighter or darker ${than}`}>
      <li class="areas-source">{than}</li>
      <li>
        <i class="brighter" aria-hidden="true" />
        brighter
      </li>
      <li>
        <i class="darker" aria-hidden="true" />
        darker
      </li>
    </ul>
  );
}
