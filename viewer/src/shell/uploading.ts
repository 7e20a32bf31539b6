/** Reading a dropped patient: gather the files, send them, follow the job, open the result; and after a reload, again. */

import * as api from "../api/client";
import type { FileRole, Job, Upload } from "../api/types";
import { open, view } from "../state/actions";
import { data, messageOf, say } from "../state/data";
import { isDicom, zipped } from "./zip";

const POLL_MS = 400;
const KEPT = "diptych-uploads";
const NIFTI = /\.nii(\.gz)?$/i;
const ZIP = /\.zip$/i;
const STUDY = "study.zip";

/** Send files as a patient, or to the one that lacks a channel; files of other kinds are refused by name. */
export async function uploadFiles(files: readonly File[], to?: Upload): Promise<void> {
  const usable = await usableFiles(files);
  const refused = files.filter((file) => !usable.includes(file)).map(({ name }) => name);
  if (refused.length) say(`${listed(refused)}: not NIfTI (.nii or .nii.gz), DICOM or one ZIP of it, left out.`, "error");
  if (usable.length) await send(usable, to);
}

/** NIfTI files where there are some; else one ZIP; else DICOM files, which go as a study. */
async function usableFiles(files: readonly File[]): Promise<readonly File[]> {
  const nifti = files.filter(({ name }) => NIFTI.test(name));
  const packed = files.filter(({ name }) => ZIP.test(name));
  if (nifti.length || packed.length === 1) return nifti.length ? nifti : packed;
  const marked = await Promise.all(files.map(isDicom));
  return files.filter((_, place) => marked[place]);
}

async function send(chosen: readonly File[], to?: Upload): Promise<void> {
  const study = !chosen.some(({ name }) => NIFTI.test(name) || ZIP.test(name));
  const names = study ? [`${chosen.length} DICOM files`] : chosen.map(({ name }) => name);
  const sent = (share: number) => data.update((now) => ({ ...now, sending: { files: names, share } }));
  sent(0);
  try {
    const usable = study ? [await zipped(chosen, STUDY)] : [...chosen];
    const upload = await (to ? api.addFiles(to.id, usable, sent) : api.upload(usable, sent));
    data.update((now) => ({
      ...now,
      uploads: [{ upload, job: null }, ...now.uploads.filter((entry) => entry.upload.id !== upload.id)],
    }));
    keep();
    await followUpload(upload);
  } catch (cause) {
    say(messageOf(cause), "error");
  } finally {
    data.update((now) => ({ ...now, sending: null }));
  }
}

const listed = (names: string[]): string =>
  names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");

/** All files that were dropped, folders and what is in them included. */
export async function droppedFiles(transfer: DataTransfer): Promise<File[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry !== null);
  if (!entries.length) return [...transfer.files];
  const found: File[] = [];
  const walk = async (entry: FileSystemEntry): Promise<void> => {
    if (found.length >= MOST_FILES) return;
    if (entry.isFile) found.push(await new Promise<File>((done, failed) => (entry as FileSystemFileEntry).file(done, failed)));
    else if (entry.isDirectory) for (const inner of await listing(entry as FileSystemDirectoryEntry)) await walk(inner);
  };
  for (const entry of entries) if (entry) await walk(entry);
  return found.filter(({ name }) => !name.startsWith("."));
}

const MOST_FILES = 20_000;

/** A folder is read in portions until one is empty. */
async function listing(folder: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = folder.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
    if (!some.length) return all;
    all.push(...some);
  }
}

/** Tell the server what a file really is; it reads the patient again. */
export async function correct(upload: Upload, file: string, role: FileRole | null): Promise<void> {
  try {
    await followUpload(await api.correctUpload(upload.id, { [file]: role }));
  } catch (cause) {
    say(messageOf(cause), "error");
  }
}

export async function forgetUpload(id: string): Promise<void> {
  data.update((now) => ({ ...now, uploads: now.uploads.filter((entry) => entry.upload.id !== id) }));
  keep();
  await api.dropUpload(id).catch(() => undefined); // it may have expired already
}

/** What was uploaded before the page was loaded again, as far as the server still has it. */
export async function recallUploads(): Promise<void> {
  let ids: unknown;
  try {
    ids = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
  } catch {
    return;
  }
  for (const id of Array.isArray(ids) ? ids : []) {
    const upload = await api.uploaded(String(id)).catch(() => null);
    if (!upload) continue;
    data.update((now) => ({ ...now, uploads: [...now.uploads, { upload, job: null }] }));
    void followUpload(upload, false);
  }
  keep();
}

/** Only ids are kept, and only as long as the tab is open. */
function keep(): void {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(data.get().uploads.map(({ upload }) => upload.id)));
  } catch {
    // A reload forgets them then.
  }
}

async function followUpload(start: Upload, show = true): Promise<void> {
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
  if (show && view.get().reading?.key !== upload.id) open({ kind: "upload", key: upload.id, z: volume.representative_z });
}

function put(upload: Upload, job: Job | null): void {
  data.update((now) => ({
    ...now,
    uploads: now.uploads.map((entry) => (entry.upload.id === upload.id ? { upload, job } : entry)),
  }));
}
