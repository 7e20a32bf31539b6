/** The archive's patients: search box, filters, thumbnails. */

import type { VolumeFilter } from "../api/client";
import type { ArchiveInfo, VolumeSummary } from "../api/types";
import { open, useView } from "../state/actions";
import { makeRoom } from "../state/preferences";
import { data, useData } from "../state/data";
import { loadWorklist } from "../state/effects";
import { Segmented, Select } from "./controls";
import { useEffect, useRef } from "preact/hooks";
import { DropZone, Uploads } from "./uploads";

const setFilter = (change: Partial<VolumeFilter>): void =>
  data.update((now) => ({ ...now, worklist: { ...now.worklist, filter: { ...now.worklist.filter, ...change } } }));

export function Worklist() {
  const { items, total, busy, error, filter } = useData((now) => now.worklist);
  const reading = useView((view) => view.reading);
  const isOpen = (item: VolumeSummary) => reading?.kind === "volume" && reading.key === item.volume_key;
  const filtered = Object.values(filter).some(Boolean);
  const empty = filtered
    ? "No patient fits. Clear the search box or the filters."
    : "This archive holds no patient yet. Add some with 'diptych index', or drop one here.";
  return (
    <nav class="worklist" aria-label="Patients">
      <Filters />
      <Uploads />
      <ul class="patients" aria-busy={busy} onKeyDown={moveInList}>
        {items.map((item, i) => (
          <Patient key={item.volume_key} item={item} stop={items.some(isOpen) ? isOpen(item) : i === 0} />
        ))}
        {error && <li class="empty">{error}</li>}
        {!error && !items.length && (
          <li class="empty">{busy ? "Loading…" : empty}</li>
        )}
        {items.length < total && (
          <li>
            <button type="button" class="more" onClick={() => loadWorklist(items.length)} disabled={busy}>
              Show more ({total - items.length})
            </button>
          </li>
        )}
      </ul>
      <DropZone />
    </nav>
  );
}

function Filters() {
  const filter = useData((now) => now.worklist.filter);
  const total = useData((now) => now.worklist.total);
  const archive = useData((now) => now.archive);
  return (
    <div class="filters">
      <input
        id="worklist-search"
        type="search"
        placeholder="Search patients"
        aria-label="Search patients"
        aria-keyshortcuts="/"
        value={filter.text}
        onInput={(event) => setFilter({ text: event.currentTarget.value.slice(0, 200) })}
      />
      <Segmented
        label="Lesion"
        choices={[
          ["", "All"],
          ["with", "Lesion"],
          ["without", "None"],
        ]}
        value={filter.lesion}
        onChange={(lesion) => setFilter({ lesion })}
      />
      <div class="filter-row">
        {archive && archive.sources.length > 1 && (
          <Select
            label="Source"
            bare
            value={filter.source}
            choices={[["", "all sources"], ...archive.sources.map((name) => [name, name] as const)]}
            onChange={(source) => setFilter({ source })}
          />
        )}
        {archive && archive.tags.length > 0 && (
          <Select
            label="Tag"
            bare
            value={filter.tag}
            choices={[["", "any tag"], ...archive.tags.map((name) => [name, name] as const)]}
            onChange={(tag) => setFilter({ tag })}
          />
        )}
      </div>
      <p class="count" aria-live="polite">
        {counted(total, archive)}
      </p>
    </div>
  );
}

/** The list has an entry for each study: of several of one patient, nobody may be counted twice. */
function counted(total: number, archive: ArchiveInfo | null): string {
  const word = archive && archive.volumes > archive.patients ? ["study", "studies"] : ["patient", "patients"];
  return `${total} ${word[total === 1 ? 0 : 1]}`;
}

/** The list is one stop of the Tab key; arrows go through it where Tab has led. */
function moveInList(event: KeyboardEvent): void {
  const step = { ArrowUp: -1, ArrowDown: 1, PageUp: -8, PageDown: 8 }[event.key];
  if (!step) return;
  const all = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("button")];
  const place = all.indexOf(document.activeElement as HTMLElement);
  event.preventDefault();
  all[Math.min(all.length - 1, Math.max(0, place + step))]?.focus();
}

function Patient({ item, stop }: { item: VolumeSummary; stop: boolean }) {
  const chosen = useView((view) => view.reading?.kind === "volume" && view.reading.key === item.volume_key);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (chosen) button.current?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  const facts = [item.sex, item.age !== null && `${Math.round(item.age)} y`, item.source].filter(Boolean).join(" · ");
  return (
    <li>
      <button
        type="button"
        class="patient"
        ref={button}
        aria-current={chosen}
        tabIndex={stop ? 0 : -1}
        onClick={() => {
          open({ kind: "volume", key: item.volume_key, z: item.representative_z });
          makeRoom();
        }}
      >
        {item.thumbnail_url ? (
          <img src={item.thumbnail_url} alt="" loading="lazy" width={44} height={55} draggable={false} />
        ) : (
          <span class="no-picture" aria-hidden="true" />
        )}
        <span class="patient-words">
          <b>{item.volume_key}</b>
          {facts && <span>{facts}</span>}
          <span>{lesionWords(item)}</span>
        </span>
      </button>
    </li>
  );
}

function lesionWords({ largest_lesion_mm2: area, lesion_source }: VolumeSummary): string {
  if (area === null) return "lesion unknown";
  const source = lesion_source === "predicted" ? "predicted" : "known";
  return area > 0 ? `${(area / 100).toFixed(1)} cm² ${source}` : `no ${source} lesion`;
}
