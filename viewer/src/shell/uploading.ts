/** Reading a dropped patient: send the files, follow the job, open the result. */

import * as api from "../api/client";
import type { FileRole, Job, Upload } from "../api/types";
import { open, view } from "../state/actions";
import { data, messageOf, say } from "../state/data";

const POLL_MS = 400;

export async function uploadFiles(files: File[]): Promise<void> {
  if (!files.length) return;
  try {
    const upload = await api.upload(files);
    data.update((now) => ({ ...now, uploads: [{ upload, job: null }, ...now.uploads] }));
    await followUpload(upload);
  } catch (cause) {
    say(messageOf(cause), "error");
  }
}

/** Tell the server what a file really is; it reads the patient again. */
export async function correct(upload: Upload, file: string, role: FileRole | null): Promise<void> {
  const channels = Object.fromEntries(upload.files.map(({ name, channel }) => [name, name === file ? role : channel]));
  try {
    await followUpload(await api.correctUpload(upload.id, channels));
  } catch (cause) {
    say(messageOf(cause), "error");
  }
}

export async function forgetUpload(id: string): Promise<void> {
  data.update((now) => ({ ...now, uploads: now.uploads.filter((entry) => entry.upload.id !== id) }));
  await api.dropUpload(id).catch(() => undefined); // it may have expired already
}

async function followUpload(start: Upload): Promise<void> {
  let upload = start;
  put(upload, null);
  while (upload.state === "queued" || upload.state === "running") {
    await new Promise((done) => setTimeout(done, POLL_MS));
    const job = upload.job ? await api.job(upload.job) : null;
    upload = await api.uploaded(upload.id);
    put(upload, job);
  }
  if (upload.state === "failed") say(upload.error ?? "The files could not be read.", "error");
  if (upload.state !== "ready" || !upload.volume) return;
  const { volume } = upload;
  data.update((now) => ({ ...now, volumes: { ...now.volumes, [`upload:${upload.id}`]: volume } }));
  if (view.get().reading?.key !== upload.id) open({ kind: "upload", key: upload.id, z: volume.representative_z });
}

function put(upload: Upload, job: Job | null): void {
  data.update((now) => ({
    ...now,
    uploads: now.uploads.map((entry) => (entry.upload.id === upload.id ? { upload, job } : entry)),
  }));
}
