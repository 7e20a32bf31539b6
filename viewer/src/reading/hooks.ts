/** Small hooks that panes share. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";

/** The size of an element in CSS pixels, kept up to date. */
export function useSize(element: RefObject<HTMLElement | null>): { width: number; height: number } {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const node = element.current;
    if (!node) return;
    const read = () => setSize({ width: node.clientWidth, height: node.clientHeight });
    read();
    const observer = new ResizeObserver(read);
    observer.observe(node);
    return () => observer.disconnect();
  }, [element]);
  return size;
}

/** A value that has not changed for a while; equal content is the same value. */
export function useSettled<T>(value: T, delay: number): T {
  const [settled, setSettled] = useState(value);
  const content = JSON.stringify(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delay);
    return () => clearTimeout(timer);
  }, [content, delay]);
  return settled;
}

/** The newest address whose picture has been loaded; the older picture stays until then. */
export function useLoaded(url: string | null): { shown: string | null; failed: boolean } {
  const [state, setState] = useState<{ shown: string | null; failed: boolean }>({ shown: null, failed: false });
  const wanted = useRef(url);
  wanted.current = url;
  useEffect(() => {
    if (!url) {
      setState({ shown: null, failed: false });
      return;
    }
    const image = new Image();
    image.onload = () => wanted.current === url && setState({ shown: url, failed: false });
    image.onerror = () => wanted.current === url && setState({ shown: null, failed: true });
    image.src = url;
  }, [url]);
  return state;
}
