/** How to search: lanes or one list, the slider between anatomy and lesion, metric, number, filters. */

import { askWith, useView } from "../state/actions";
import { findsPatients, levelOf } from "../state/asking";
import { useData, type LaneName } from "../state/data";
import { Segmented, Select, Slider } from "../shell/controls";

/** What each metric compares, in a few words. */
const METRICS: Record<string, string> = {
  euclidean: "code vectors",
  angular: "directions of code vectors",
  hamming: "binary codes",
  learned: "codes, by how their labels differ",
  overlap: "labels that codes decode to",
  fusion: "learned and overlap together",
};

const TOPS = [6, 12, 24, 48];

const LEVELS = [10, 20, 40, 60];

/** "here ± mm", with the archive's usual width among them; off for any level. */
function levelChoices(usual: number): [string, string][] {
  const widths = [...new Set([...LEVELS, usual])].sort((one, other) => one - other);
  return [...widths.map((mm): [string, string] => [String(mm), `here ± ${mm} mm`]), ["any", "anywhere"]];
}

/** Whether a lane finds whole patients now. */
export function usePatients(lane: LaneName): boolean {
  const able = useData((now) => now.archive?.can_find_patients ?? false);
  return useView((view) => findsPatients(lane, view)) && able;
}

export function ResultsBar() {
  const question = useView((view) => view.question);
  const archive = useData((now) => now.archive);
  const whole = usePatients("both");
  const usual = archive?.default_level_mm ?? LEVELS[2]!;
  const lesion = Math.round(question.lesionShare * 100);
  const alone = question.layout === "one" && question.anywhere !== null;
  const words = `${100 - lesion} % anatomy, ${lesion} % lesion`;
  return (
    <div class="bar results-bar">
      <Segmented
        label="Layout of the results"
        choices={[
          ["lanes", "Lanes", "By anatomy, by both, by lesion, side by side"],
          ["one", "One list", "One list that follows the slider"],
        ]}
        value={question.layout}
        onChange={(layout) => askWith({ layout })}
      />
      <div class="weight" title={alone ? "Anywhere compares the lesion alone" : `Acts on the list by both: ${words}`}>
        <span class="weight-normal">anatomy</span>
        <Slider
          label="Between anatomy and lesion"
          value={question.lesionShare}
          min={0}
          max={1}
          step={0.01}
          words={words}
          disabled={alone}
          onChange={(lesionShare) => askWith({ lesionShare })}
        />
        <span class="weight-abnormal">lesion</span>
        <output class="weight-words">{alone ? "lesion alone" : `${100 - lesion} : ${lesion}`}</output>
        <span class="hint acts-on">for “By both”</span>
      </div>
      {whole ? (
        <span class="finds">
          Finds <b>patients</b>, compared in three dimensions
        </span>
      ) : (
        <>
          <span class="finds">
            Finds <b>slices</b>
          </span>
          <Select
            label="Level"
            hint="How far from this level a slice may lie; acts on all lanes but the comparators"
            value={String(levelOf(question, usual) ?? "any")}
            choices={levelChoices(usual)}
            onChange={(value) => askWith({ level: value === "any" ? value : Number(value) })}
          />
        </>
      )}
      <span class="spring" />
      <input
        class="filter-text"
        type="search"
        placeholder="Filter"
        aria-label="Filter matches by patient, source or tag"
        value={question.text}
        onInput={(event) => askWith({ text: event.currentTarget.value.slice(0, 200) })}
      />
      {archive && archive.sources.length > 1 && (
        <Select
          label="Source of matches"
          bare
          value={question.source}
          choices={[["", "all sources"], ...archive.sources.map((name) => [name, name] as const)]}
          onChange={(source) => askWith({ source })}
        />
      )}
      {archive && archive.tags.length > 0 && (
        <Select
          label="Tag of matches"
          bare
          value={question.tag}
          choices={[["", "any tag"], ...archive.tags.map((name) => [name, name] as const)]}
          onChange={(tag) => askWith({ tag })}
        />
      )}
      {!whole && (
        <Select
          label="Metric"
          value={question.metric}
          choices={[
            ["", "best for each list"],
            ...(archive?.metrics ?? []).map(
              ({ name, ready }) =>
                [
                  name,
                  ready ? `${name}: ${METRICS[name] ?? "distance between codes"}` : `${name} (being prepared)`,
                  !ready,
                ] as const,
            ),
          ]}
          onChange={(metric) => askWith({ metric })}
        />
      )}
      <Select
        label="Number of matches"
        bare
        value={String(question.top)}
        choices={TOPS.map((top) => [String(top), `top ${top}`])}
        onChange={(top) => askWith({ top: Number(top) })}
      />
    </div>
  );
}
