/** From one match to the next while comparing, in the lane that it was found in. */

import type { Match } from "../api/types";
import { compareWith, view } from "../state/actions";
import { data, LANES, type Data, type LaneName } from "../state/data";
import type { Compare } from "../state/view";

export interface Found {
  lane: LaneName;
  matches: readonly Match[];
  place: number;
}

/** Where the compared slice stands among the matches; null when no lane has it any more. */
export function foundIn(now: Data, compare: Compare): Found | null {
  const lanes = [...LANES].sort((one, other) => Number(other === compare.lane) - Number(one === compare.lane));
  for (const lane of lanes) {
    const matches = now.lanes[lane].answer?.matches ?? [];
    const place = matches.findIndex(({ volume_key, z }) => volume_key === compare.with.key && z === compare.with.z);
    if (place >= 0) return { lane, matches, place };
  }
  return null;
}

export function nextMatch(step: number): void {
  const { compare } = view.get();
  const found = compare && foundIn(data.get(), compare);
  const next = found?.matches[found.place + step];
  if (found && next) compareWith({ kind: "volume", key: next.volume_key, z: next.z }, found.lane, next.whole?.query_z);
}
