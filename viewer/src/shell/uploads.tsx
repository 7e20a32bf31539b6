/** Dropped patients: the files with the channel that each was taken for, which can be corrected, and progress. */

import { useRef, useState } from "preact/hooks";
import { CHANNELS, CHANNEL_TITLES, type FileRole } from "../api/types";
import { open, useView } from "../state/actions";
import { useData, type UploadEntry } from "../state/data";
import { Select } from "./controls";
import { correct, forgetUpload, uploadFiles } from "./uploading";

const ROLES: [string, string][] = [
  ["", "not used"],
  ...CHANNELS.map((channel): [string, string] => [channel, CHANNEL_TITLES[channel]]),
  ["lesion", "lesion labels"],
  ["anatomy", "anatomy labels"],
];

export function Uploads() {
  const uploads = useData((now) => now.uploads);
  return (
    <>
      {uploads.map((entry) => (
        <UploadCard key={entry.upload.id} entry={entry} />
      ))}
    </>
  );
}

export function DropZone() {
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  return (
    <div
      class={`drop${over ? " over" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void uploadFiles([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <button type="button" onClick={() => input.current?.click()}>
        <b>Drop a patient here</b>
        <span>four NIfTI files: T1, T1Gd, T2, FLAIR</span>
      </button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files of a patient"
        onChange={(event) => {
          void uploadFiles([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
    </div>
  );
}

function UploadCard({ entry: { upload, job } }: { entry: UploadEntry }) {
  const reading = useView((view) => view.reading);
  const chosen = reading?.kind === "upload" && reading.key === upload.id;
  const working = upload.state === "queued" || upload.state === "running";
  return (
    <section class={`upload${chosen ? " chosen" : ""}`} aria-label="Your patient">
      <header>
        <b>Your patient</b>
        {upload.volume && !chosen && (
          <button
            type="button"
            class="quiet"
            onClick={() => open({ kind: "upload", key: upload.id, z: upload.volume!.representative_z })}
          >
            Open
          </button>
        )}
        <button
          type="button"
          class="quiet"
          aria-label="Forget this upload"
          title="Forget this upload"
          onClick={() => void forgetUpload(upload.id)}
        >
          ✕
        </button>
      </header>
      <ul>
        {upload.files.map(({ name, channel }) => (
          <li key={name}>
            <span title={name}>{shortName(name)}</span>
            <Select
              label={`Channel of ${name}`}
              value={channel ?? ""}
              choices={ROLES}
              onChange={(role) => void correct(upload, name, (role || null) as FileRole | null)}
            />
          </li>
        ))}
      </ul>
      {upload.missing.length > 0 && (
        <p class="hint">Missing: {upload.missing.map(titleOf).join(", ")}. Say which file it is.</p>
      )}
      {working && (
        <p class="hint" role="status">
          {job?.message || "Reading"} <progress max={job?.total || 1} {...(job?.total ? { value: job.done } : {})} />
        </p>
      )}
      {upload.error && <p class="problem">{upload.error}</p>}
    </section>
  );
}

/** Without what all NIfTI files end in, and from the end: that is where the channel is named. */
function shortName(name: string): string {
  const stem = name.replace(/\.nii(\.gz)?$/i, "");
  return stem.length > 14 ? `…${stem.slice(-13)}` : stem;
}

const titleOf = (name: string): string => CHANNEL_TITLES[name as keyof typeof CHANNEL_TITLES] ?? name;
