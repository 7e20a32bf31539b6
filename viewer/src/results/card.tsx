/** One match: its slice, how far away it is by either panel, who it is and where; the agreement map on pointing. */

import { styledUrl } from "../api/client";
import type { Match } from "../api/types";
import { compareWith, useView } from "../state/actions";
import { data, useData, type LaneName } from "../state/data";
import { AgreementMap, agreementWords, disagreement } from "./agreement";

interface CardProps {
  match: Match;
  lane: LaneName;
  /** The largest distance in the lane, which fills the bar. */
  farthest: number;
}

export function Card({ match, lane, farthest }: CardProps) {
  const channel = useView((view) => view.channel);
  const overlay = useView((view) => view.overlay);
  const pointed = useData((now) => now.pointed?.match === match);
  const grid = pointed ? disagreement(match, lane) : null;
  const point = (on: boolean) => {
    if (!on && data.get().pointed?.match !== match) return;
    data.update((now) => ({ ...now, pointed: on ? { lane, match } : null }));
  };
  return (
    <li class="card">
      <button
        type="button"
        onClick={() => compareWith({ kind: "volume", key: match.volume_key, z: match.z })}
        onPointerEnter={() => point(true)}
        onPointerLeave={() => point(false)}
        onFocus={() => point(true)}
        onBlur={() => point(false)}
        aria-label={describe(match)}
      >
        <span class="card-picture">
          {match.image_url ? (
            <img src={styledUrl(match.image_url, { channel, height: 256 })} alt="" loading="lazy" draggable={false} />
          ) : (
            <img src={styledUrl(match.twin_url, { channel, height: 256 })} alt="" loading="lazy" draggable={false} />
          )}
          {overlay !== "none" && (
            <img src={styledUrl(match.mask_url, { channel, height: 256 })} class="card-mask" alt="" draggable={false} />
          )}
          {grid && <AgreementMap grid={grid} />}
          <b class="rank">{match.rank}</b>
        </span>
        <span class="card-words">
          <span class="card-patient" title={match.patient_key}>
            {match.patient_key}
          </span>
          <span class="card-place">{place(match)}</span>
          <DistanceBar match={match} farthest={farthest} />
          {grid && <span class="card-agreement">{agreementWords(grid)}</span>}
        </span>
      </button>
    </li>
  );
}

/** How far, split into what the anatomy and what the lesion adds. */
function DistanceBar({ match, farthest }: { match: Match; farthest: number }) {
  const share = (part: number) => `${(100 * part) / (farthest || 1)}%`;
  return (
    <span
      class="distance"
      title={`Distance ${match.distance.toFixed(3)} = anatomy ${match.normal_part.toFixed(3)} + lesion ${match.abnormal_part.toFixed(3)}`}
    >
      <span class="distance-bar" aria-hidden="true">
        <i class="normal" style={{ width: share(match.normal_part) }} />
        <i class="abnormal" style={{ width: share(match.abnormal_part) }} />
      </span>
      <span class="distance-value">{match.distance.toFixed(2)}</span>
    </span>
  );
}

function place({ z, position, shift }: Match): string {
  const moved =
    shift && [shift.mirrored && "mirrored", (shift.rows || shift.columns) && "shifted"].filter(Boolean).join(", ");
  return [`slice ${z}`, `${Math.round(position * 100)} %`, moved].filter(Boolean).join(" · ");
}

function describe(match: Match): string {
  const parts = `${match.normal_part.toFixed(2)} from anatomy, ${match.abnormal_part.toFixed(2)} from lesion`;
  return `Rank ${match.rank}: ${match.patient_key}, ${place(match)}, distance ${match.distance.toFixed(2)}, ${parts}. Compare.`;
}
