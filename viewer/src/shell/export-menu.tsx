/** What can be taken away: the answer as a figure or a table, the predicted mask and the healthy twin as volumes. */

import * as api from "../api/client";
import { titleOf, type ExportFormat } from "../api/types";
import { asked } from "../state/effects";
import { useView, view } from "../state/actions";
import { messageOf, say, useData, volumeOf } from "../state/data";
import { lanesOf } from "../state/asking";
import { Menu } from "./menu";
import { PacsItems } from "./pacs-items";
import { laneTitle } from "../results/results";
import { valuesOf } from "../reading/measures";

export function ExportMenu() {
  const reading = useView((now) => now.reading);
  const channel = useView((now) => now.channel);
  const volume = useData((now) => volumeOf(now, reading));
  const answered = useData((now) => Object.values(now.lanes).some((lane) => lane.answer));
  const twin = volume?.export_urls[`twin-${channel}`];
  const items = (act: (work: Promise<void>) => void) => (
    <div class="menu-items">
      <button type="button" disabled={!answered} onClick={() => act(saveAnswer("figure"))}>
        Figure of the answer (PNG)
      </button>
      <button type="button" disabled={!answered} onClick={() => act(saveAnswer("csv"))}>
        Table of matches (CSV)
      </button>
      <button type="button" disabled={!answered} onClick={() => act(saveAnswer("json"))}>
        Matches with all cells (JSON)
      </button>
      <hr />
      <button
        type="button"
        disabled={!volume?.export_urls.mask}
        onClick={() => act(saveVolume(volume?.export_urls.mask, `${volume?.volume_key}-predicted-lesion.nii.gz`))}
      >
        Predicted lesion (NIfTI)
      </button>
      <button
        type="button"
        disabled={!twin}
        onClick={() => act(saveVolume(twin, `${volume?.volume_key}-healthy-twin-${channel}.nii.gz`))}
      >
        {`Healthy twin, ${titleOf(channel)} (NIfTI)`}
      </button>
      <PacsItems />
      <p class="hint">Answers hold all lanes, and what was measured.</p>
    </div>
  );
  return (
    <Menu title="Export">
      {(close) =>
        items((work) => {
          close();
          work.catch((cause: unknown) => say(messageOf(cause), "error"));
        })
      }
    </Menu>
  );
}

/** All lanes as they are asked now, and what was measured. */
async function saveAnswer(format: ExportFormat): Promise<void> {
  const now = view.get();
  const lanes = [];
  for (const lane of lanesOf(now.question)) {
    const body = await asked(now, lane);
    if (body) lanes.push({ title: laneTitle(lane, Boolean(body.patients)), ...body });
  }
  if (!lanes.length) throw new Error("There is no answer to export yet.");
  const measures = now.measures.map((one) => ({ kind: one.kind, z: one.z, points_mm: one.points, ...valuesOf(one) }));
  const { name, blob } = await api.exported({ format, lanes, measures });
  save(blob, name);
}

const POLL_MS = 700;
const MOST_TRIES = 500;

/** The server decodes every slice for it, which takes a while the first time. */
async function saveVolume(url: string | undefined, name: string): Promise<void> {
  if (!url) return;
  let blob = await api.derived(url);
  if (!blob) say("The volume is being made; it will be saved when it is ready.");
  for (let tries = 0; !blob; tries++) {
    if (tries === MOST_TRIES) throw new Error("The volume is still not ready; try again later.");
    await new Promise((done) => setTimeout(done, POLL_MS));
    blob = await api.derived(url);
  }
  save(blob, name);
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  say(`Saved ${name}.`);
}
