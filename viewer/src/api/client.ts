/** Talks to the server: one function for each route the page uses, one kind of error. Knows no state. */

import type {
  Answer,
  ArchiveInfo,
  ChangeInfo,
  Channel,
  ChannelSignal,
  ExportFormat,
  FileRole,
  Job,
  Match,
  PacsPlace,
  PatientMatch,
  PatientSearchBody,
  Range,
  SearchBody,
  SliceLesion,
  Subject,
  SubjectView,
  Upload,
  Volume,
  VolumeList,
} from "./types";
import type { SliceRef } from "../state/view";

/** Below the page's own address: of several archives side by side, each has its own. */
const BASE = new URL("api/v1", new URL(".", location.href)).pathname;
const AWAY = "The server does not answer. Is `diptych serve` still running?";

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
    throw new ApiError(0, AWAY);
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

/** The lesion of a slice in numbers, known and predicted. */
export const lesion = (slice: SliceRef): Promise<SliceLesion> => get(`${home(slice)}/slices/${slice.z}/lesion`);

/** One image of a volume in numbers. */
export const signal = (slice: SliceRef, channel: Channel): Promise<ChannelSignal> =>
  get(`${home(slice)}/signals/${encodeURIComponent(channel)}`);

export const search = (body: SearchBody, signal?: AbortSignal): Promise<Answer> => post("/search", body, signal);

export const comparators = (body: SearchBody, signal?: AbortSignal): Promise<Answer> =>
  post("/comparators", body, signal);

/** Whole patients, as matches at the slices that share most. */
export async function patients(body: PatientSearchBody, signal?: AbortSignal): Promise<Answer> {
  type Found = Omit<Answer, "matches" | "metric"> & { matches: PatientMatch[] };
  const found = await post<Found>("/similar-patients", body, signal);
  return { ...found, metric: "", matches: found.matches.map(asMatch) };
}

function asMatch({ panels, z_index, query_z_index, z_indices, z_mm, shift, mirrored, ...rest }: PatientMatch): Match {
  const moved = mirrored || shift.some(Boolean);
  const overlap: Partial<Record<"normal" | "abnormal", number>> = {};
  if (panels.normal !== undefined) overlap.normal = 1 - panels.normal;
  if (panels.abnormal !== undefined) overlap.abnormal = 1 - panels.abnormal;
  const whole = {
    overlap,
    query_z: query_z_index,
    lesion_ratio: rest.lesion_ratio,
    slices: z_indices.map((z, i) => [z, z_mm[i]!] as const),
  };
  return {
    ...rest,
    z: z_index,
    position: 0,
    z_mm: z_mm[z_indices.indexOf(z_index)] ?? 0,
    lesion_area_mm2: null,
    normal_part: panels.normal ?? 0,
    abnormal_part: panels.abnormal ?? 0,
    agreement: {},
    twin_url: "",
    shift: moved ? { rows: shift[1], columns: shift[2], mirrored } : null,
    whole,
  };
}

export type Sent = (share: number) => void;

/** Send a patient's files; `sent` is told how much has gone. */
export const upload = (files: File[], sent: Sent): Promise<Upload> => sendFiles("/uploads", files, sent);

/** Give an upload the files that it lacks. */
export const addFiles = (id: string, files: File[], sent: Sent): Promise<Upload> =>
  sendFiles(`/uploads/${encodeURIComponent(id)}/files`, files, sent);

/** `fetch` cannot say how much of a body has gone; the older way can. */
function sendFiles(path: string, files: File[], sent: Sent): Promise<Upload> {
  const form = new FormData();
  for (const file of files) form.append("files", file, file.name);
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("POST", `${BASE}${path}`);
    request.upload.onprogress = ({ loaded, total }) => sent(total ? loaded / total : 0);
    request.onerror = () => failed(new ApiError(0, AWAY));
    request.onload = () => {
      const response = new Response(request.responseText, { status: request.status });
      if (response.ok) done(JSON.parse(request.responseText) as Upload);
      else void messageOf(response).then((text) => failed(new ApiError(request.status, text)));
    };
    request.send(form);
  });
}

export const uploaded = (id: string): Promise<Upload> => get(`/uploads/${encodeURIComponent(id)}`);

export async function correctUpload(id: string, channels: Record<string, FileRole | null>): Promise<Upload> {
  return (await (await ask(`/uploads/${encodeURIComponent(id)}`, sending("PATCH", { channels }))).json()) as Upload;
}

export async function dropUpload(id: string): Promise<void> {
  await ask(`/uploads/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** What has changed since an earlier study, or the job that finds it out. */
export const change = (key: string, old: string): Promise<ChangeInfo | Job> =>
  get(`/volumes/${encodeURIComponent(key)}/changes/${encodeURIComponent(old)}`);

/** Address of an overlay of that comparison. */
export const changeUrl = (key: string, old: string, z: number, kind: string, channel: Channel): string =>
  `${BASE}/volumes/${encodeURIComponent(key)}/changes/${encodeURIComponent(old)}/slices/${z}/${kind}.png?channel=${encodeURIComponent(channel)}`;

export const job = (id: string): Promise<Job> => get(`/jobs/${encodeURIComponent(id)}`);

export const pacsPlace = (key: string): Promise<PacsPlace> => get(`/volumes/${encodeURIComponent(key)}/pacs`);

/** The job that sends a volume's results to its PACS. */
export const sendResults = (key: string): Promise<Job & { id: string }> =>
  post(`/volumes/${encodeURIComponent(key)}/pacs`, {});

export interface ExportBody {
  format: ExportFormat;
  lanes: { title: string; search?: SearchBody; patients?: PatientSearchBody; comparators?: boolean }[];
  measures: Record<string, unknown>[];
}

/** All lanes in one file, with the name that the server gives it. */
export async function exported(body: ExportBody): Promise<{ name: string; blob: Blob }> {
  const response = await ask("/export", sending("POST", body));
  const name = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "")?.[1];
  return { name: name ?? "diptych-export", blob: await response.blob() };
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

export type PictureKind = "image" | "reconstruction" | "twin" | "refined" | "mask" | "label" | "difference";

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
