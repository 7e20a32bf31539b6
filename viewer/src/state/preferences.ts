/** What a reader likes, kept in the browser from one visit to the next: how panes hang, which lanes are open. No patient. */

import { Store, useStore } from "./store";
import type { Hanging } from "./view";

export interface Preferences {
  readonly hanging: Hanging;
  /** Lanes that show their matches; the others are one line each. */
  readonly lanes: readonly string[];
  /** Whether the list of patients is shown. */
  readonly list: boolean;
}

const NAME = "diptych-preferences";
const TALL = 1000;
const NARROW = 1100;
const USUAL: Preferences = {
  hanging: "three",
  lanes: window.innerHeight < TALL ? ["abnormal"] : ["abnormal", "both"],
  list: true,
};

/** On narrow screens the list lies over the page: it goes when a patient is chosen. */
export const makeRoom = (): void => {
  if (window.innerWidth < NARROW) prefer({ list: false });
};

function read(): Preferences {
  try {
    const kept = JSON.parse(localStorage.getItem(NAME) ?? "{}") as Partial<Preferences>;
    return {
      hanging: ["one", "three", "planes"].includes(kept.hanging ?? "") ? kept.hanging! : USUAL.hanging,
      lanes: Array.isArray(kept.lanes) ? kept.lanes.filter((lane) => typeof lane === "string") : USUAL.lanes,
      list: typeof kept.list === "boolean" && window.innerWidth >= NARROW ? kept.list : USUAL.list,
    };
  } catch {
    return USUAL; // storage is forbidden, or holds something else
  }
}

export const preferences = new Store<Preferences>(read());
preferences.subscribe((now) => {
  try {
    localStorage.setItem(NAME, JSON.stringify(now));
  } catch {
    // Nothing is kept then; the page works all the same.
  }
});

export const usePreferences = <S>(select: (value: Preferences) => S): S => useStore(preferences, select);
export const prefer = (change: Partial<Preferences>): void => preferences.update((now) => ({ ...now, ...change }));
