/** What was found: lanes of cards under one row of controls. */

import { useView } from "../state/actions";
import { lanesOf } from "../state/asking";
import { useData, type Lane, type LaneName } from "../state/data";
import { Card } from "./card";
import { ResultsBar } from "./results-bar";

const TITLES: Record<LaneName, [title: string, meaning: string]> = {
  normal: ["By anatomy", "the normal panel alone"],
  both: ["By both", "anatomy and lesion"],
  abnormal: ["By lesion", "the abnormal panel alone"],
  comparators: ["Comparators", "real slices without lesion, same anatomy"],
};

export function Results() {
  const question = useView((view) => view.question);
  const reading = useView((view) => view.reading);
  const lanes = lanesOf(question);
  return (
    <section class="results" aria-label="Results">
      <ResultsBar />
      {reading ? (
        <div class={`lanes ${question.layout}`}>
          {lanes.map((name) => (
            <LaneRow key={name} name={name} />
          ))}
        </div>
      ) : (
        <p class="empty">Matches appear here as soon as a patient is open.</p>
      )}
    </section>
  );
}

function LaneRow({ name }: { name: LaneName }) {
  const lane = useData((now) => now.lanes[name]);
  const [title, meaning] = TITLES[name];
  const matches = lane.answer?.matches ?? [];
  const farthest = Math.max(0, ...matches.map((match) => match.distance));
  return (
    <section class={`lane ${name}${lane.busy ? " busy" : ""}`} aria-label={title} aria-busy={lane.busy}>
      <header>
        <h3>{title}</h3>
        <p>{meaning}</p>
        <p class="timing" title={timing(lane)}>
          {lane.answer && `${matches.length} found`}
        </p>
      </header>
      {matches.length > 0 ? (
        <ol class="cards">
          {matches.map((match) => (
            <Card key={`${match.volume_key}/${match.z}`} match={match} lane={name} farthest={farthest} />
          ))}
        </ol>
      ) : (
        <p class="empty">{emptiness(lane, name)}</p>
      )}
    </section>
  );
}

const timing = ({ answer, roundTrip }: Lane): string =>
  answer && roundTrip !== null
    ? `answered in ${roundTrip.toFixed(0)} ms, of which searching took ${answer.took_ms.toFixed(1)} ms`
    : "";

function emptiness({ busy, error, answer }: Lane, name: LaneName): string {
  if (error) return error;
  if (busy) return "Searching…";
  if (!answer) return "Nothing is asked yet.";
  return name === "comparators"
    ? "No lesion-free slice of another patient fits these filters."
    : "Nobody fits these filters. Loosen them.";
}
