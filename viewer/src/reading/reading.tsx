/** The diptych: the patient's slice, its healthy twin, and what disease changed; or the patient in three planes. */

import { useMemo } from "preact/hooks";
import { useView } from "../state/actions";
import { data, useData } from "../state/data";
import { AskBar } from "../ask/ask-bar";
import { useSketchTool } from "../ask/sketch";
import { ChangedPane } from "./changed-pane";
import { ChannelStrip } from "./channel-strip";
import { PatientPane } from "./patient-pane";
import { ReadingBar } from "./reading-bar";
import { SliceRail } from "./slice-rail";
import { sourceOf, type Source } from "./sources";
import { TwinPane } from "./twin-pane";
import { UprightPane } from "./upright-panes";

export function Reading() {
  const view = useView((now) => now);
  const subject = useData((now) => now.subject);
  const volumes = useData((now) => now.volumes);
  const source = useMemo(() => sourceOf(view, data.get()), [view.reading, view.ask, subject, volumes]);
  return (
    <section class="reading" aria-label="Diptych">
      <ReadingBar />
      <TrustNote />
      <AskBar />
      {source ? <Panes source={source} /> : <NothingYet />}
      <SliceRail />
    </section>
  );
}

function Panes({ source }: { source: Source }) {
  const hanging = useView((view) => view.hanging);
  const sketching = useView((view) => view.ask.mode === "sketch");
  const sketch = useSketchTool(source.plane);
  const twin = <TwinPane source={source} sketch={sketching ? sketch : undefined} />;
  return (
    <div class={`panes hung-${hanging}`}>
      <ChannelStrip source={source} />
      <PatientPane source={source} />
      {hanging === "planes" && <UprightPane axial={source.plane} axis="coronal" />}
      {hanging === "planes" && <UprightPane axial={source.plane} axis="sagittal" />}
      {hanging !== "one" && twin}
      {hanging === "three" && <ChangedPane source={source} />}
    </div>
  );
}

/** What makes the answers doubtful, in plain words; never cut off. */
function TrustNote() {
  const warnings = useData((now) => now.subject.view?.trust.warnings) ?? [];
  const error = useData((now) => now.subject.error);
  const reading = useView((view) => view.reading);
  const texts = error ? [error] : warnings;
  if (!reading || !texts.length) return null;
  return (
    <div class="trust safety" role="status">
      {texts.map((text) => (
        <p key={text}>{text}</p>
      ))}
    </div>
  );
}

function NothingYet() {
  const mode = useView((view) => view.ask.mode);
  return (
    <div class="panes empty">
      {mode === "compose"
        ? "Choose whose anatomy and whose lesion above: open a patient, scroll to a slice, press the button."
        : "Choose a patient from the list, or drop one's NIfTI files or DICOM folder anywhere on the page."}
    </div>
  );
}
