/** Opening the archive, and keeping up with it: what it is, what changes in it, and whether the server is still there. */

import * as api from "../api/client";
import { startAddress } from "./address";
import { data, messageOf } from "./data";
import { askAgain, loadWorklist, startEffects } from "./effects";
import { recallUploads } from "../shell/uploading";
import { view } from "./actions";

let started = false;

export async function openArchive(): Promise<void> {
  await useLink();
  loadWorklist(); // needs to know nothing of the archive
  try {
    const archive = await api.archive();
    data.update((now) => ({ ...now, archive, archiveError: null, needsToken: false, outage: null }));
  } catch (cause) {
    const needsToken = cause instanceof api.ApiError && cause.status === 401;
    data.update((now) => ({ ...now, needsToken, archiveError: needsToken ? null : messageOf(cause) }));
    if (!needsToken && !started) setTimeout(() => void openArchive(), RETRY_MS);
    return;
  }
  if (started) return;
  started = true;
  startTitle();
  startEffects();
  await startAddress();
  void recallUploads();
  void watch();
}

/** A link of `diptych serve` signs in once: its key follows `#`, which browsers send to nobody, and goes at once. */
async function useLink(): Promise<void> {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!key) return;
  window.history.replaceState(null, "", location.pathname);
  await api.signIn(key).catch(() => undefined); // a used-up link: whoever is signed in already need not care
}

/** The tab names the patient, so that several tabs can be told apart. */
function startTitle(): void {
  const write = () => {
    const { archive } = data.get();
    const { reading } = view.get();
    const patient = reading && (reading.kind === "volume" ? reading.key : "your patient");
    document.title = [patient, archive?.name, "Diptych"].filter(Boolean).join(" · ");
  };
  view.subscribe(write);
  data.subscribe((now, before) => now.archive !== before.archive && write());
  write();
}

const WATCH_MS = 4000;
const RETRY_MS = 1500;

/** Look whether the archive has changed, or the server has gone or come back; more often while it is gone. */
async function watch(): Promise<void> {
  for (;;) {
    await new Promise((done) => setTimeout(done, data.get().outage === null ? WATCH_MS : RETRY_MS));
    if (!document.hidden) await lookNow();
  }
}

/** One look; also what the Retry button does. */
export async function lookNow(): Promise<void> {
  try {
    const archive = await api.archive();
    const { archive: before, outage } = data.get();
    const changed = archive.version !== before?.version;
    if (changed || JSON.stringify(archive) !== JSON.stringify(before)) data.update((now) => ({ ...now, archive }));
    if (outage !== null) data.update((now) => ({ ...now, outage: null }));
    if (changed || outage !== null) askAgain();
  } catch (cause) {
    if (!(cause instanceof api.ApiError)) return;
    if (cause.status === 0) data.update((now) => ({ ...now, outage: now.outage ?? Date.now() }));
    if (cause.status === 401) data.update((now) => ({ ...now, needsToken: true }));
  }
}
