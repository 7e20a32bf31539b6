/** The diptych: the patient's slice, its healthy twin, and what disease changed, side by side at one scale. */

import { useMemo } from "preact/hooks";
import { useView } from "../state/actions";
import { data, useData } from "../state/data";
import { AskBar } from "../ask/ask-bar";
import { ChangedPane } from "./changed-pane";
import { ChannelStrip } from "./channel-strip";
import { PatientPane } from "./patient-pane";
import { ReadingBar } from "./reading-bar";
import { SliceRail } from "./slice-rail";
import { sourceOf } from "./sources";
import { TwinPane } from "./twin-pane";

export function Reading() {
  const view = useView((now) => now);
  const subject = useData((now) => now.subject);
  const volumes = useData((now) => now.volumes);
  const source = useMemo(() => sourceOf(view, data.get()), [view.reading, view.ask, subject, volumes]);
  return (
    <section class="reading" aria-label="Diptych">
      <ReadingBar />
      <AskBar />
      {source ? (
        <div class="panes">
          <ChannelStrip source={source} />
          <PatientPane source={source} />
          <TwinPane source={source} />
          <ChangedPane source={source} />
        </div>
      ) : (
        <NothingYet />
      )}
      <SliceRail />
    </section>
  );
}

function NothingYet() {
  const mode = useView((view) => view.ask.mode);
  return (
    <div class="panes empty">
      {mode === "compose"
        ? "Choose whose anatomy and whose lesion above: open a patient, scroll to a slice, press the button."
        : "Choose a patient from the list, or drop one's four NIfTI files on it."}
    </div>
  );
}
