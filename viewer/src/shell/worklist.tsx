/** The archive's patients: search box, filters, thumbnails. */

import type { VolumeFilter } from "../api/client";
import type { VolumeSummary } from "../api/types";
import { open, useView } from "../state/actions";
import { data, useData } from "../state/data";
import { loadWorklist } from "../state/effects";
import { Segmented, Select } from "./controls";
import { DropZone, Uploads } from "./uploads";

const setFilter = (change: Partial<VolumeFilter>): void =>
  data.update((now) => ({ ...now, worklist: { ...now.worklist, filter: { ...now.worklist.filter, ...change } } }));

export function Worklist() {
  const { items, total, busy, error } = useData((now) => now.worklist);
  return (
    <nav class="worklist" aria-label="Patients">
      <Filters />
      <Uploads />
      <ul class="patients" aria-busy={busy}>
        {items.map((item) => (
          <Patient key={item.volume_key} item={item} />
        ))}
        {error && <li class="empty">{error}</li>}
        {!error && !items.length && (
          <li class="empty">{busy ? "Loading…" : "No patient fits. Clear the search box or the filters."}</li>
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
            value={filter.source}
            choices={[["", "all"], ...archive.sources.map((name) => [name, name] as const)]}
            onChange={(source) => setFilter({ source })}
          />
        )}
        {archive && archive.tags.length > 0 && (
          <Select
            label="Tag"
            value={filter.tag}
            choices={[["", "any"], ...archive.tags.map((name) => [name, name] as const)]}
            onChange={(tag) => setFilter({ tag })}
          />
        )}
      </div>
      <p class="count" aria-live="polite">
        {total} {total === 1 ? "patient" : "patients"}
      </p>
    </div>
  );
}

function Patient({ item }: { item: VolumeSummary }) {
  const chosen = useView((view) => view.reading?.kind === "volume" && view.reading.key === item.volume_key);
  const facts = [item.sex, item.age !== null && `${Math.round(item.age)} y`, item.source].filter(Boolean).join(" · ");
  return (
    <li>
      <button
        type="button"
        class="patient"
        aria-current={chosen}
        onClick={() => open({ kind: "volume", key: item.volume_key, z: item.representative_z })}
      >
        {item.thumbnail_url ? (
          <img src={item.thumbnail_url} alt="" loading="lazy" width={44} height={55} draggable={false} />
        ) : (
          <span class="no-picture" aria-hidden="true" />
        )}
        <span class="patient-words">
          <b>{item.volume_key}</b>
          <span>{facts || `${item.slices} slices`}</span>
          <span>{lesionWords(item)}</span>
        </span>
      </button>
    </li>
  );
}

function lesionWords({ largest_lesion_mm2: area, lesion_source }: VolumeSummary): string {
  if (area === null) return "lesion unknown";
  const words = area > 0 ? `lesion ${(area / 100).toFixed(1)} cm²` : "no lesion";
  return lesion_source === "predicted" ? `${words} (predicted)` : words;
}
