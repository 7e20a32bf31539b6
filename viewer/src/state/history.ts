/** Undo and redo over one value. Knows nothing of what the value is. */

import { Store } from "./store";

/** Changes with one name that follow each other within this time are one step, such as those of a slider. */
const JOINED_MS = 900;
const KEPT = 200;

export class History<T> {
  private past: T[] = [];
  private future: T[] = [];
  private last = { name: "", at: -Infinity };

  constructor(readonly store: Store<T>) {}

  /** Change the value; `name` says what kind of change it is. */
  change(name: string, how: (now: T) => T): void {
    const before = this.store.get();
    const next = how(before);
    if (Object.is(next, before)) return;
    const now = performance.now();
    const joins = name === this.last.name && now - this.last.at < JOINED_MS;
    if (!joins) this.past = [...this.past, before].slice(-KEPT);
    this.future = [];
    this.last = { name, at: now };
    this.store.set(next);
  }

  get canUndo(): boolean {
    return this.past.length > 0;
  }

  get canRedo(): boolean {
    return this.future.length > 0;
  }

  undo(): void {
    const before = this.past.pop();
    if (before === undefined) return;
    this.future.push(this.store.get());
    this.settle(before);
  }

  redo(): void {
    const next = this.future.pop();
    if (next === undefined) return;
    this.past.push(this.store.get());
    this.settle(next);
  }

  private settle(value: T): void {
    this.last = { name: "", at: -Infinity };
    this.store.set(value);
  }
}
