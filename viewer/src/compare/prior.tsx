/** Over time: an earlier study beside the present one, brought onto it, with what has changed in words and maps. */

import { useEffect, useState } from "preact/hooks";
import * as api from "../api/client";
import { titleOf, type ChangeInfo, type VolumeSummary } from "../api/types";
import { closePrior, set, setPrior, showPrior, useView } from "../state/actions";
import { messageOf, useData, volumeOf } from "../state/data";
import type { Prior, SliceRef } from "../state/view";
import { ChannelStrip } from "../reading/channel-strip";
import { Pane } from "../reading/pane";
import { Picture } from "../reading/picture";
import { planeOf, type Frame } from "../reading/plane";
import { SliceLayers } from "../reading/slice-layers";
import { SliceRail } from "../reading/slice-rail";
import { planeFor, sliceSource } from "../reading/sources";
import { VolumeLayer } from "../reading/volume-layer";
import { signalWindow } from "../reading/windows";
import { Segmented, Slider } from "../shell/controls";
import { data } from "../state/data";

/** The patient's studies in the order of time; the one that is read stands out, the others can be put beside it. */
export function TimeLine() {
  const reading = useView((view) => view.reading);
  const prior = useView((view) => view.prior?.key);
  const volume = useData((now) => volumeOf(now, reading));
  const [studies, setStudies] = useState<VolumeSummary[]>([]);
  const patient = reading?.kind === "volume" ? volume?.patient_key : undefined;
  const version = useData((now) => now.archive?.version);
  useEffect(() => setStudies([]), [patient]);
  // Asked again whenever the archive changes: an older study may come in while this one is open.
  useEffect(() => {
    if (!patient) return;
    let gone = false;
    api.volumes({ text: patient, source: "", tag: "", lesion: "" }, 0, 50).then(
      ({ items }) => !gone && setStudies(items.filter((item) => item.patient_key === patient).sort(inTime)),
      () => undefined,
    );
    return () => {
      gone = true;
    };
  }, [patient, version]);
  if (studies.length < 2) return null;
  return (
    <ol class="time-line" aria-label="Studies of this patient">
      {studies.map(({ volume_key, study_date }) => (
        <li key={volume_key}>
          <button
            type="button"
            aria-current={volume_key === reading?.key}
            aria-pressed={volume_key === prior}
            disabled={volume_key === reading?.key}
            title={volume_key === reading?.key ? "The study that is read" : `Put ${volume_key} beside the study that is read`}
            onClick={() => showPrior(volume_key)}
          >
            {study_date ?? volume_key.slice((patient ?? "").length).replace(/^[-_]/, "") ?? volume_key}
          </button>
        </li>
      ))}
    </ol>
  );
}

const inTime = (one: VolumeSummary, other: VolumeSummary): number =>
  (one.study_date ?? one.volume_key).localeCompare(other.study_date ?? other.volume_key);

const POLL_MS = 1500;

/** What has changed, once the server has compared the two; until then how far it has come. */
function useChange(key: string, old: string): { change: ChangeInfo | null; words: string } {
  const [state, setState] = useState<{ change: ChangeInfo | null; words: string }>({ change: null, words: "" });
  useEffect(() => {
    let gone = false;
    setState({ change: null, words: "Comparing the two studies…" });
    const follow = async (): Promise<void> => {
      while (!gone) {
        const answer = await api.change(key, old);
        if (gone) return;
        if ("classes" in answer) {
          setState({ change: answer, words: "" });
          return;
        }
        if (answer.state === "failed") throw new Error(answer.error ?? "The studies could not be compared.");
        setState({ change: null, words: `Comparing the two studies: ${answer.message || answer.state}…` });
        await new Promise((done) => setTimeout(done, POLL_MS));
      }
    };
    follow().catch((cause: unknown) => !gone && setState({ change: null, words: messageOf(cause) }));
    return () => {
      gone = true;
    };
  }, [key, old]);
  return state;
}

export function PriorView({ reading, prior }: { reading: SliceRef; prior: Prior }) {
  const { change, words } = useChange(reading.key, prior.key);
  const volumes = useData((now) => now.volumes);
  const now = { ...data.get(), volumes };
  const plane = planeFor(now, reading);
  return (
    <section class="compare" aria-label="Over time">
      <PriorBar prior={prior} />
      {change ? <ChangeWords change={change} /> : <p class="trust safety change-words" role="status">{words}</p>}
      <div class="panes compared">
        <ChannelStrip source={sliceSource(reading, plane)} slice={reading} />
        <PriorPane reading={reading} prior={prior} change={change} />
        <CurrentPane reading={reading} prior={prior} change={change} />
      </div>
      <SliceRail />
    </section>
  );
}

interface SideProps {
  reading: SliceRef;
  prior: Prior;
  change: ChangeInfo | null;
}

