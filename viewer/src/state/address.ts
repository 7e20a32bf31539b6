/** Keeps the address bar and the `View` in step. */

import * as api from "../api/client";
import { view } from "./actions";
import { data } from "./data";
import { hashKey, readAddress, writeAddress } from "./url";

const SETTLE_MS = 250;
const PAGE = 500;

const salt = (): string => data.get().archive?.model.fingerprint ?? "";

/** Show what the address says, then keep it up to date. */
export async function startAddress(): Promise<void> {
  if (location.hash.length > 1) view.set(await viewOf(location.hash.slice(1)));
  let timer = 0;
  view.subscribe((now) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      const address = writeAddress(now, salt());
      window.history.replaceState(null, "", address ? `#${address}` : location.pathname + location.search);
    }, SETTLE_MS);
  });
  window.addEventListener("hashchange", () => void viewOf(location.hash.slice(1)).then((next) => view.set(next)));
}

export const shareable = (): string => `${location.origin}${location.pathname}#${writeAddress(view.get(), salt())}`;

async function viewOf(address: string): Promise<ReturnType<typeof readAddress>> {
  const wanted = new Set(["s", "a", "b", "v"].map((name) => new URLSearchParams(address).get(name)?.split(".")[0]));
  const found = new Map<string, string>();
  for (let offset = 0; wanted.size > 0; offset += PAGE) {
    const page = await api.volumes({ text: "", source: "", tag: "", lesion: "" }, offset, PAGE);
    for (const { volume_key } of page.items) {
      const hash = hashKey(salt(), volume_key);
      if (wanted.has(hash)) found.set(hash, volume_key);
    }
    if (!page.items.length || offset + page.items.length >= page.total) break;
  }
  return readAddress(address, (hash) => found.get(hash));
}
