/** The third panel: what disease changed. The predicted lesion, the difference to the twin, and areas in words. */

import { set, useView } from "../state/actions";
import { useData } from "../state/data";
import type { View } from "../state/view";
import { Segmented } from "../shell/controls";
import { Pane } from "./pane";
import { Picture, pictureHeight } from "./picture";
import type { Source } from "./sources";

const CHOICES: [View["changed"], string][] = [
  ["lesion", "Lesion"],
  ["difference", "Change"],
  ["both", "Both"],
];

export function ChangedPane({ source }: { source: Source }) {
  const channel = useView((view) => view.channel);
  const changed = useView((view) => view.changed);
  const { plane } = source;
  const chooser = (
    <Segmented label="What to show" choices={CHOICES} value={changed} onChange={(value) => set("changed", value)} />
  );
  return (
    <Pane title="What disease changed" note={chooser} plane={plane}>
      {(frame) => {
        const height = pictureHeight(frame, plane);
        const ground =
          source.picture("image", channel, undefined, height) ??
          source.picture("reconstruction", channel, undefined, height);
        return (
          <>
            <Picture url={ground} frame={frame} plane={plane} alt="" opacity={0.55} />
            {changed !== "lesion" && (
              <Picture
                url={source.picture("difference", channel, undefined, height)}
                frame={frame}
                plane={plane}
                alt="Brighter (orange) or darker (blue) than the healthy twin"
                opacity={0.85}
              />
            )}
            {changed !== "difference" && (
              <Picture
                url={source.picture("mask", channel, undefined, height)}
                frame={frame}
                plane={plane}
                alt="Predicted lesion"
                opacity={changed === "both" ? 0.5 : 0.75}
              />
            )}
            <Areas difference={changed !== "lesion"} lesion={changed !== "difference"} />
          </>
        );
      }}
    </Pane>
  );
}

/** Colours with their meaning, and how much of each is predicted. */
function Areas({ difference, lesion }: { difference: boolean; lesion: boolean }) {
  const classes = useData((now) => now.archive?.lesion_classes);
  const areas = useData((now) => now.subject.view?.areas_mm2);
  return (
    <ul class="areas" aria-label="Predicted lesion in this slice">
      {lesion &&
        classes?.map(({ id, name, colour }) => (
          <li key={id}>
            <i style={{ background: colour }} aria-hidden="true" />
            {name} <b>{areas ? `${((areas[name] ?? 0) / 100).toFixed(1)} cm²` : "…"}</b>
          </li>
        ))}
      {difference && (
        <>
          <li>
            <i class="brighter" aria-hidden="true" />
            brighter
          </li>
          <li>
            <i class="darker" aria-hidden="true" />
            darker
          </li>
        </>
      )}
    </ul>
  );
}
