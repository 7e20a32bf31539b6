/** Two volumes in step: which slice of the one belongs to a slice of the other, in millimetres. */

import type { Volume } from "../api/types";
import type { Compare, SliceRef } from "../state/view";

export interface Partner {
  slice: SliceRef;
  /** Whether the volume ends before this height. */
  beyond: boolean;
}

/** The match's slice that is as far from the one that was found as the patient's slice is from where it was asked. */
export function partnerOf(
  read: Volume | undefined,
  found: Volume | undefined,
  reading: SliceRef,
  compare: Compare,
): Partner {
  if (!read || !found) return { slice: compare.with, beyond: false };
  const height = (volume: Volume, z: number) => volume.z_mm[volume.z_indices.indexOf(z)];
  const [here, start, match] = [height(read, reading.z), height(read, compare.from), height(found, compare.with.z)];
  if (here === undefined || start === undefined || match === undefined) return { slice: compare.with, beyond: false };
  const wanted = match + here - start;
  const nearest = found.z_mm.reduce(
    (best, mm, i) => (Math.abs(mm - wanted) < Math.abs(found.z_mm[best]! - wanted) ? i : best),
    0,
  );
  const spacing = Math.abs((found.z_mm[1] ?? 1) - (found.z_mm[0] ?? 0));
  return {
    slice: { ...compare.with, z: found.z_indices[nearest]! },
    beyond: Math.abs(found.z_mm[nearest]! - wanted) > spacing,
  };
}
