/** The study in the hospital: its place in the PACS's viewer, and results sent there. Empty where no PACS is known. */

import { useEffect, useState } from "preact/hooks";
import * as api from "../api/client";
import type { PacsPlace } from "../api/types";
import { useView } from "../state/actions";
import { messageOf, say } from "../state/data";

const POLL_MS = 700;

export function PacsItems() {
  const key = useView((now) => (now.reading?.kind === "volume" ? now.reading.key : null));
  const [place, setPlace] = useState<PacsPlace | null>(null);
  const [sending, setSending] = useState(false);
  useEffect(() => {
    setPlace(null);
    if (!key) return;
    let gone = false;
    api.pacsPlace(key).then(
      (found) => !gone && setPlace(found),
      () => undefined, // who may not read has no button
    );
    return () => {
      gone = true;
    };
  }, [key]);
  if (!key || !place?.known) return null;
  const send = () => {
    setSending(true);
    sendAndWait(key)
      .then(() => api.pacsPlace(key))
      .then((found) => {
        setPlace(found);
        say(`Results are in the PACS (${found.server}).`);
      })
      .catch((cause: unknown) => say(messageOf(cause), "error"))
      .finally(() => setSending(false));
  };
  return (
    <>
      <hr />
      {place.viewer && (
        <a href={place.viewer} target="_blank" rel="noopener noreferrer">
          Open in the PACS viewer
        </a>
      )}
      <button type="button" disabled={sending} onClick={send}>
        {sending ? "Sending results …" : place.sent.length ? "Results are in the PACS; send what is new" : "Send results to the PACS"}
      </button>
    </>
  );
}

async function sendAndWait(key: string): Promise<void> {
  let job = await api.sendResults(key);
  while (job.state === "queued" || job.state === "running") {
    await new Promise((done) => setTimeout(done, POLL_MS));
    job = { ...(await api.job(job.id)), id: job.id };
  }
  if (job.state === "failed") throw new Error(job.error ?? "The results could not be sent.");
}
