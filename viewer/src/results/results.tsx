/** What was found: lanes of matches under one row of controls; a lane that is closed is one line. */

import { useView } from "../state/actions";
import { lanesOf } from "../state/asking";
import { useData, type Lane, type LaneName } from "../state/data";
import { prefer, usePreferences } from "../state/preferences";
import { lookNow } from "../state/opening";
import { Card } from "./card";
import { ResultsBar, usePatients } from "./results-bar";
import { isNothing, isTied, shareWords } from "./worth";

export const LANE_TITLES: Record<LaneName, [title: string, slices: string, patients: string]> = {
  normal: ["By anatomy", "slices of the same brain, whatever the lesion", "patients with such a brain, whatever the lesion"],
  both: ["By both", "slices with such anatomy and lesion", "patients with such a brain and such a lesion"],
  abnormal: ["By lesion", "slices with the same lesion, whatever the brain", "patients with such a lesion in that place"],
  comparators: ["Comparators", "real slices without known lesion, same anatomy", ""],
};

/** What a list is called where it stands alone. */
export const laneTitle = (lane: LaneName, patients: boolean): string =>
  patients ? `Patients: ${LANE_TITLES[lane][0].toLowerCase()}` : LANE_TITLES[lane][0];

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
  const open = usePreferences((now) => now.lanes.includes(name));
  const lanes = usePreferences((now) => now.lanes);
  const one = useView((view) => view.question.layout === "one");
  const whole = usePatients(name);
  const [title, slices, patients] = LANE_TITLES[name];
  const matches = lane.answer?.matches ?? [];
  const shown = open || (one && name === "both");
  const toggle = () => prefer({ lanes: open ? lanes.filter((other) => other !== name) : [...lanes, name] });
  return (
    <section class={`lane ${name}${lane.busy ? " busy" : ""}`} aria-label={title} aria-busy={lane.busy}>
      <header>
        <h3>
          <button type="button" class="lane-toggle" aria-expanded={shown} onClick={toggle}>
            <span aria-hidden="true">{shown ? "▾" : "▸"}</span> {title}
          </button>
        </h3>
        <span class="lane-meaning">{whole ? patients : slices}</span>
        <span class="timing" title={timing(lane)}>
          {lane.answer && `${matches.length} found`}
        </span>
      </header>
      {/* Not only where the lane is open: nobody may take a part for the whole. */}
      {lane.answer?.missing?.map((sentence) => (
        <p key={sentence} class="not-searched safety" role="alert">
          Not the whole archive: {sentence}.
        </p>
      ))}
      {shown && lane.answer && isNothing(lane.answer, name) && (
        <p class="nothing-alike safety" role="status">
          Nothing like it in this archive: the best match below agrees {shareWords(lane.answer.matches[0]!, name)} only.
        </p>
      )}
      {shown && lane.answer && isTied(lane.answer) && (
        <p class="nothing-alike safety" role="status">
          All of these are equally near: their order means nothing.
        </p>
      )}
      {shown && matches.length > 0 && (
        <ol class="cards" onKeyDown={moveAlong}>
          {matches.map((match) => (
            <Card key={`${match.volume_key}/${match.z}`} match={match} lane={name} />
          ))}
        </ol>
      )}
      {shown && !matches.length && <Emptiness lane={lane} name={name} />}
    </section>
  );
}

/** A lane is one stop of the Tab key; ← and → go along it. */
function moveAlong(event: KeyboardEvent): void {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  const buttons = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>(".card button")];
  const next = buttons[buttons.indexOf(document.activeElement as HTMLElement) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

const timing = ({ answer, roundTrip }: Lane): string =>
  answer && roundTrip !== null
    ? `answered in ${roundTrip.toFixed(0)} ms, of which searching took ${answer.took_ms.toFixed(1)} ms`
    : "";

function Emptiness({ lane: { busy, error, answer }, name }: { lane: Lane; name: LaneName }) {
  const patients = useData((now) => now.archive?.patients);
  const outage = useData((now) => now.outage);
  if (error) {
    return (
      <p class="empty">
        {error}{" "}
        {outage !== null && (
          <button type="button" class="quiet" onClick={() => void lookNow()}>
            Retry
          </button>
        )}
      </p>
    );
  }
  if (busy) return <p class="empty">Searching…</p>;
  if (!answer) return <p class="empty">Nothing is asked yet.</p>;
  if (patients === 1) return <p class="empty">This archive holds one patient: there is nobody else to find.</p>;
  return (
    <p class="empty">
      {name === "comparators"
        ? "No slice of another patient is known to be free of lesion, or none fits these filters."
        : "Nobody fits these filters. Loosen them."}
    </p>
  );
}
