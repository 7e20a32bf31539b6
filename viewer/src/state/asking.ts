/** From a `View` to what is asked of the server: the subject, and one search for each lane. Pure functions. */

import type { SearchBody, Subject } from "../api/types";
import type { LaneName } from "./data";
import type { Question, SliceRef, View } from "./view";

export const subjectOfSlice = (slice: SliceRef): Subject =>
  slice.kind === "volume" ? { volume: slice.key, z: slice.z } : { upload: slice.key, z: slice.z };

/** What a search starts from; null while there is not enough to start from. `labels` is the sketch as a PNG. */
export function subjectOf(view: View, labels: string | null): Subject | null {
  const { reading, ask } = view;
  if (ask.mode === "compose") {
    if (!ask.anatomyOf || !ask.lesionOf) return null;
    return { compose: { normal: subjectOfSlice(ask.anatomyOf), abnormal: subjectOfSlice(ask.lesionOf) } };
  }
  if (!reading) return null;
  if (ask.mode !== "sketch") return subjectOfSlice(reading);
  return labels === null ? null : { sketch: { base: subjectOfSlice(reading), labels, use_base_anatomy: true } };
}

/** Which lanes are on the page. */
export function lanesOf({ layout }: Question): readonly LaneName[] {
  return layout === "lanes" ? ["both", "abnormal", "normal", "comparators"] : ["both", "comparators"];
}

/** The search of one lane. Only a lesion can lie anywhere, so the slider gives way to it. */
export function searchOf(lane: LaneName, view: View, subject: Subject, usualMetric: string): SearchBody {
  const { question, ask } = view;
  const alone = question.layout === "one" && question.anywhere !== null;
  const by = lane === "comparators" ? "normal" : lane === "both" && alone ? "abnormal" : lane;
  const body: SearchBody = {
    subject,
    by,
    weight: 1 - question.lesionShare,
    metric: question.metric || usualMetric,
    top: question.top,
    filter: {
      ...(question.text && { text: question.text }),
      ...(question.source && { source: question.source }),
      ...(question.tag && { tags: [question.tag] }),
    },
    inside_lesion: question.insideLesion && lane !== "comparators",
    anywhere: by === "abnormal" ? question.anywhere : null,
    ...(question.level !== null && lane !== "comparators" && { level_mm: question.level }),
    include_own: false,
  };
  const region = ask.mode === "region" && lane !== "comparators" ? ask.region : [];
  return region.length ? { ...body, region: { cells: region.map(([row, column]) => [row, column]) } } : body;
}
