/** The four channels of the slice as small pictures; the chosen one is large beside them. */

import { CHANNELS, CHANNEL_TITLES } from "../api/types";
import { showChannel, useView } from "../state/actions";
import { useLoaded } from "./hooks";
import { sliceSource, type Source } from "./sources";

export function ChannelStrip({ source }: { source: Source }) {
  const reading = useView((view) => view.reading);
  const channel = useView((view) => view.channel);
  return (
    <div class="strip" role="radiogroup" aria-label="Channel">
      {CHANNELS.map((name, i) => (
        <button
          type="button"
          key={name}
          role="radio"
          aria-checked={name === channel}
          aria-keyshortcuts={String(i + 1)}
          title={`${CHANNEL_TITLES[name]} (${i + 1})`}
          onClick={() => showChannel(name)}
        >
          {reading && <StripPicture url={sliceSource(reading, source.plane).picture("image", name, undefined, 160)} />}
          <span>{CHANNEL_TITLES[name]}</span>
        </button>
      ))}
    </div>
  );
}

function StripPicture({ url }: { url: string | null }) {
  const { shown } = useLoaded(url);
  return shown ? <img src={shown} alt="" draggable={false} /> : null;
}
