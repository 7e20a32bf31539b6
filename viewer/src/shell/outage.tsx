/** Says that the server is away, for as long as it is; the page asks for it again by itself. */

import { useData } from "../state/data";
import { lookNow } from "../state/opening";

export function Outage() {
  const outage = useData((now) => now.outage);
  if (outage === null) return null;
  return (
    <div class="outage" role="alert">
      The server does not answer. Trying again every few seconds; what you see may be old.{" "}
      <button type="button" class="back" onClick={() => void lookNow()}>
        Retry now
      </button>
    </div>
  );
}
