/** Two patients side by side, over one another with a swipe, or blinking; they scroll by the same millimetres. */

import { useEffect, useState } from "preact/hooks";
import type { Match } from "../api/types";
import { closeCompare, open, set, setAsk, setCompare, useView } from "../state/actions";
import { data, useData, volumeOf, type LaneName } from "../state/data";
import type { Compare, SliceRef } from "../state/view";
import { ChannelStrip } from "../reading/channel-strip";
import { Areas, useLesion } from "../reading/lesion-facts";
import { Pane } from "../reading/pane";
import type { Frame } from "../reading/plane";
import { SliceRail } from "../reading/slice-rail";
import { planeFor, sliceSource } from "../reading/sources";
import { Clipped, SwipeHandle } from "../reading/twin-pane";
import { AgreementLayer } from "../results/agreement";
import { LANE_TITLES } from "../results/results";
import { detailWords, worthWords } from "../results/worth";
import { Segmented, Slider, Toggle } from "../shell/controls";
import { SliceLayers } from "../reading/slice-layers";
import { signalWindow, windowWords } from "../reading/windows";
import { foundIn, nextMatch, type Found } from "./matches";
import { partnerOf } from "./synchrony";

const BLINK_MS = 700;

export function CompareView({ reading, compare }: { reading: SliceRef; compare: Compare }) {
  const volumes = useData((now) => now.volumes);
  const now = data.get();
  const partner = partnerOf(volumeOf(now, reading), volumeOf(now, compare.with), reading, compare);
  const found = useData((here) => foundIn(here, compare));
  const match = found?.matches[found.place];
  const sides: [Side, Side] = [
    { slice: reading, plane: planeFor(now, reading), volume: volumeOf({ ...now, volumes }, reading), name: "Patient" },
    {
      slice: partner.slice,
      plane: planeFor(now, compare.with),
      volume: volumeOf({ ...now, volumes }, compare.with),
      name: "Match",
      match,
      compared: partner.slice.z === compare.with.z && reading.z === compare.from,
      lane: found?.lane,
    },
  ];
  return (
    <section class="compare" aria-label="Compare">
      <CompareBar reading={reading} compare={compare} found={found} />
      <div class={`panes compared ${compare.layout}`}>
        <ChannelStrip source={sliceSource(reading, sides[0].plane)} slice={reading} />
        {compare.layout === "side" && sides.map((side, i) => <OnePatient key={i} side={side} compare={compare} />)}
        {compare.layout === "swipe" && <Swiped sides={sides} compare={compare} />}
        {compare.layout === "blink" && <Blinking sides={sides} compare={compare} />}
        <ChannelStrip source={sliceSource(partner.slice, sides[1].plane)} slice={partner.slice} />
      </div>
      <SliceRail note={partner.beyond && "The match shows no brain at this height; its nearest slice is shown."} />
    </section>
  );
}

export interface Side {
  slice: SliceRef;
  plane: ReturnType<typeof planeFor>;
  volume: ReturnType<typeof volumeOf>;
  name: string;
  /** What a search has found there. */
  match?: Match | undefined;
  /** Whether the slices shown are those that the search compared; what it says holds for no others. */
  compared?: boolean;
  lane?: LaneName | undefined;
}

const titleOf = ({ volume, name }: Side): string => (volume ? `${name} ${volume.volume_key}` : name);

/** Where one side is, and in which window. */
function Note({ side: { slice, volume } }: { side: Side }) {
  const { channel, windows } = useView((view) => view);
  const height = volume?.z_mm[volume.z_indices.indexOf(slice.z)];
  const shown = signalWindow(volume, windows[channel], channel);
  const words = [`slice ${slice.z}`, height !== undefined && `${height.toFixed(0)} mm`, shown && windowWords(shown)];
  return <span>{words.filter(Boolean).join(" · ")}</span>;
}

/** What a search said of a side; of other slices of it than the one compared, where that one is. */
function Worth({ side: { match, compared } }: { side: Side }) {
  if (!match) return null;
  return (
    <p class="pane-words" title={detailWords(match)}>
      {match.whole || compared ? worthWords(match) : `found at slice ${match.z}`}
    </p>
  );
}

interface SideFactsProps {
  side: Side;
  compare: Compare;
  frame: Frame;
  /** Whether its words stand at the right edge. */
  across?: boolean;
}

/** What lies over one side: the agreement map where it is wanted, areas and colours with their source. */
function SideFacts({ side, compare, frame, across }: SideFactsProps) {
  const facts = useLesion(side.slice);
  const source = compare.labels === "known" ? "known" : "predicted";
  const pointed = side.compared && side.match && side.lane && { match: side.match, lane: side.lane };
  return (
    <>
      <Worth side={side} />
      {compare.agreement && pointed && <AgreementLayer pointed={pointed} frame={frame} plane={side.plane} />}
      <div class={across ? "areas across" : "areas"}>
        <Areas part={facts ? facts[source] : undefined} source={source} />
      </div>
    </>
  );
}

/** What the cursor reads in one side. */
const cursorOf = ({ slice, volume }: Side, channel: string) => ({
  depth: volume?.z_mm[volume.z_indices.indexOf(slice.z)],
  url: volume?.channel_urls[channel],
});

