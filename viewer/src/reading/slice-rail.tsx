/** Which slice is shown: a slider over a profile of the lesion from bottom to top, and the place in words. */

import { useEffect } from "preact/hooks";
import type { Volume } from "../api/types";
import { goTo, goToLesion, scroll, useView, view } from "../state/actions";
import { useData, volumeOf } from "../state/data";
import { Store, useStore } from "../state/store";

const CINE_MS = 90;
/** Whether slices are being played. */
export const cine = new Store(false);

/** `note` is said in place of the words when it matters more. */
export function SliceRail({ note }: { note?: string | false }) {
  const reading = useView((view) => view.reading);
  const volume = useData((now) => volumeOf(now, reading));
  if (!reading || !volume) return <div class="rail" />;
  const place = Math.max(0, volume.z_indices.indexOf(reading.z));
  const words = `Slice ${reading.z}, ${Math.round(volume.positions[place]! * 100)} % of the way up, ${volume.z_mm[place]!.toFixed(0)} mm`;
  return (
    <div class="rail">
      <Cine />
      <div class="rail-track" title={profileWords(volume)}>
        <LesionProfile volume={volume} place={place} />
        <input
          type="range"
          aria-label="Slice"
          aria-valuetext={words}
          min={0}
          max={volume.z_indices.length - 1}
          value={place}
          onInput={(event) => goTo(volume.z_indices[Number(event.currentTarget.value)]!)}
        />
      </div>
      <output class={note ? "rail-words trust" : "rail-words"}>{note || words}</output>
      <ProfileSource volume={volume} />
      <button type="button" class="quiet" onClick={goToLesion} title="Slice with the largest lesion (L)">
        Largest lesion
      </button>
    </div>
  );
}

const profileWords = ({ lesion_source }: Volume): string =>
  lesion_source === "unknown" ? "No lesion areas are known; 'diptych index --predict-lesions' takes them from the prediction" : `Bars: ${lesion_source === "labels" ? "known" : "predicted"} lesion area by slice`;

/** Whether the bars are known or predicted, in one word. */
function ProfileSource({ volume }: { volume: Volume }) {
  const word = { labels: "bars: known lesion", predicted: "bars: predicted lesion", unknown: "lesion unknown" }[volume.lesion_source];
  return <span class="profile-source">{word}</span>;
}

/** Plays through the slices, up and down again. */
function Cine() {
  const playing = useStore(cine, (now) => now);
  useEffect(() => {
    if (!playing) return;
    let step = 1;
    const timer = setInterval(() => {
      const before = view.get().reading?.z;
      scroll(step);
      if (view.get().reading?.z === before) step = -step;
    }, CINE_MS);
    return () => clearInterval(timer);
  }, [playing]);
  return (
    <button
      type="button"
      class="quiet cine"
      aria-pressed={playing}
      aria-label={playing ? "Stop playing" : "Play through the slices"}
      title="Play through the slices (Space)"
      onClick={() => cine.set(!playing)}
    >
      {playing ? "❚❚" : "▶"}
    </button>
  );
}

function LesionProfile({ volume, place }: { volume: Volume; place: number }) {
  const largest = Math.max(1, ...volume.lesion_area.map((area) => area ?? 0));
  const count = volume.lesion_area.length;
  return (
    <svg class="profile" viewBox={`0 0 ${count} 1`} preserveAspectRatio="none" aria-hidden="true">
      {volume.lesion_area.map((area, i) =>
        area ? (
          <rect
            key={i}
            x={i + 0.1}
            width={0.8}
            y={1 - area / largest}
            height={area / largest}
            class={i === place ? "here" : ""}
          />
        ) : null,
      )}
    </svg>
  );
}
