/** Windows: from a share of the usual one, as a reader sets it, to the signal of a volume. */

import type { Channel, Range, Volume } from "../api/types";
import type { View } from "../state/view";

/** Signal shown black and white; null where the volume's usual window is not known. */
export function signalWindow(volume: Volume | undefined, chosen: Range | undefined, channel: Channel): Range | null {
  const usual = volume?.windows[channel];
  if (!usual) return null;
  if (!chosen) return usual;
  const width = usual[1] - usual[0];
  return [usual[0] + chosen[0] * width, usual[0] + chosen[1] * width];
}

/** Width and level, as radiologists say them. */
export const windowWords = ([low, high]: Range): string => `W ${Math.round(high - low)} L ${Math.round((low + high) / 2)}`;

/** The window that pictures must be asked for: none where the usual one is shown anyway. */
export function pictureWindow(
  volume: Volume | undefined,
  view: Pick<View, "windows">,
  channel: Channel,
): Range | undefined {
  const chosen = view.windows[channel];
  return chosen ? (signalWindow(volume, chosen, channel) ?? undefined) : undefined;
}
