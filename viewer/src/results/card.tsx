/** One match: its slice at a readable size, what it is worth, where its lesion lies; the agreement map on pointing. */

import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "../api/client";
import { styledUrl } from "../api/client";
import type { Match, Volume } from "../api/types";
import { compareWith, useView } from "../state/actions";
import { data, useData, volumeOf, type LaneName } from "../state/data";
import type { SliceRef } from "../state/view";
import { useSettled } from "../reading/hooks";
import { squareCentimetres, useLesion } from "../reading/lesion-facts";
import { AgreementMap, agreementWords, cellWords, disagreement } from "./agreement";
import { comparedParts, detailWords, isPoor, lesionWords, levelWords, mainWorth, worthWords } from "./worth";

const PICTURE = 320;

export function Card({ match, lane }: { match: Match; lane: LaneName }) {
  const { channel, overlay, opacity, reading, ask } = useView((view) => view);
  const volume = useData((now) => volumeOf(now, reading));
  const pointed = useData((now) => now.pointed?.match === match);
  const home = useSameHeight(match, volume, reading?.z);
  const [z, button] = useHoverScroll(match, home);
  const slice: SliceRef = { kind: "volume", key: match.volume_key, z };
  const whole = match.whole;
  const own = useLesion(whole && reading ? { ...reading, z: whole.query_z } : reading, ask.mode !== "sketch" && ask.mode !== "compose");
  const facts = useLesion({ ...slice, z: match.z });
  const scrolled = z !== match.z;
  const grid = pointed && !scrolled ? disagreement(match, lane) : null;
  const point = (on: boolean) => {
    if (!on && data.get().pointed?.match !== match) return;
    data.update((now) => ({ ...now, pointed: on ? { lane, match } : null }));
  };
  const words = [
    ...lesionWords(...comparedParts(own, facts, overlay), whole).filter(() => lane !== "comparators"),
    levelWords(volume, whole ? whole.query_z : reading?.z, match),
    moved(match),
  ].filter(Boolean);
  const kind = overlay === "known" ? "label" : "mask";
  const painted = overlay !== "none" && lane !== "comparators" && (kind === "mask" || match.label_url !== null);
  return (
    <li class={`card${isPoor(match, lane) ? " poor" : ""}`}>
      <button
        type="button"
        ref={button}
        tabIndex={match.rank === 1 ? 0 : -1}
        onClick={() => compareWith({ ...slice, z: match.z }, lane, whole?.query_z)}
        onPointerEnter={() => point(true)}
        onPointerLeave={() => point(false)}
        onFocus={() => point(true)}
        onBlur={() => point(false)}
        title={detailWords(match)}
      >
        <span class="card-picture">
          <img
            src={
              match.image_url
                ? api.pictureUrl(slice, "image", { channel, height: PICTURE })
                : api.pictureUrl(slice, "reconstruction", { channel, height: PICTURE })
            }
            alt=""
            loading="lazy"
            draggable={false}
          />
          {painted && (
            <img
              src={scrolled ? api.pictureUrl(slice, kind, { channel, height: PICTURE }) : styledUrl((kind === "label" ? match.label_url : match.mask_url)!, { channel, height: PICTURE })}
              class="card-mask"
              style={{ opacity }}
              alt=""
              draggable={false}
            />
          )}
          {grid && <AgreementMap grid={grid} />}
          <b class="rank">
            <span class="unseen">Rank </span>
            {match.rank}
          </b>
          {isPoor(match, lane) && <span class="poor-mark">poor</span>}
          {(scrolled || whole) && <span class="card-slice">slice {z}</span>}
          {!match.image_url && <span class="card-slice">decoded, no image kept</span>}
          {overlay === "known" && !match.label_url && lane !== "comparators" && <span class="card-slice">no known labels</span>}
        </span>
        <span class="card-words">
          <span class="card-patient">{match.volume_key}</span>
          <WorthBar match={match} lane={lane} />
          <span class="card-place">{grid ? agreementWords(grid) : words.join(" · ")}</span>
          {lane === "comparators" && <Doubt match={match} predicted={facts?.predicted.whole_mm2} />}
          <span class="unseen">{describe(match)}</span>
        </span>
      </button>
    </li>
  );
}