/** The earlier study, moved onto the present one: same grid, same slices. */
function PriorPane({ reading, prior, change }: SideProps) {
  const { channel, windows } = useView((view) => view);
  const volume = useData((now) => volumeOf(now, reading));
  const earlier = useData((now) => volumeOf(now, { kind: "volume", key: prior.key, z: 0 }));
  const plane = planeFor(data.get(), reading);
  const depth = volume?.z_mm[volume.z_indices.indexOf(reading.z)];
  const url = change?.channel_urls[channel];
  return (
    <Pane title={`Prior ${prior.key}`} note={<span>{titleOf(channel)}, moved onto the present study</span>} plane={plane} cursor={{ depth, url }}>
      {(frame) => (
        <>
          {change && volume && url && (
            <VolumeLayer
              depth={depth}
              volume={{ ...volume, channel_urls: change.channel_urls }}
              channel={channel}
              plane={plane}
              frame={frame}
              window={signalWindow(earlier ?? volume, windows[channel], channel)}
            />
          )}
          {change && prior.show === "lesions" && <MapLayer reading={reading} prior={prior} change={change} kind="old" frame={frame} />}
        </>
      )}
    </Pane>
  );
}

function CurrentPane({ reading, prior, change }: SideProps) {
  const channel = useView((view) => view.channel);
  const volume = useData((now) => volumeOf(now, reading));
  const plane = planeFor(data.get(), reading);
  const depth = volume?.z_mm[volume.z_indices.indexOf(reading.z)];
  const kind = prior.show === "lesions" ? "new" : prior.show;
  return (
    <Pane
      title={`Present ${reading.key}`}
      note={<span>{titleOf(channel)}</span>}
      plane={plane}
      cursor={{ depth, url: volume?.channel_urls[channel] }}
    >
      {(frame) => (
        <>
          <SliceLayers shown={{ slice: reading, plane, volume, name: "Present" }} frame={frame} labels="none" />
          {change && kind !== "none" && <MapLayer reading={reading} prior={prior} change={change} kind={kind} frame={frame} />}
        </>
      )}
    </Pane>
  );
}

const ALTS = {
  old: "Predicted lesion before",
  new: "Predicted lesion now",
  abnormal: "Cells whose lesion code changed",
  normal: "Cells whose anatomy code changed",
  subtraction: "Brighter (violet) or darker (green) than before",
};

function MapLayer({ reading, prior, change, kind, frame }: SideProps & { kind: keyof typeof ALTS; frame: Frame }) {
  const { channel, opacity } = useView((view) => view);
  if (!change || !change.slices.some(({ z }) => z === reading.z)) return null;
  const plane = planeFor(data.get(), reading);
  const own = planeOf(change.geometry);
  // The comparison is cut around the brain that both studies show: its field may lie a little beside the volume's own.
  const shifted: Frame = {
    ...frame,
    pan: [frame.pan[0] + plane.centre[0] - own.centre[0], frame.pan[1] + plane.centre[1] - own.centre[1]],
  };
  return (
    <Picture
      url={api.changeUrl(reading.key, prior.key, reading.z, kind, channel)}
      frame={shifted}
      plane={own}
      alt={ALTS[kind]}
      opacity={kind === "subtraction" ? 0.85 : opacity}
    />
  );
}

const RANO = { none: "", new: "new", gone: "gone", increased: "increased", stable: "stable", decreased: "decreased" };

/** Volumes before and now, with their change; the words are RANO's thresholds for volumes. */
function ChangeWords({ change }: { change: ChangeInfo }) {
  return (
    <div class="change-words" role="status">
      <b>{change.has_changed ? "Changed" : "No change beyond what a second scan would show"}</b>
      <ul aria-label="Predicted volumes">
        {change.classes.map(({ name, old_ml, new_ml, percent, rano }) => (
          <li key={name}>
            {name} <b>{`${old_ml.toFixed(1)} → ${new_ml.toFixed(1)} ml`}</b>{" "}
            {percent !== null && `${percent > 0 ? "+" : ""}${percent.toFixed(0)} %`} <i>{RANO[rano]}</i>
          </li>
        ))}
      </ul>
      <span class="hint safety">
        Predicted volumes, RANO’s thresholds; no diagnosis. The prior was turned by {change.rotation_deg.toFixed(1)}° and moved by{" "}
        {change.shift_mm.toFixed(0)} mm.
      </span>
    </div>
  );
}

function PriorBar({ prior }: { prior: Prior }) {
  const opacity = useView((view) => view.opacity);
  return (
    <div class="bar">
      <button type="button" class="back" onClick={closePrior} title="Back to the present study (Esc)">
        ‹ Present study
      </button>
      <TimeLine />
      <Segmented
        label="What to show"
        choices={[
          ["none", "Images"],
          ["lesions", "Lesions", "Predicted lesions, then and now"],
          ["abnormal", "Lesion code", "Cells whose lesion code, and what it stands for, changed"],
          ["normal", "Anatomy code", "Cells whose anatomy code, and what it stands for, changed"],
          ["subtraction", "Subtraction", "Plain difference of the images"],
        ]}
        value={prior.show}
        onChange={(show) => setPrior({ show })}
      />
      <Slider label="Opacity of the overlay" value={opacity} min={0.1} max={1} step={0.05} onChange={(value) => set("opacity", value)} />
    </div>
  );
}
