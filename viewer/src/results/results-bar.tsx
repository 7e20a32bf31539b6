/** How to search: lanes or one list, the slider between anatomy and lesion, metric, number, filters. */

import { askWith, useView } from "../state/actions";
import { useData } from "../state/data";
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

const LEVELS: [string, string][] = [
  ["", "anywhere"],
  ["10", "here ± 10 mm"],
  ["20", "here ± 20 mm"],
  ["40", "here ± 40 mm"],
];

export function ResultsBar() {
  const question = useView((view) => view.question);
  const archive = useData((now) => now.archive);
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
      <Select
        label="Level"
        value={question.level === null ? "" : String(question.level)}
        choices={LEVELS}
        onChange={(value) => askWith({ level: value ? Number(value) : null })}
      />
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
          label="Source"
          value={question.source}
          choices={[["", "all"], ...archive.sources.map((name) => [name, name] as const)]}
          onChange={(source) => askWith({ source })}
        />
      )}
      {archive && archive.tags.length > 0 && (
        <Select
          label="Tag"
          value={question.tag}
          choices={[["", "any"], ...archive.tags.map((name) => [name, name] as const)]}
          onChange={(tag) => askWith({ tag })}
        />
      )}
      <Select
        label="Metric"
        value={question.metric || archive?.default_metric || ""}
        choices={(archive?.metrics ?? []).map(({ name, ready }) => [
          name,
          ready ? `${name}: ${METRICS[name] ?? "distance between codes"}` : `${name} (being prepared)`,
          !ready,
        ])}
        onChange={(metric) => askWith({ metric })}
      />
      <Select
        label="Top"
        value={String(question.top)}
        choices={TOPS.map((top) => [String(top), String(top)])}
        onChange={(top) => askWith({ top: Number(top) })}
      />
    </div>
  );
}
