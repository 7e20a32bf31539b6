/** Talks to the server: one function for each route the page uses, one kind of error. Knows no state. */

import type {
  Answer,
  ArchiveInfo,
  Channel,
  ExportFormat,
  FileRole,
  Job,
  Range,
  SearchBody,
  Subject,
  SubjectView,
  Upload,
  Volume,
  VolumeList,
} from "./types";
import type { SliceRef } from "../state/view";

const BASE = "/api/v1";

/** What went wrong, in words that can be shown. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

async function ask(path: string, options: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(`${BASE}${path}`, { credentials: "same-origin", ...options });
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw new ApiError(0, "The server does not answer. Is `diptych serve` still running?");
  }
  if (!response.ok) throw new ApiError(response.status, await messageOf(response));
  return response;
}

async function messageOf(response: Response): Promise<string> {
  try {
    const body = (await response.json()) as { error?: { message?: string } };
    if (body.error?.message) return body.error.message;
  } catch {
    // Not JSON: a proxy answered, not the server.
  }
  return `The server answered ${response.status} ${response.statusText}.`;
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, signal ? { signal } : {})).json()) as T;
}

function sending(method: string, body: unknown, signal?: AbortSignal): RequestInit {
  const options: RequestInit = { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return signal ? { ...options, signal } : options;
}

async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, sending("POST", body, signal))).json()) as T;
}

export interface VolumeFilter {
  text: string;
  source: string;
  tag: string;
  lesion: "" | "with" | "without";
}

/** Show the token once; the server answers with a cookie. */
export async function signIn(token: string): Promise<void> {
  await ask("/session", sending("POST", { token }));
}

export const archive = (): Promise<ArchiveInfo> => get("/archive");

export function volumes(
  filter: VolumeFilter,
  offset: number,
  limit: number,
  signal?: AbortSignal,
): Promise<VolumeList> {
  const query = new URLSearchParams({ offset: String(offset), limit: String(limit) });
  if (filter.text) query.set("text", filter.text);
  if (filter.source) query.set("source", filter.source);
  if (filter.tag) query.set("tag", filter.tag);
  if (filter.lesion) query.set("has_lesion", String(filter.lesion === "with"));
  return get(`/volumes?${query}`, signal);
}

/** A volume in full, also of an upload that is ready. */
export async function volume(slice: SliceRef): Promise<Volume> {
  if (slice.kind === "volume") return get(home(slice));
  const { volume } = await uploaded(slice.key);
  if (!volume) throw new ApiError(409, "The uploaded patient is not ready yet.");
  return volume;
}

export const view = (subject: Subject, channel: Channel, signal?: AbortSignal): Promise<SubjectView> =>
  post("/subjects/view", { subject, channel }, signal);

export const search = (body: SearchBody, signal?: AbortSignal): Promise<Answer> => post("/search", body, signal);

export const comparators = (body: SearchBody, signal?: AbortSignal): Promise<Answer> =>
  post("/comparators", body, signal);

export async function upload(files: File[]): Promise<Upload> {
  const form = new FormData();
  for (const file of files) form.append("files", file, file.name);
  return (await (await ask("/uploads", { method: "POST", body: form })).json()) as Upload;
}

export const uploaded = (id: string): Promise<Upload> => get(`/uploads/${encodeURIComponent(id)}`);

export async function correctUpload(id: string, channels: Record<string, FileRole | null>): Promise<Upload> {
  return (await (await ask(`/uploads/${encodeURIComponent(id)}`, sending("PATCH", { channels }))).json()) as Upload;
}

export async function dropUpload(id: string): Promise<void> {
  await ask(`/uploads/${encodeURIComponent(id)}`, { method: "DELETE" });
}

export const job = (id: string): Promise<Job> => get(`/jobs/${encodeURIComponent(id)}`);

export async function exported(body: SearchBody, format: ExportFormat): Promise<Blob> {
  return (await ask("/export", sending("POST", { search: body, format }))).blob();
}

/** A volume that the server makes when it is asked for; null while it is being made. */
export async function derived(url: string): Promise<Blob | null> {
  const response = await ask(url.replace(BASE, ""));
  return response.status === 202 ? null : response.blob();
}

/** Where everything about a volume or an upload lies. */
function home(slice: SliceRef): string {
  return slice.kind === "volume"
    ? `/volumes/${encodeURIComponent(slice.key)}`
    : `/uploads/${encodeURIComponent(slice.key)}`;
}

export type PictureKind = "image" | "reconstruction" | "twin" | "mask" | "label" | "difference";

export interface PictureOptions {
  channel: Channel;
  window?: Range | undefined;
  height?: number | undefined;
}

/** Address of a picture of a slice. */
export function pictureUrl(slice: SliceRef, kind: PictureKind, options: PictureOptions): string {
  return styledUrl(`${BASE}${home(slice)}/slices/${slice.z}/${kind}.png`, options);
}

/** An address that the server gave, for one channel and window. */
export function styledUrl(url: string, { channel, window, height }: PictureOptions): string {
  if (url.startsWith("data:")) return url;
  const address = new URL(url, location.origin);
  address.searchParams.set("channel", channel);
  if (window) {
    address.searchParams.set("low", window[0].toFixed(2));
    address.searchParams.set("high", window[1].toFixed(2));
  }
  if (height) address.searchParams.set("size", String(height));
  return address.pathname + address.search;
}
