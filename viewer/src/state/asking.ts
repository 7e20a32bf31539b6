/** From a `View` to what is asked of the server: the subject, and one search for each lane. Pure functions. */

import type { By, PatientSearchBody, SearchBody, Subject } from "../api/types";
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
  return layout === "lanes" ? ["abnormal", "both", "normal", "comparators"] : ["both", "comparators"];
}

/** Whether a lane finds whole patients. Comparators are slices, whatever is asked. */
export const findsPatients = (lane: LaneName, { ask, question }: View): boolean =>
  ask.mode === "patient" && lane !== "comparators" && question.anywhere !== "histogram";

/** What a lane compares. Only a lesion can lie anywhere, so the slider gives way to it. */
function comparedBy(lane: LaneName, { layout, anywhere }: Question): By {
  if (lane === "comparators") return "normal";
  return lane === "both" && layout === "one" && anywhere !== null ? "abnormal" : lane;
}

const filterOf = ({ text, source, tag }: Question): SearchBody["filter"] => ({
  ...(text && { text }),
  ...(source && { source }),
  ...(tag && { tags: [tag] }),
});

/** The search of one lane for whole patients; the slice that is open tells no more than whose it is. */
export function patientsOf(lane: LaneName, { question, reading }: View): PatientSearchBody | null {
  if (!reading) return null;
  const by = comparedBy(lane, question);
  return {
    subject: reading.kind === "volume" ? { volume: reading.key } : { upload: reading.key },
    by,
    weight: 1 - question.lesionShare,
    top: question.top,
    filter: filterOf(question),
    anywhere: by === "abnormal" ? question.anywhere : null,
  };
}

/** How far from the same level slices may lie; a lesion that may lie anywhere may lie at any level unless told. */
export function levelOf({ level, anywhere }: Question, usual: number): number | null {
  if (level === "usual") return anywhere === null ? usual : null;
  return level === "any" ? null : level;
}

/** The search of one lane for slices. */
export function searchOf(lane: LaneName, view: View, subject: Subject, usualLevel: number): SearchBody {
  const { question, ask } = view;
  const by = comparedBy(lane, question);
  const level = levelOf(question, usualLevel);
  const body: SearchBody = {
    subject,
    by,
    weight: 1 - question.lesionShare,
    ...(question.metric && { metric: question.metric }),
    top: question.top,
    filter: filterOf(question),
    inside_lesion: question.insideLesion && lane !== "comparators" && ask.mode !== "patient",
    anywhere: by === "abnormal" ? question.anywhere : null,
    ...(level !== null && lane !== "comparators" && { level_mm: level }),
    include_own: false,
  };
  const region = ask.mode === "region" && lane !== "comparators" ? ask.region : [];
  return region.length ? { ...body, region: { cells: region.map(([row, column]) => [row, column]) } } : body;
}
