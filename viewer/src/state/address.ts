/**
 * Keeps the address bar, the browser's history and the `View` in step.
 *
 * Another patient, a comparison or another kind of question is a step that Back returns from; scrolling, windows and
 * sliders change the step one is on. Each step keeps its whole view, so that Back and a reload show uploads too, which no
 * address may name.
 */

import * as api from "../api/client";
import { view } from "./actions";
import { data } from "./data";
import { preferences } from "./preferences";
import { hashKey, readAddress, writeAddress } from "./url";
import { START, type View } from "./view";

const SETTLE_MS = 250;
const PAGE = 500;

const salt = (): string => data.get().archive?.model.fingerprint ?? "";
const addressOf = (now: View): string => {
  const address = writeAddress(now, salt());
  return address ? `#${address}` : location.pathname + location.search;
};

/** What makes two views different places. */
const placeOf = ({ reading, compare, ask, prior }: View): string =>
  JSON.stringify([reading?.kind, reading?.key, compare && [compare.with.key, compare.with.z], ask.mode, prior?.key]);

/** Show what the address says, then keep it up to date. */
export async function startAddress(): Promise<void> {
  const kept = (window.history.state as { view?: View } | null)?.view;
  if (kept) view.set({ ...START, ...kept });
  else if (location.hash.length > 1) view.set(await viewOf(location.hash.slice(1)));
  else view.update((now) => ({ ...now, hanging: preferences.get().hanging, channel: usualChannel() }));
  let timer = 0;
  view.subscribe((now, before) => {
    if (following) return;
    clearTimeout(timer);
    if (placeOf(now) !== placeOf(before)) {
      window.history.replaceState({ view: before }, "", addressOf(before));
      window.history.pushState({ view: now }, "", addressOf(now));
      return;
    }
    timer = window.setTimeout(() => window.history.replaceState({ view: now }, "", addressOf(now)), SETTLE_MS);
  });
  window.addEventListener("popstate", (event) => {
    clearTimeout(timer);
    const { view: kept } = (event.state ?? {}) as { view?: View };
    if (kept) follow(kept);
    else void viewOf(location.hash.slice(1)).then(follow);
  });
}

let following = false;

/** Show a step of the history without making another one of it. */
function follow(next: View): void {
  following = true;
  view.set(next);
  following = false;
}

export const shareable = (): string => `${location.origin}${location.pathname}#${writeAddress(view.get(), salt())}`;

/** The channel that is shown first: enhancement where the model has it. */
export function usualChannel(): string {
  const channels = data.get().archive?.channels ?? [];
  return channels.includes(START.channel) ? START.channel : (channels[0] ?? START.channel);
}

async function viewOf(address: string): Promise<View> {
  const names = ["s", "a", "b", "v", "pr"];
  const wanted = new Set(names.map((name) => new URLSearchParams(address).get(name)?.split(".")[0]).filter(Boolean));
  const found = new Map<string, string>();
  for (let offset = 0; wanted.size > found.size; offset += PAGE) {
    const page = await api.volumes({ text: "", source: "", tag: "", lesion: "" }, offset, PAGE);
    for (const { volume_key } of page.items) {
      const hash = hashKey(salt(), volume_key);
      if (wanted.has(hash)) found.set(hash, volume_key);
    }
    if (!page.items.length || offset + page.items.length >= page.total) break;
  }
  const next = readAddress(address, (hash) => found.get(hash));
  return data.get().archive?.channels.includes(next.channel) ? next : { ...next, channel: usualChannel() };
}
