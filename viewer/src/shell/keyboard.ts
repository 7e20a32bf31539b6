/** The keyboard: one table of keys, which the help sheet shows too. */

import {
  askWith,
  changeWindow,
  closeCompare,
  closePrior,
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
import { nextMatch } from "../compare/matches";
import { hang } from "../reading/reading-bar";
import { cine } from "../reading/slice-rail";
import { data } from "../state/data";
import { loadWorklist } from "../state/effects";
import { closeMenu } from "./menu";

export interface Shortcut {
  keys: string[];
  words: string;
  act: () => void;
}

const overlays = ["none", "predicted", "known"] as const;

function nextOverlay(): void {
  const now = view.get();
  const next = (value: (typeof overlays)[number]) => overlays[(overlays.indexOf(value) + 1) % overlays.length]!;
  if (now.compare) setCompare({ labels: next(now.compare.labels) });
  else set("overlay", next(now.overlay));
}

/** Patients that are left in the list when more of it is fetched. */
const AHEAD = 5;

export function nextPatient(step: number): void {
  const { items, total } = data.get().worklist;
  const place = items.findIndex((item) => item.volume_key === view.get().reading?.key);
  const next = items[place < 0 ? 0 : place + step];
  if (next) open({ kind: "volume", key: next.volume_key, z: next.representative_z });
  if (place + step > items.length - AHEAD && items.length < total) loadWorklist(items.length);
}

function nextHanging(): void {
  const choices = ["one", "three", "planes"] as const;
  hang(choices[(choices.indexOf(view.get().hanging) + 1) % choices.length]!);
}

function goBack(): void {
  if (closeMenu()) return;
  const now = view.get();
  if (now.compare) closeCompare();
  else if (now.prior) closePrior();
  else if (now.tool !== "crosshair") set("tool", "crosshair");
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
      ...[0, 1, 2, 3].map((i) => ({
        keys: [String(i + 1)],
        words: `channel ${i + 1}`,
        act: () => {
          const channel = data.get().archive?.channels[i];
          if (channel) showChannel(channel);
        },
      })),
      { keys: ["g"], words: "all channels at once", act: () => set("four", !view.get().four) },
      { keys: ["o"], words: "lesion overlay: none, predicted, known", act: nextOverlay },
      { keys: ["+", "="], words: "zoom in", act: () => zoomBy(1.25) },
      { keys: ["-"], words: "zoom out", act: () => zoomBy(0.8) },
      { keys: ["w"], words: "narrower window", act: () => changeWindow(-0.1, 0) },
      { keys: ["e"], words: "wider window", act: () => changeWindow(0.1, 0) },
      { keys: ["0"], words: "usual window, whole picture, no crosshair", act: resetPicture },
      { keys: ["h"], words: "layout: 1, 3, 2×2", act: nextHanging },
      { keys: [" "], words: "play through the slices", act: () => cine.set(!cine.get()) },
      { keys: ["x"], words: "crosshair", act: () => set("tool", "crosshair") },
      { keys: ["d"], words: "measure a length", act: () => set("tool", "length") },
      { keys: ["j"], words: "measure two diameters (RANO)", act: () => set("tool", "bidirectional") },
      { keys: ["a"], words: "measure an area", act: () => set("tool", "area") },
      { keys: ["t"], words: "original or healthy twin", act: () => set("swipe", view.get().swipe > 0 ? 0 : 1) },
    ],
  },
  {
    title: "Asking",
    items: [
      { keys: ["u"], words: "about the whole patient", act: () => setAsk({ mode: "patient" }) },
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
      { keys: [">", "."], words: "next match", act: () => nextMatch(1) },
      { keys: ["<", ","], words: "previous match", act: () => nextMatch(-1) },
      { keys: ["y"], words: "map of agreeing cells", act: () => setCompare({ agreement: !view.get().compare?.agreement }) },
      { keys: ["Escape"], words: "back to the results, or to the crosshair", act: goBack },
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
    if (event.ctrlKey || event.metaKey || event.altKey || belongsTo(event)) return;
    const act = event.key === "?" ? onHelp : table.get(event.key);
    if (!act) return;
    event.preventDefault();
    act();
  };
  // Before any control sees it: a menu or slider that was clicked must not take the keys of the picture.
  window.addEventListener("keydown", listen, true);
  window.addEventListener("pointerdown", byPointer, true);
  window.addEventListener("keydown", byKeyboard, true);
  return () => {
    window.removeEventListener("keydown", listen, true);
    window.removeEventListener("pointerdown", byPointer, true);
    window.removeEventListener("keydown", byKeyboard, true);
  };
}

/** Whether the focus was put where it is by the keyboard; only then do arrows belong to the control that has it. */
let tabbed = false;
const byPointer = (): void => {
  tabbed = false;
};
const byKeyboard = (event: KeyboardEvent): void => {
  if (event.key === "Tab") tabbed = true;
};

const TEXT = "input:not([type=range]):not([type=checkbox]), textarea, [contenteditable]";
const CONTROLS = "select, input[type=range], [role=radio], [role=slider], .patient, .card button, summary, button";

const typing = (target: EventTarget | null): boolean => target instanceof HTMLElement && target.matches(TEXT);

/** Whether a key is the focused control's own: everything in a text field; arrows and Space where Tab has led. */
function belongsTo(event: KeyboardEvent): boolean {
  if (typing(event.target)) return true;
  if (!(event.target instanceof HTMLElement) || !event.target.matches(CONTROLS)) return false;
  return tabbed && (event.key === " " || /^(Arrow|Page|Home|End)/.test(event.key));
}