/** A slice without known lesion in which the model sees one is a doubtful picture of health. */
function Doubt({ match, predicted }: { match: Match; predicted: number | undefined }) {
  const area = match.doubtful_mm2 ?? predicted ?? 0;
  return area >= DOUBTFUL_MM2 ? (
    <span class="doubt">doubtful: the model sees {squareCentimetres(area)} of lesion here</span>
  ) : (
    <span class="card-place">no known lesion</span>
  );
}

const DOUBTFUL_MM2 = 20;

/** Agreement on one scale for all lanes; of a region, how many of its cells agree. */
function WorthBar({ match, lane }: { match: Match; lane: LaneName }) {
  const worth = mainWorth(match, lane);
  const region = useView((view) => view.ask.mode === "region" ? view.ask.region : []);
  if (worth === null) return <span class="worth-words">{cellWords(match, lane, region)}</span>;
  return (
    <span class="worth">
      <span class="worth-bar" aria-hidden="true">
        <i style={{ width: `${100 * worth}%` }} />
      </span>
      <span class="worth-words">
        {worthWords(match)}
        {isPoor(match, lane) && ", poor"}
      </span>
    </span>
  );
}

/** The wheel over a match goes through its slices; leaving it goes back to the one that was found. */
function useHoverScroll(match: Match, home: number): [number, { current: HTMLButtonElement | null }] {
  const [z, setZ] = useState(home);
  const button = useRef<HTMLButtonElement>(null);
  const volume = useRef<Promise<Volume> | null>(null);
  useEffect(() => {
    const node = button.current;
    if (!node) return;
    let place: number | null = null;
    const wheel = (event: WheelEvent) => {
      if (event.ctrlKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
      event.preventDefault();
      event.stopPropagation();
      const step = -Math.sign(event.deltaY);
      volume.current ??= api.volume({ kind: "volume", key: match.volume_key, z: match.z });
      void volume.current.then(
        ({ z_indices }) => {
          place = Math.min(z_indices.length - 1, Math.max(0, (place ?? z_indices.indexOf(home)) + step));
          setZ(z_indices[place]!);
        },
        () => (volume.current = null),
      );
    };
    const leave = () => {
      place = null;
      setZ(home);
    };
    node.addEventListener("wheel", wheel, { passive: false });
    node.addEventListener("pointerleave", leave);
    return () => {
      node.removeEventListener("wheel", wheel);
      node.removeEventListener("pointerleave", leave);
    };
  }, [match.volume_key, home]);
  useEffect(() => setZ(home), [home]);
  return [z, button];
}

/** Of a whole patient, the slice at the height that is read, once scrolling has settled; otherwise the one found. */
function useSameHeight(match: Match, volume: Volume | undefined, reading: number | undefined): number {
  const z = useSettled(reading, SETTLE_MS);
  const height = volume && z !== undefined ? volume.z_mm[volume.z_indices.indexOf(z)] : undefined;
  if (!match.whole || height === undefined) return match.z;
  const off = ([, mm]: readonly [number, number]) => Math.abs(mm - height);
  return match.whole.slices.reduce((best, one) => (off(one) < off(best) ? one : best))[0];
}

const SETTLE_MS = 150;

const moved = ({ shift }: Match): string =>
  shift ? [shift.mirrored && "mirrored", (shift.rows || shift.columns) && "shifted"].filter(Boolean).join(", ") : "";

/** What is only read out: the slice, the distance and its parts. */
function describe(match: Match): string {
  const parts = `${match.normal_part.toFixed(2)} from anatomy, ${match.abnormal_part.toFixed(2)} from lesion`;
  const words = [`slice ${match.z}`, `distance ${match.distance.toFixed(2)}`, match.whole ? "" : parts];
  return `, ${words.filter(Boolean).join(", ")}. Compare.`;
}
