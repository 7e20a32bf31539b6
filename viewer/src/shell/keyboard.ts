/** The keyboard: one table of keys, which the help sheet shows too. */

import { CHANNELS } from "../api/types";
import {
  askWith,
  changeWindow,
  closeCompare,
  goToLesion,
  history,
  open,
  resetPicture,
  scroll,
  set,
  setAsk,
  setCompare,
  showChannel,
  view,
  zoomBy,
} from "../state/actions";
import { data, volumeOf } from "../state/data";

export interface Shortcut {
  keys: string[];
  words: string;
  act: () => void;
}

const overlays = ["none", "predicted", "known"] as const;

function nextOverlay(): void {
  const now = view.get();
  const known = Boolean(volumeOf(data.get(), now.reading)?.label_urls.lesion);
  const choices = overlays.slice(0, known ? 3 : 2);
  if (now.compare) setCompare({ labels: choices[(choices.indexOf(now.compare.labels) + 1) % choices.length]! });
  else set("overlay", choices[(choices.indexOf(now.overlay) + 1) % choices.length]!);
}

function nextPatient(step: number): void {
  const { items } = data.get().worklist;
  const place = items.findIndex((item) => item.volume_key === view.get().reading?.key);
  const next = items[place < 0 ? 0 : place + step];
  if (next) open({ kind: "volume", key: next.volume_key, z: next.representative_z });
}

function layout(name: "swipe" | "blink"): void {
  const { compare } = view.get();
  if (compare) setCompare({ layout: compare.layout === name ? "side" : name });
}

const share = (step: number): void =>
  askWith({ lesionShare: Math.min(1, Math.max(0, Math.round((view.get().question.lesionShare + step) * 100) / 100)) });

export const SHORTCUTS: { title: string; items: Shortcut[] }[] = [
  {
    title: "Slices and patients",
    items: [
      { keys: ["ArrowUp"], words: "one slice up", act: () => scroll(1) },
      { keys: ["ArrowDown"], words: "one slice down", act: () => scroll(-1) },
      { keys: ["PageUp"], words: "ten slices up", act: () => scroll(10) },
      { keys: ["PageDown"], words: "ten slices down", act: () => scroll(-10) },
      { keys: ["l"], words: "slice with the largest lesion", act: goToLesion },
      { keys: ["n"], words: "next patient", act: () => nextPatient(1) },
      { keys: ["p"], words: "previous patient", act: () => nextPatient(-1) },
      { keys: ["/"], words: "search patients", act: () => document.getElementById("worklist-search")?.focus() },
    ],
  },
  {
    title: "Picture",
    items: [
      ...CHANNELS.map((channel, i) => ({
        keys: [String(i + 1)],
        words: ["T1", "T1Gd", "T2", "FLAIR"][i]!,
        act: () => showChannel(channel),
      })),
      { keys: ["g"], words: "four channels at once", act: () => set("four", !view.get().four) },
      { keys: ["o"], words: "lesion overlay: none, predicted, known", act: nextOverlay },
      { keys: ["+", "="], words: "zoom in", act: () => zoomBy(1.25) },
      { keys: ["-"], words: "zoom out", act: () => zoomBy(0.8) },
      { keys: ["w"], words: "narrower window", act: () => changeWindow(-0.1, 0) },
      { keys: ["e"], words: "wider window", act: () => changeWindow(0.1, 0) },
      { keys: ["0"], words: "usual window, whole picture, no crosshair", act: resetPicture },
      { keys: ["t"], words: "original or healthy twin", act: () => set("swipe", view.get().swipe > 0 ? 0 : 1) },
    ],
  },
  {
    title: "Asking",
    items: [
      { keys: ["s"], words: "about this slice", act: () => setAsk({ mode: "slice" }) },
      { keys: ["r"], words: "about a region", act: () => setAsk({ mode: "region" }) },
      { keys: ["k"], words: "about a sketch", act: () => setAsk({ mode: "sketch" }) },
      { keys: ["c"], words: "about a composition", act: () => setAsk({ mode: "compose" }) },
      {
        keys: ["i"],
        words: "inside the lesion only",
        act: () => askWith({ insideLesion: !view.get().question.insideLesion }),
      },
      { keys: ["["], words: "more anatomy", act: () => share(-0.1) },
      { keys: ["]"], words: "more lesion", act: () => share(0.1) },
      {
        keys: ["m"],
        words: "lanes or one list",
        act: () => askWith({ layout: view.get().question.layout === "one" ? "lanes" : "one" }),
      },
    ],
  },
  {
    title: "Comparing",
    items: [
      { keys: ["v"], words: "swipe", act: () => layout("swipe") },
      { keys: ["b"], words: "blink", act: () => layout("blink") },
      { keys: ["Escape"], words: "back to the results", act: () => view.get().compare && closeCompare() },
    ],
  },
];

/** Listen to the whole page; keys typed into fields stay there. */
export function startKeyboard(onHelp: () => void): () => void {
  const table = new Map(
    SHORTCUTS.flatMap(({ items }) => items).flatMap((item) => item.keys.map((key) => [key, item.act] as const)),
  );
  const listen = (event: KeyboardEvent) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !typing(event.target)) {
      event.preventDefault();
      if (event.shiftKey) history.redo();
      else history.undo();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    const act = event.key === "?" ? onHelp : table.get(event.key);
    if (!act) return;
    event.preventDefault();
    act();
  };
  window.addEventListener("keydown", listen);
  return () => window.removeEventListener("keydown", listen);
}

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && target.matches("input, select, textarea, [contenteditable]");
