/** Whom one reads, and how: the patient in words, layout, tools, window, overlay. */

import type { Range } from "../api/types";
import { resetPicture, set, setWindow, useView } from "../state/actions";
import { useData, volumeOf } from "../state/data";
import { prefer } from "../state/preferences";
import type { Hanging } from "../state/view";
import { nextPatient } from "../shell/keyboard";
import { Segmented, Select, Slider, Toggle } from "../shell/controls";
import { TimeLine } from "../compare/prior";
import { MeasureControls } from "./measures";
import { SeriesInfo } from "./series-info";
import { signalWindow, windowWords } from "./windows";

const HANGINGS: [Hanging, string, string][] = [
  ["one", "1", "The patient alone (H)"],
  ["three", "3", "Patient, healthy twin, what disease changed (H)"],
  ["planes", "2×2", "Axial, coronal, sagittal and the healthy twin (H)"],
];

/** Windows as shares of the usual one. */
const PRESETS: [string, string, Range | null][] = [
  ["usual", "usual", null],
  ["contrast", "high contrast", [0.1, 0.7]],
  ["bright", "bright structures", [0.35, 1.25]],
  ["wide", "wide", [-0.1, 1.6]],
];

export function hang(hanging: Hanging): void {
  set("hanging", hanging);
  prefer({ hanging });
}

export function ReadingBar() {
  const { reading, four, hanging } = useView((view) => view);
  const volume = useData((now) => volumeOf(now, reading));
  const channels = useData((now) => now.archive?.channels.length ?? 0);
  if (!reading) return <div class="bar" />;
  const facts = [volume?.sex, volume?.age && `${Math.round(volume.age)} y`, volume?.source].filter(Boolean);
  return (
    <div class="bar reading-bar">
      <span class="group">
        <button type="button" class="quiet" onClick={() => nextPatient(-1)} title="Previous patient (P)" aria-label="Previous patient">
          ‹
        </button>
        <h2 class="patient-name">{volume?.volume_key ?? "…"}</h2>
        <button type="button" class="quiet" onClick={() => nextPatient(1)} title="Next patient (N)" aria-label="Next patient">
          ›
        </button>
      </span>
      <span class="facts">{facts.join(" · ")}</span>
      <TimeLine />
      <SeriesInfo />
      <span class="spring" />
      <MeasureControls />
      <WindowControls />
      <span class="group">
        <Segmented label="Layout" choices={HANGINGS} value={hanging} onChange={hang} />
        {channels > 1 && (
          <Toggle label="All" on={four} hint="All channels at once (G)" onChange={(on) => set("four", on)} />
        )}
      </span>
    </div>
  );
}

/** Whose lesion lies over the images, here and on matches. */
export function OverlayControls() {
  const overlay = useView((view) => view.overlay);
  const opacity = useView((view) => view.opacity);
  return (
    <span class="group">
      <Segmented
        label="Lesion overlay"
        choices={[
          ["none", "No overlay", "Images alone (O)"],
          ["predicted", "Predicted", "Lesion predicted from the codes, here and on matches (O)"],
          ["known", "Known", "Lesion from label maps, here and on matches that have one (O)"],
        ]}
        value={overlay}
        onChange={(value) => set("overlay", value)}
      />
      {overlay !== "none" && (
        <Slider
          label="Opacity of the overlay"
          value={opacity}
          min={0.1}
          max={1}
          step={0.05}
          onChange={(value) => set("opacity", value)}
        />
      )}
    </span>
  );
}

/** Width and level in the patient's own signal, presets, and the way back. */
function WindowControls() {
  const { reading, channel, windows, zoom } = useView((view) => view);
  const volume = useData((now) => volumeOf(now, reading));
  const shown = signalWindow(volume, windows[channel], channel);
  const chosen = windows[channel];
  const preset = PRESETS.find(([, , range]) => range?.[0] === chosen?.[0] && range?.[1] === chosen?.[1])?.[0] ?? "";
  const changed = zoom !== 1 || Object.keys(windows).length > 0;
  return (
    <span class="group">
      <Select
        label="Window"
        bare
        value={preset}
        choices={[...(preset ? [] : [["", "by hand"] as const]), ...PRESETS.map(([name, title]) => [name, title] as const)]}
        onChange={(name) => setWindow(PRESETS.find(([one]) => one === name)?.[2] ?? null)}
      />
      {shown && (
        <output class="window-words" title="Window width and level, in this patient's signal">
          {windowWords(shown)}
        </output>
      )}
      <button type="button" class="quiet" disabled={!changed} onClick={resetPicture} title="Usual window, whole picture (0)">
        {`${zoom.toFixed(1)}× reset`}
      </button>
    </span>
  );
}
