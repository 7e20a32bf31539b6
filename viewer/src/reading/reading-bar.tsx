/** Whom one reads, and how: the patient in words, overlay, window, zoom. */

import { resetPicture, set, useView } from "../state/actions";
import { useData, volumeOf } from "../state/data";
import { Segmented, Slider, Toggle } from "../shell/controls";

export function ReadingBar() {
  const { reading, four, overlay, opacity, zoom, windows } = useView((view) => view);
  const volume = useData((now) => volumeOf(now, reading));
  if (!reading) return <div class="bar" />;
  const facts = [
    volume?.sex,
    volume?.age && `${Math.round(volume.age)} y`,
    volume?.source,
    ...(volume?.tags ?? []),
  ].filter(Boolean);
  const changed = zoom !== 1 || Object.keys(windows).length > 0;
  return (
    <div class="bar">
      <h2 class="patient-name">{volume?.patient_key ?? "…"}</h2>
      <span class="facts">{facts.join(" · ")}</span>
      <TrustNote />
      <span class="spring" />
      <button
        type="button"
        class="quiet"
        disabled={!changed}
        onClick={resetPicture}
        title="Usual window, whole picture (0)"
      >
        {`${zoom.toFixed(1)}× · reset`}
      </button>
      <Toggle label="Four channels" on={four} hint="All channels at once (G)" onChange={(on) => set("four", on)} />
      <span class="group">
        <Segmented
          label="Lesion overlay on the patient"
          choices={[
            ["none", "No overlay"],
            ["predicted", "Predicted", "Lesion predicted from the codes (O)"],
            ...(volume?.label_urls.lesion ? [["known", "Known", "Lesion from a label map (O)"] as const] : []),
          ]}
          value={overlay}
          onChange={(value) => set("overlay", value)}
        />
        <Slider
          label="Opacity of the overlay"
          value={opacity}
          min={0.1}
          max={1}
          step={0.05}
          disabled={overlay === "none"}
          onChange={(value) => set("opacity", value)}
        />
      </span>
    </div>
  );
}

/** What makes the answers doubtful, in plain words. */
function TrustNote() {
  const warnings = useData((now) => now.subject.view?.trust.warnings);
  const error = useData((now) => now.subject.error);
  const text = error ?? warnings?.[0];
  if (!text) return null;
  return (
    <p class="trust" role="status" title={error ?? warnings?.join("\n")}>
      {warnings && warnings.length > 1 && `(${warnings.length}) `}
      {text}
    </p>
  );
}
