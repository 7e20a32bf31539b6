/** Short messages at the foot of the page, read out by screen readers. */

import { dismiss, useData } from "../state/data";

export function Notices() {
  const notices = useData((now) => now.notices);
  return (
    <div class="notices" aria-live="polite">
      {notices.map(({ id, kind, text }) => (
        <p key={id} class={kind} role={kind === "error" ? "alert" : undefined}>
          {text}
          <button type="button" class="quiet" aria-label="Dismiss" onClick={() => dismiss(id)}>
            ✕
          </button>
        </p>
      ))}
    </div>
  );
}
