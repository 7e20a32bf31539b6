/** What can be taken away: the answer as a figure or a table, the predicted mask and the healthy twin as volumes. */

import { useRef } from "preact/hooks";
import * as api from "../api/client";
import { CHANNEL_TITLES, type ExportFormat } from "../api/types";
import { asked } from "../state/effects";
import { useView, view } from "../state/actions";
import { data, messageOf, say, useData, volumeOf, type LaneName } from "../state/data";

const FILES: Record<ExportFormat, string> = {
  figure: "diptych-figure.png",
  csv: "diptych-matches.csv",
  json: "diptych-matches.json",
};

export function ExportMenu() {
  const menu = useRef<HTMLDetailsElement>(null);
  const reading = useView((now) => now.reading);
  const channel = useView((now) => now.channel);
  const volume = useData((now) => volumeOf(now, reading));
  const answered = useData((now) => Object.values(now.lanes).some((lane) => lane.answer));
  const act = (work: Promise<void>) => {
    if (menu.current) menu.current.open = false;
    work.catch((cause: unknown) => say(messageOf(cause), "error"));
  };
  return (
    <details
      class="menu"
      ref={menu}
      onKeyDown={(event) => event.key === "Escape" && menu.current && (menu.current.open = false)}
    >
      <summary class="quiet">Export</summary>
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
        <VolumeLink url={volume?.export_urls.mask} name="Predicted lesion (NIfTI)" />
        <VolumeLink
          url={volume?.export_urls[`twin-${channel}`]}
          name={`Healthy twin, ${CHANNEL_TITLES[channel]} (NIfTI)`}
        />
        <p class="hint">Lanes export the list by both.</p>
      </div>
    </details>
  );
}

function VolumeLink({ url, name }: { url: string | undefined; name: string }) {
  return url ? (
    <a href={url} download>
      {name}
    </a>
  ) : (
    <button type="button" disabled>
      {name}
    </button>
  );
}

/** The search of the main lane, as it was asked last. */
async function saveAnswer(format: ExportFormat): Promise<void> {
  const lane: LaneName = "both";
  const body = await asked(view.get(), lane);
  if (!body || !data.get().lanes[lane].answer) throw new Error("There is no answer to export yet.");
  const blob = await api.exported(body, format);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = FILES[format];
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  say(`Saved ${FILES[format]}.`);
}
