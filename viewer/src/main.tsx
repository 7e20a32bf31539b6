/** Starts the page: draws it at once, then asks for the archive, then shows what the address says. */

import { render } from "preact";
import { App } from "./shell/app";
import { openArchive } from "./state/opening";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/shell.css";
import "./styles/worklist.css";
import "./styles/reading.css";
import "./styles/panes.css";
import "./styles/results.css";

render(<App />, document.getElementById("app")!);
void openArchive();
