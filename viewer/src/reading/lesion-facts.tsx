/** Lesions in numbers: areas by kind, with whether they are known or predicted. The two never stand in one list. */

import { useEffect, useState } from "preact/hooks";
import * as api from "../api/client";
import type { LesionPart, SliceLesion } from "../api/types";
import { useData } from "../state/data";
import type { SliceRef } from "../state/view";

const KEPT = 400;
const asked = new Map<string, Promise<SliceLesion>>();

/** The lesion of a slice; the last few hundred are kept. */
export function lesionOf(slice: SliceRef): Promise<SliceLesion> {
  const id = `${slice.kind}:${slice.key}:${slice.z}`;
  const known = asked.get(id) ?? api.lesion(slice);
  asked.delete(id);
  asked.set(id, known);
  known.catch(() => asked.delete(id));
  for (const old of [...asked.keys()].slice(0, -KEPT)) asked.delete(old);
  return known;
}

/** The same for a component; null until it has come. */
export function useLesion(slice: SliceRef | null, wanted = true): SliceLesion | null {
  const [state, setState] = useState<{ id: string; lesion: SliceLesion | null }>({ id: "", lesion: null });
  const id = slice && wanted ? `${slice.kind}:${slice.key}:${slice.z}` : "";
  useEffect(() => {
    if (!slice || !id) return;
    let gone = false;
    // Scrolling past a slice asks nothing about it.
    const timer = setTimeout(() => {
      lesionOf(slice).then(
        (lesion) => !gone && setState({ id, lesion }),
        () => undefined,
      );
    }, 80);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [id]);
  return state.id === id ? state.lesion : null;
}

export const squareCentimetres = (mm2: number): string => `${(mm2 / 100).toFixed(1)} cm²`;

/** One source's areas under one heading. */
export function Areas({ part, source }: { part: LesionPart | null | undefined; source: "known" | "predicted" }) {
  const classes = useData((now) => now.archive?.lesion_classes);
  const title = source === "known" ? "Known lesion, this slice" : "Predicted lesion, this slice";
  if (part === null) return <p class="areas-none">no known labels</p>;
  return (
    <ul class="areas-list" aria-label={title}>
      <li class="areas-source">{source}</li>
      {classes
        ?.filter(({ id }) => id > 0)
        .map(({ id, name, colour }) => (
          <li key={id}>
            <i style={{ background: colour }} aria-hidden="true" />
            {name} <b>{part ? squareCentimetres(part.areas_mm2[name] ?? 0) : "…"}</b>
          </li>
        ))}
    </ul>
  );
}
