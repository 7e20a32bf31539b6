/** Keeps `Data` in step with the `View`: asks the server for what is needed, drops answers that come too late. */

import * as api from "../api/client";
import type { ExportBody } from "../api/client";
import type { Answer, ArchiveInfo, Subject } from "../api/types";
import { greyPng } from "../ask/png";
import { paint } from "../ask/strokes";
import { view } from "./actions";
import { findsPatients, lanesOf, patientsOf, searchOf, subjectOf } from "./asking";
import { data, EMPTY_LANE, LANES, messageOf, say, volumeId, volumeOf, type Data, type LaneName } from "./data";
import type { SliceRef, View } from "./view";

/** Runs the newest of several tasks: an older one is cancelled, and its answer never seen. */
class Latest {
  private key = "";
  private controller = new AbortController();

  /** Start `task` after `delay` ms unless the last one had the same key; true if it was new. */
  run(key: string, delay: number, task: (signal: AbortSignal) => Promise<void>): boolean {
    if (key === this.key) return false;
    this.key = key;
    this.controller.abort();
    this.controller = new AbortController();
    const { signal } = this.controller;
    setTimeout(() => {
      if (!signal.aborted) task(signal).catch((cause: unknown) => signal.aborted || tell(cause));
    }, delay);
    return true;
  }

  /** Let the same task be run again. */
  forget(): void {
    this.key = "";
  }

  stop(): void {
    this.key = "";
    this.controller.abort();
  }
}

const SCROLL_MS = 60;
const pending = { subject: new Latest(), worklist: new Latest() };
const searches = Object.fromEntries(LANES.map((lane) => [lane, new Latest()])) as Record<LaneName, Latest>;
const loading = new Set<string>();
/** Volumes that may have changed since they were loaded. */
const stale = new Set<string>();

export function startEffects(): void {
  view.subscribe(follow);
  data.subscribe((now, before) => {
    if (now.worklist.filter !== before.worklist.filter) loadWorklist();
    if (now.volumes !== before.volumes || now.archive !== before.archive) follow(view.get());
  });
  follow(view.get());
}

function follow(now: View): void {
  for (const slice of [now.reading, now.compare?.with, now.ask.anatomyOf, now.ask.lesionOf])
    if (slice) void loadVolume(slice);
  if (now.prior) void loadVolume({ kind: "volume", key: now.prior.key, z: 0 });
  void ask(now);
}

async function loadVolume(slice: SliceRef): Promise<void> {
  const id = volumeId(slice);
  if (loading.has(id) || (data.get().volumes[id] && !stale.has(id))) return;
  loading.add(id);
  stale.delete(id);
  try {
    const volume = await api.volume(slice);
    data.update((now) => ({ ...now, volumes: { ...now.volumes, [id]: volume } }));
  } catch (cause) {
    tell(cause);
  } finally {
    loading.delete(id);
  }
}

const PAGE = 60;

/** Load the list; `again` keeps as much of it as was shown. */
export function loadWorklist(offset = 0, again = false): void {
  const { filter, items: shown } = data.get().worklist;
  const patch = (change: Partial<Data["worklist"]>) =>
    data.update((now) => ({ ...now, worklist: { ...now.worklist, ...change } }));
  pending.worklist.run(
    JSON.stringify([filter, offset, performance.now()]),
    offset || !filter.text ? 0 : 120,
    async (signal) => {
      patch({ busy: true, error: null });
      try {
        const page = await api.volumes(filter, offset, offset ? PAGE : Math.max(PAGE, again ? shown.length : 0), signal);
        const earlier = offset ? data.get().worklist.items : [];
        patch({ busy: false, items: [...earlier, ...page.items], total: page.total });
      } catch (cause) {
        if (!signal.aborted) patch({ busy: false, error: messageOf(cause) });
      }
    },
  );
}

/** Say what went wrong; a server that is away says it once for the whole page, and is asked again until it is back. */
function tell(cause: unknown): void {
  if (cause instanceof api.ApiError && cause.status === 0)
    data.update((now) => ({ ...now, outage: now.outage ?? Date.now() }));
  else say(messageOf(cause), "error");
}

