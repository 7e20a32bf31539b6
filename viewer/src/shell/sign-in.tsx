/** Asks for the token of a server that needs one. The server keeps it in a cookie that no script can read. */

import { useState } from "preact/hooks";
import * as api from "../api/client";
import { messageOf } from "../state/data";

export function SignIn({ onDone }: { onDone: () => void }) {
  const [problem, setProblem] = useState("");
  const enter = async (event: SubmitEvent) => {
    event.preventDefault();
    const token = new FormData(event.currentTarget as HTMLFormElement).get("token");
    try {
      await api.signIn(String(token));
      onDone();
    } catch (cause) {
      setProblem(messageOf(cause));
    }
  };
  return (
    <form class="sign-in" onSubmit={(event) => void enter(event)}>
      <h2>This archive needs a token</h2>
      <p class="hint">Open the newest link that `diptych serve` printed, or enter a token (`diptych users add`).</p>
      <label>
        Token <input type="password" name="token" required autocomplete="off" />
      </label>
      <button type="submit">Enter</button>
      <p class="problem" role="alert">
        {problem}
      </p>
    </form>
  );
}
