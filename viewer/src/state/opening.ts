/** Opening the archive: what it is, then everything that follows from it. */

import * as api from "../api/client";
import { startAddress } from "./address";
import { data, messageOf } from "./data";
import { loadWorklist, startEffects } from "./effects";

let started = false;

export async function openArchive(): Promise<void> {
  await useLink();
  loadWorklist(); // needs to know nothing of the archive
  try {
    const archive = await api.archive();
    data.update((now) => ({ ...now, archive, archiveError: null, needsToken: false }));
    document.title = `${archive.name} · Diptych`;
  } catch (cause) {
    const needsToken = cause instanceof api.ApiError && cause.status === 401;
    data.update((now) => ({ ...now, needsToken, archiveError: needsToken ? null : messageOf(cause) }));
    return;
  }
  if (started) return;
  started = true;
  startEffects();
  await startAddress();
  void followMetrics();
}

/** A link of `diptych serve` signs in once: its key follows `#`, which browsers send to nobody, and goes at once. */
async function useLink(): Promise<void> {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!key) return;
  history.replaceState(null, "", location.pathname);
  await api.signIn(key).catch(() => undefined); // a used-up link: whoever is signed in already need not care
}

const METRICS_MS = 3000;

/** A metric that is being prepared becomes ready by and by. */
async function followMetrics(): Promise<void> {
  while (data.get().archive?.metrics.some(({ ready }) => !ready)) {
    await new Promise((done) => setTimeout(done, METRICS_MS));
    const archive = await api.archive().catch(() => null);
    const before = data.get().archive;
    if (archive && JSON.stringify(archive.metrics) !== JSON.stringify(before?.metrics))
      data.update((now) => ({ ...now, archive }));
  }
}
