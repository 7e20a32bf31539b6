/** The top of the page: what is open, what can be undone, shared and taken away, and what this is not. */

import { useEffect, useState } from "preact/hooks";
import type { ArchiveInfo } from "../api/types";
import { history, useView } from "../state/actions";
import { shareable } from "../state/address";
import { say, useData } from "../state/data";
import { prefer, usePreferences } from "../state/preferences";
import { ExportMenu } from "./export-menu";

export function Header({ onHelp }: { onHelp: () => void }) {
  const archive = useData((now) => now.archive);
  const list = usePreferences((now) => now.list);
  useView((view) => view); // undo depends on every change
  return (
    <header class="top">
      <button
        type="button"
        class="quiet list-toggle"
        aria-label="List of patients"
        aria-expanded={list}
        title="Show or hide the list of patients"
        onClick={() => prefer({ list: !list })}
      >
        ☰
      </button>
      <h1>
        <Mark /> Diptych
      </h1>
      {archive && (
        <p class="archive" title={archive.problems.join("\n")}>
          <ArchiveName archive={archive} /> · {archive.patients} {archive.patients === 1 ? "patient" : "patients"} · {archive.slices.toLocaleString("en")} slices
          {archive.problems.length > 0 && ` · ${archive.problems.length} damaged`}
        </p>
      )}
      <span class="spring" />
      <p class="notice safety">Research use only, not a medical device.</p>
      <button
        type="button"
        class="quiet"
        disabled={!history.canUndo}
        onClick={() => history.undo()}
        title="Undo (Ctrl+Z)"
      >
        Undo
      </button>
      <button
        type="button"
        class="quiet"
        disabled={!history.canRedo}
        onClick={() => history.redo()}
        title="Redo (Ctrl+Shift+Z)"
      >
        Redo
      </button>
      <ShareButton />
      <ExportMenu />
      <button type="button" class="quiet" onClick={onHelp} title="Keyboard and mouse (?)" aria-keyshortcuts="?">
        Help
      </button>
    </header>
  );
}

/** The archive's name; where several are served side by side, a choice between them. */
function ArchiveName({ archive }: { archive: ArchiveInfo }) {
  if (archive.beside.length < 2) return <>{archive.name}</>;
  const here = archive.beside.find((one) => one.name === archive.name);
  return (
    <select
      aria-label="Archive"
      value={here?.path}
      onChange={(event) => location.assign(event.currentTarget.value)}
    >
      {archive.beside.map((one) => (
        <option value={one.path}>
          {one.name} ({one.disease})
        </option>
      ))}
    </select>
  );
}

/** Two panels. */
function Mark() {
  return (
    <svg class="mark" viewBox="0 0 26 22" aria-hidden="true">
      <rect x="1" y="1" width="11" height="20" rx="2" class="normal" />
      <rect x="14" y="1" width="11" height="20" rx="2" class="abnormal" />
    </svg>
  );
}

function ShareButton() {
  const reading = useView((view) => view.reading);
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  const share = async () => {
    if (reading?.kind === "upload") {
      say("An uploaded patient cannot be shared by a link: it is forgotten after a while.");
      return;
    }
    try {
      await navigator.clipboard.writeText(shareable());
      setCopied(true);
    } catch {
      say("The browser does not allow copying here; take the link from the address bar.");
    }
  };
  return (
    <button
      type="button"
      class="quiet"
      disabled={!reading}
      onClick={() => void share()}
      title="Copy a link to this view; it names no patient"
    >
      <span aria-live="polite">{copied ? "Link copied" : "Share"}</span>
    </button>
  );
}