/** The sketch as the server wants it; null where nothing is painted. */
async function sketchOf(now: View): Promise<string | null> {
  const geometry = volumeOf(data.get(), now.reading)?.geometry;
  if (now.ask.mode !== "sketch" || !geometry || !now.ask.strokes.length) return null;
  const [height, width] = geometry.image_size;
  const labels = paint(now.ask.strokes, { size: geometry.image_size, field_mm: geometry.field_mm });
  return labels.some(Boolean) ? greyPng(labels, width, height) : null;
}

async function ask(now: View): Promise<void> {
  const { archive } = data.get();
  const labels = await sketchOf(now);
  if (now !== view.get() || !archive) return;
  const subject = subjectOf(now, labels);
  if (!subject) {
    forget();
    return;
  }
  pending.subject.run(JSON.stringify([subject, now.channel]), SCROLL_MS, async (signal) => {
    patchSubject({ busy: true, error: null });
    try {
      patchSubject({ busy: false, view: await api.view(subject, now.channel, signal) });
    } catch (cause) {
      if (!signal.aborted) patchSubject({ busy: false, view: null, error: messageOf(cause) });
    }
  });
  const shown = lanesOf(now.question);
  for (const lane of LANES) {
    if (!shown.includes(lane)) {
      searches[lane].stop();
      continue;
    }
    const body = bodyOf(lane, now, subject, archive);
    searches[lane].run(JSON.stringify(body), SCROLL_MS, (signal) => fill(lane, sent(body, signal), signal));
  }
}

/** Ask for everything once more: the archive has changed, or the server was away. */
export function askAgain(): void {
  pending.subject.forget();
  for (const lane of LANES) searches[lane].forget();
  for (const id of Object.keys(data.get().volumes)) if (id.startsWith("volume:")) stale.add(id);
  loadWorklist(0, true);
  follow(view.get());
}

type LaneBody = Omit<ExportBody["lanes"][number], "title">;

/** What a lane asks: for patients, for comparators, or for slices. */
function bodyOf(lane: LaneName, now: View, subject: Subject, archive: ArchiveInfo): LaneBody {
  const patients = archive.can_find_patients && findsPatients(lane, now) ? patientsOf(lane, now) : null;
  if (patients) return { patients };
  return { search: searchOf(lane, now, subject, archive.default_level_mm), comparators: lane === "comparators" };
}

function sent({ patients, search, comparators }: LaneBody, signal: AbortSignal): Promise<Answer> {
  if (patients) return api.patients(patients, signal);
  return (comparators ? api.comparators : api.search)(search!, signal);
}

/** What fills a lane, for those who want its answer in another form. */
export async function asked(now: View, lane: LaneName): Promise<LaneBody | null> {
  const { archive } = data.get();
  const subject = subjectOf(now, await sketchOf(now));
  if (!subject || !archive) return null;
  const body = bodyOf(lane, now, subject, archive);
  // The file shows the height that the reader has open.
  return body.patients ? { patients: { ...body.patients, subject } } : body;
}

/** Put an answer into its lane; the older one stays until then, so that nothing flickers. */
async function fill(lane: LaneName, asked: Promise<Answer>, signal: AbortSignal): Promise<void> {
  const started = performance.now();
  const patch = (change: Partial<Data["lanes"][LaneName]>) =>
    data.update((now) => ({ ...now, lanes: { ...now.lanes, [lane]: { ...now.lanes[lane], ...change } } }));
  patch({ busy: true });
  try {
    const answer = await asked;
    if (!signal.aborted) patch({ busy: false, error: null, answer, roundTrip: performance.now() - started });
  } catch (cause) {
    if (signal.aborted) return;
    if (cause instanceof api.ApiError && cause.status === 0) tell(cause);
    patch({ busy: false, error: messageOf(cause), answer: null });
  }
}

function patchSubject(change: Partial<Data["subject"]>): void {
  data.update((now) => ({ ...now, subject: { ...now.subject, ...change } }));
}

/** Nothing is asked: nothing is shown. */
function forget(): void {
  pending.subject.stop();
  for (const lane of LANES) searches[lane].stop();
  const { subject, lanes } = data.get();
  if (!subject.view && !subject.error && LANES.every((lane) => lanes[lane] === EMPTY_LANE)) return;
  data.update((now) => ({
    ...now,
    subject: { busy: false, view: null, error: null },
    lanes: { normal: EMPTY_LANE, both: EMPTY_LANE, abnormal: EMPTY_LANE, comparators: EMPTY_LANE },
  }));
}
