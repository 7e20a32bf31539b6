/** What opens under a word of a bar. It closes by Escape, which `keyboard.ts` sees to, and by a press elsewhere. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface MenuProps {
  title: string;
  hint?: string;
  name?: string;
  children: (close: () => void) => ComponentChildren;
}

export function Menu({ title, hint, name = "", children }: MenuProps) {
  const menu = useRef<HTMLDetailsElement>(null);
  const [open, setOpen] = useState(false);
  const close = () => {
    if (menu.current) menu.current.open = false;
  };
  useEffect(() => {
    if (!open) return;
    const elsewhere = (event: PointerEvent) => menu.current?.contains(event.target as Node) || close();
    document.addEventListener("pointerdown", elsewhere, true);
    return () => document.removeEventListener("pointerdown", elsewhere, true);
  }, [open]);
  useLayoutEffect(() => {
    const items = menu.current?.querySelector<HTMLElement>(".menu-items");
    if (open && items) keepInView(items);
  }, [open]);
  return (
    <details class={`menu ${name}`} ref={menu} onToggle={() => setOpen(Boolean(menu.current?.open))}>
      <summary class="quiet" title={hint}>
        {title}
      </summary>
      {open && children(close)}
    </details>
  );
}

const EDGE = 8;

/** Wherever its word stands, a menu ends at the window's edges. */
function keepInView(items: HTMLElement): void {
  const { left, right } = items.getBoundingClientRect();
  const shift = Math.max(0, EDGE - left) - Math.max(0, right - innerWidth + EDGE);
  items.style.translate = `${shift}px 0`;
}

/** Close the menu that is open; whether there was one. */
export function closeMenu(): boolean {
  const menu = document.querySelector<HTMLDetailsElement>("details.menu[open]");
  if (!menu) return false;
  menu.open = false;
  menu.querySelector("summary")?.focus();
  return true;
}
