/** Asking differently: about the slice, a region, a sketch or a composition; in place, shifted or mirrored. */

import { askWith, setAsk, useView } from "../state/actions";
import { useData } from "../state/data";
import { useStore } from "../state/store";
import type { Anywhere } from "../api/types";
import type { AskMode, SliceRef } from "../state/view";
import { OverlayControls } from "../reading/reading-bar";
import { Segmented, Select, Slider, Toggle } from "../shell/controls";
import { brush, BRUSH_MM } from "./sketch";

const MODES: [AskMode, string, string][] = [
  ["patient", "Patient", "Finds patients: the whole patient is compared in three dimensions, whichever slice is open (U)"],
  ["slice", "This slice", "Finds slices: the whole slice is compared (S)"],
  ["region", "Region", "Finds slices: only a part of this one is compared (R)"],
  ["sketch", "Sketch", "Finds slices: paint a lesion on the healthy twin (K)"],
  ["compose", "Compose", "Finds slices: the anatomy of one patient with the lesion of another (C)"],
];

const PLACES: [string, string][] = [
  ["", "in place"],
  ["shifted", "anywhere (shifted)"],
  ["mirrored", "mirrored"],
  ["both", "shifted or mirrored"],
  ["histogram", "anywhere (any shape)"],
];

export function AskBar() {
  const reading = useView((view) => view.reading);
  const able = useData((now) => now.archive?.can_find_patients ?? true);
  const asked = useView((view) => view.ask.mode);
  const mode = asked === "patient" && !able ? "slice" : asked;
  const anywhere = useView((view) => view.question.anywhere);
  const inside = useView((view) => view.question.insideLesion);
  if (!reading) return <div class="bar" />;
  return (
    <div class="bar ask">
      <span class="bar-label">Ask about</span>
      <Segmented label="Ask about" choices={able ? MODES : MODES.slice(1)} value={mode} onChange={(next) => setAsk({ mode: next })} />
      {mode === "region" && <RegionControls />}
      {mode === "sketch" && <SketchControls />}
      {mode === "compose" && <ComposeControls />}
      <span class="spring" />
      <OverlayControls />
      {mode !== "patient" && (
        <Toggle
          label="Inside the lesion"
          on={inside}
          hint="Compare only where the lesion is predicted; acts on all lanes but the comparators (I)"
          onChange={(on) => askWith({ insideLesion: on })}
        />
      )}
      <Select
        label="Find the lesion"
        hint={anywhere ? "Acts on “By lesion” only" : "Where the lesion may lie; acts on “By lesion” only"}
        value={anywhere ?? ""}
        choices={mode === "patient" ? PLACES.filter(([value]) => value !== "histogram") : PLACES}
        onChange={(value) => askWith({ anywhere: (value || null) as Anywhere | null })}
      />
    </div>
  );
}

function RegionControls() {
  const count = useView((view) => view.ask.region.length);
  return (
    <>
      <span class="hint">{count ? `${count} cells compared` : "Drag over the patient"}</span>
      <button type="button" class="quiet" disabled={!count} onClick={() => setAsk({ region: [] })}>
        Clear
      </button>
    </>
  );
}

function SketchControls() {
  const classes = useData((now) => now.archive?.lesion_classes) ?? [];
  const strokes = useView((view) => view.ask.strokes.length);
  const { label, radius_mm } = useStore(brush, (now) => now);
  const brushes: [string, string][] = [
    ...classes.map(({ id, name }): [string, string] => [String(id), name]),
    ["0", "Erase"],
  ];
  return (
    <>
      <Segmented
        label="Brush"
        choices={brushes}
        value={String(label)}
        onChange={(value) => brush.update((now) => ({ ...now, label: Number(value) }))}
      />
      <Slider
        label={`Brush size, ${radius_mm} mm`}
        value={radius_mm}
        min={BRUSH_MM.least}
        max={BRUSH_MM.most}
        step={1}
        onChange={(value) => brush.update((now) => ({ ...now, radius_mm: value }))}
      />
      <button type="button" class="quiet" disabled={!strokes} onClick={() => setAsk({ strokes: [] })}>
        Clear
      </button>
    </>
  );
}

function ComposeControls() {
  const { anatomyOf, lesionOf } = useView((view) => view.ask);
  return (
    <>
      <ComposeSlot label="Anatomy" slice={anatomyOf} onUse={(slice) => setAsk({ anatomyOf: slice })} />
      <ComposeSlot label="Lesion" slice={lesionOf} onUse={(slice) => setAsk({ lesionOf: slice })} />
    </>
  );
}

interface ComposeSlotProps {
  label: string;
  slice: SliceRef | null;
  onUse: (slice: SliceRef | null) => void;
}

/** Holds a slice; pressing it takes the one that is read. */
function ComposeSlot({ label, slice, onUse }: ComposeSlotProps) {
  const reading = useView((view) => view.reading);
  const name = slice && (slice.kind === "volume" ? slice.key : "your patient");
  return (
    <button
      type="button"
      class="slot"
      onClick={() => onUse(reading)}
      title={`Take the ${label.toLowerCase()} from the patient and slice that are open now`}
    >
      {label}: <b>{name ? `${tail(name)}, slice ${slice.z}` : "use this slice"}</b>
    </button>
  );
}

/** The end of a key, which is what tells keys apart. */
const tail = (key: string): string => (key.length > 12 ? `…${key.slice(-11)}` : key);
