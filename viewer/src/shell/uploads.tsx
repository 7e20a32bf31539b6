/** Dropped patients: the files with the channel that each was taken for, which can be corrected, and progress. */

import { useEffect, useRef, useState } from "preact/hooks";
import { titleOf, type FileRole, type Upload } from "../api/types";
import { open, useView } from "../state/actions";
import { useData, type UploadEntry } from "../state/data";
import { Select } from "./controls";
import { correct, droppedFiles, forgetUpload, uploadFiles } from "./uploading";

export function Uploads() {
  const uploads = useData((now) => now.uploads);
  return (
    <>
      <Sending />
      {uploads.map((entry) => (
        <UploadCard key={entry.upload.id} entry={entry} />
      ))}
    </>
  );
}

function Sending() {
  const sending = useData((now) => now.sending);
  if (!sending || sending.share >= 1) return null;
  return (
    <section class="upload" aria-label="Sending">
      <ul>
        {sending.files.map((name) => (
          <li key={name}>
            <span class="file-name">{name}</span>
          </li>
        ))}
      </ul>
      <p class="hint" role="status">
        Sending, {Math.round(sending.share * 100)} % <progress max={1} value={sending.share} />
      </p>
    </section>
  );
}

/** Where files can be chosen; they may be dropped anywhere. */
export function DropZone() {
  const channels = useData((now) => now.archive?.channels) ?? [];
  return (
    <div class="drop">
      <FileButton label="Files of a patient" onFiles={(files) => void uploadFiles(files)}>
        <b>Drop a patient anywhere</b>
        <span>NIfTI files ({channels.map(titleOf).join(", ")}) or a DICOM folder</span>
      </FileButton>
    </div>
  );
}

interface FileButtonProps {
  label: string;
  onFiles: (files: File[]) => void;
  children: preact.ComponentChildren;
}

function FileButton({ label, onFiles, children }: FileButtonProps) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <button type="button" onClick={() => input.current?.click()}>
        {children}
      </button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label={label}
        onChange={(event) => {
          onFiles([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}

/** The whole page takes files; while some are dragged over it, it says so. */
export function DropAnywhere() {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const hasFiles = (event: DragEvent) => Boolean(event.dataTransfer?.types.includes("Files"));
    const drag = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent) => event.relatedTarget === null && setOver(false);
    const drop = (event: DragEvent) => {
      if (!hasFiles(event) || !event.dataTransfer) return;
      event.preventDefault();
      setOver(false);
      void droppedFiles(event.dataTransfer).then((files) => uploadFiles(files));
    };
    window.addEventListener("dragover", drag);
    window.addEventListener("dragleave", leave);
    window.addEventListener("drop", drop);
    return () => {
      window.removeEventListener("dragover", drag);
      window.removeEventListener("dragleave", leave);
      window.removeEventListener("drop", drop);
    };
  }, []);
  return over ? <div class="drop-anywhere">Drop the patient’s files or folder here</div> : null;
}

function UploadCard({ entry: { upload, job } }: { entry: UploadEntry }) {
  const reading = useView((view) => view.reading);
  const channels = useData((now) => now.archive?.channels) ?? [];
  const chosen = reading?.kind === "upload" && reading.key === upload.id;
  const working = upload.state === "queued" || upload.state === "running";
  const roles: [string, string][] = [
    ["", "not used"],
    ...channels.map((channel): [string, string] => [channel, titleOf(channel)]),
    ["lesion", "lesion labels"],
    ["anatomy", "anatomy labels"],
  ];
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
            <span class="file-name">{name}</span>
            <Select
              label={`Channel of ${name}`}
              value={channel ?? ""}
              choices={roles}
              onChange={(role) => void correct(upload, name, (role || null) as FileRole | null)}
            />
          </li>
        ))}
      </ul>
      {upload.missing.length > 0 && <Missing upload={upload} />}
      {working && (
        <p class="hint" role="status">
          {job?.message || "Reading"} <progress max={job?.total || 1} {...(job?.total ? { value: job.done } : {})} />
        </p>
      )}
      {upload.error && <p class="problem">{upload.error}</p>}
    </section>
  );
}

function Missing({ upload }: { upload: Upload }) {
  const names = upload.missing.map(titleOf).join(", ");
  return (
    <div class="missing">
      <p class="hint">Missing: {names}. Say above which file it is, or add it.</p>
      <FileButton label={`Add a file for ${names}`} onFiles={(files) => void uploadFiles(files, upload)}>
        Add files
      </FileButton>
    </div>
  );
}
