/** A value that tells its listeners when it changes, and a hook that renders a part of it. Knows no page. */

import { useEffect, useReducer, useRef } from "preact/hooks";

export type Listener<T> = (now: T, before: T) => void;

export class Store<T> {
  private listeners = new Set<Listener<T>>();

  constructor(private value: T) {}

  get(): T {
    return this.value;
  }

  set(next: T): void {
    if (Object.is(next, this.value)) return;
    const before = this.value;
    this.value = next;
    for (const listener of [...this.listeners]) listener(next, before);
  }

  update(change: (now: T) => T): void {
    this.set(change(this.value));
  }

  subscribe(listener: Listener<T>): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** Render again whenever the selected part of a store is another value. */
export function useStore<T, S>(store: Store<T>, select: (value: T) => S): S {
  const [, again] = useReducer((count: number) => count + 1, 0);
  const selected = select(store.get());
  const latest = useRef({ select, selected });
  latest.current = { select, selected };
  useEffect(() => {
    const check = () => {
      if (!Object.is(latest.current.select(store.get()), latest.current.selected)) again(undefined);
    };
    check();
    return store.subscribe(check);
  }, [store]);
  return selected;
}
