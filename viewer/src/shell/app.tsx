/** The page: list of patients, diptych, results; or two patients compared. */

import { useEffect, useState } from "preact/hooks";
import { CompareView } from "../compare/compare";
import { Reading } from "../reading/reading";
import { Results } from "../results/results";
import { useView } from "../state/actions";
import { useData } from "../state/data";
import { openArchive } from "../state/opening";
import { Header } from "./header";
import { Help } from "./help";
import { startKeyboard } from "./keyboard";
import { Notices } from "./notices";
import { SignIn } from "./sign-in";
import { Worklist } from "./worklist";

export function App() {
  const [help, setHelp] = useState(false);
  const reading = useView((view) => view.reading);
  const compare = useView((view) => view.compare);
  const error = useData((now) => now.archiveError);
  const needsToken = useData((now) => now.needsToken);
  useEffect(() => startKeyboard(() => setHelp(true)), []);
  return (
    <>
      <Header onHelp={() => setHelp(true)} />
      <Worklist />
      <main>
        {needsToken ? (
          <SignIn onDone={() => void openArchive()} />
        ) : error ? (
          <p class="problem empty">{error}</p>
        ) : reading && compare ? (
          <CompareView reading={reading} compare={compare} />
        ) : (
          <>
            <Reading />
            <Results />
          </>
        )}
      </main>
      <Notices />
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  );
}
