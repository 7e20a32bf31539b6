/** The four channels of the slice as small pictures; the chosen one is large beside them. */

import { titleOf } from "../api/types";
import { showChannel, useView } from "../state/actions";
import { useData } from "../state/data";
import type { SliceRef } from "../state/view";
import { useLoaded } from "./hooks";
import { sliceSource, type Source } from "./sources";

/** Of the slice that is read, or of the one that is given. */
export function ChannelStrip({ source, slice }: { source: Source; slice?: SliceRef }) {
  const read = useView((view) => view.reading);
  const reading = slice ?? read;
  const channel = useView((view) => view.channel);
  const channels = useData((now) => now.archive?.channels) ?? [];
  if (channels.length < 2) return <div class="no-strip" />;
  return (
    <div class="strip" role="radiogroup" aria-label="Channel">
      {channels.map((name, i) => (
        <button
          type="button"
          key={name}
          role="radio"
          aria-checked={name === channel}
          tabIndex={name === channel ? 0 : -1}
          aria-keyshortcuts={String(i + 1)}
          title={`${titleOf(name)} (${i + 1})`}
          onClick={() => showChannel(name)}
        >
          {reading && <StripPicture url={sliceSource(reading, source.plane).picture("image", name, undefined, 160)} />}
          <span>{titleOf(name)}</span>
        </button>
      ))}
    </div>
  );
}

function StripPicture({ url }: { url: string | null }) {
  const { shown } = useLoaded(url);
  return shown ? <img src={shown} alt="" draggable={false} /> : null;
}