function OnePatient({ side, compare }: { side: Side; compare: Compare }) {
  const channel = useView((view) => view.channel);
  return (
    <Pane title={titleOf(side)} note={<Note side={side} />} cursor={cursorOf(side, channel)} plane={side.plane}>
      {(frame) => (
        <>
          <SliceLayers shown={side} frame={frame} labels={compare.labels} />
          <SideFacts side={side} compare={compare} frame={frame} />
        </>
      )}
    </Pane>
  );
}

function Swiped({ sides: [left, right], compare }: { sides: [Side, Side]; compare: Compare }) {
  return (
    <Pane title={`${titleOf(left)} | ${titleOf(right)}`} note={<Note side={right} />} plane={left.plane}>
      {(frame) => (
        <>
          <SliceLayers shown={right} frame={frame} labels={compare.labels} />
          <Clipped frame={frame} to={compare.swipe}>
            <SliceLayers shown={left} frame={frame} labels={compare.labels} />
          </Clipped>
          <SideFacts side={left} compare={compare} frame={frame} />
          <SideFacts side={right} compare={compare} frame={frame} across />
          <SwipeHandle
            frame={frame}
            value={compare.swipe}
            label="Swipe between the two patients"
            onChange={(swipe) => setCompare({ swipe })}
          />
        </>
      )}
    </Pane>
  );
}

/** One after the other; readers who want no motion turn the page themselves. */
function Blinking({ sides, compare }: { sides: [Side, Side]; compare: Compare }) {
  const [second, setSecond] = useState(false);
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  useEffect(() => {
    if (still) return;
    const timer = setInterval(() => setSecond((now) => !now), BLINK_MS);
    return () => clearInterval(timer);
  }, [still]);
  const shown = sides[second ? 1 : 0];
  const note = (
    <>
      <Note side={shown} />
      {still && (
        <button type="button" class="quiet" onClick={() => setSecond(!second)}>
          Show the other
        </button>
      )}
    </>
  );
  return (
    <Pane title={titleOf(shown)} note={note} plane={sides[0].plane}>
      {(frame) =>
        sides.map((side, i) => (
          <div class="layer ground" key={i} style={{ visibility: side === shown ? "visible" : "hidden" }}>
            <SliceLayers shown={side} frame={frame} labels={compare.labels} />
            <SideFacts side={side} compare={compare} frame={frame} />
          </div>
        ))
      }
    </Pane>
  );
}

function CompareBar({ reading, compare, found }: { reading: SliceRef; compare: Compare; found: Found | null }) {
  const match = found?.matches[found.place];
  const hasMap = Boolean(match && Object.keys(match.agreement).length);
  const opacity = useView((view) => view.opacity);
  return (
    <div class="bar">
      <button type="button" class="back" onClick={closeCompare} title="Back to the results (Esc)">
        ‹ Results
      </button>
      {found && (
        <span class="group">
          <button
            type="button"
            class="quiet"
            aria-label="Previous match"
            title="Previous match (<)"
            disabled={found.place === 0}
            onClick={() => nextMatch(-1)}
          >
            ‹
          </button>
          <span class="match-place">
            {LANE_TITLES[found.lane][0].toLowerCase()}: {found.place + 1} of {found.matches.length}
          </span>
          <button
            type="button"
            class="quiet"
            aria-label="Next match"
            title="Next match (>)"
            disabled={found.place + 1 === found.matches.length}
            onClick={() => nextMatch(1)}
          >
            ›
          </button>
        </span>
      )}
      <Segmented
        label="How to compare"
        choices={[
          ["side", "Beside", "Side by side"],
          ["swipe", "Swipe", "One over the other, with a handle (V)"],
          ["blink", "Blink", "One after the other (B)"],
        ]}
        value={compare.layout}
        onChange={(layout) => setCompare({ layout })}
      />
      <Segmented
        label="Lesion overlay"
        choices={[
          ["none", "None", "No overlay"],
          ["predicted", "Predicted"],
          ["known", "Known"],
        ]}
        value={compare.labels}
        onChange={(labels) => setCompare({ labels })}
      />
      {compare.labels !== "none" && (
        <Slider
          label="Opacity of the overlay"
          value={opacity}
          min={0.1}
          max={1}
          step={0.05}
          onChange={(value) => set("opacity", value)}
        />
      )}
      <Toggle
        label="Agreement"
        on={compare.agreement && hasMap}
        disabled={!hasMap}
        hint={
          hasMap
            ? "Which cells agree, in the slices that were compared (Y)"
            : "Whole patients were compared, not cells of one slice: ask about this slice for the map"
        }
        onChange={(agreement) => setCompare({ agreement })}
      />
      <span class="spring" />
      <button
        type="button"
        class="quiet"
        onClick={() => setAsk({ mode: "compose", anatomyOf: reading, lesionOf: compare.with })}
        onClickCapture={closeCompare}
        title="Ask for this patient's anatomy with the match's lesion"
      >
        Compose
      </button>
      <button
        type="button"
        class="quiet"
        onClick={() => open(compare.with)}
        title="Make the match the patient who is read"
      >
        Read match
      </button>
    </div>
  );
}
