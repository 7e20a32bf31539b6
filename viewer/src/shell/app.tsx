/** The page: list of patients, diptych, results; or two patients compared. */

import { useEffect, useState } from "preact/hooks";
import { CompareView } from "../compare/compare";
import { PriorView } from "../compare/prior";
import { Reading } from "../reading/reading";
import { Results } from "../results/results";
import { useView } from "../state/actions";
import { useData } from "../state/data";
import { openArchive } from "../state/opening";
import { usePreferences } from "../state/preferences";
import { Header } from "./header";
import { Help } from "./help";
import { startKeyboard } from "./keyboard";
import { Notices } from "./notices";
import { Outage } from "./outage";
import { SignIn } from "./sign-in";
import { DropAnywhere } from "./uploads";
import { Worklist } from "./worklist";

export function App() {
  const [help, setHelp] = useState(false);
  const reading = useView((view) => view.reading);
  const compare = useView((view) => view.compare);
  const prior = useView((view) => view.prior);
  const error = useData((now) => now.archiveError);
  const needsToken = useData((now) => now.needsToken);
  const list = usePreferences((now) => now.list);
  useEffect(() => {
    document.getElementById("app")!.classList.toggle("no-list", !list);
  }, [list]);
  useEffect(() => startKeyboard(() => setHelp(true)), []);
  return (
    <>
      <Header onHelp={() => setHelp(true)} />
      {list && <Worklist />}
      <main>
        {needsToken ? (
          <SignIn onDone={() => void openArchive()} />
        ) : error ? (
          <p class="problem empty">
            {error}{" "}
            <button type="button" class="back" onClick={() => void openArchive()}>
              Retry
            </button>
          </p>
        ) : reading?.kind === "volume" && prior ? (
          <PriorView reading={reading} prior={prior} />
        ) : reading && compare ? (
          <CompareView reading={reading} compare={compare} />
        ) : (
          <>
            <Reading />
            <Results />
          </>
        )}
      </main>
      <Outage />
      <Notices />
      <DropAnywhere />
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  );
}
