/** Over time: an earlier study beside the present one, brought onto it, with what has changed in words and maps. */

import { useEffect, useState } from "preact/hooks";
import * as api from "../api/client";
import { titleOf, type ChangeInfo, type VolumeSummary } from "../api/types";
import { closePrior, set, setPrior, showPrior, useView } from "../state/actions";
import { messageOf, useData, volumeOf } from "../state/data";
import type { Prior, SliceRef } from "../state/view";
import { ChannelStrip } from "../reading/channel-strip";
import { Brightness } from "../reading/changed-pane";
import { squareCentimetres } from "../reading/lesion-facts";
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
  // Whichever is chosen, the later study is the present one.
  const put = (key: string) => {
    const place = studies.findIndex(({ volume_key }) => volume_key === key);
    const later = place > studies.findIndex(({ volume_key }) => volume_key === reading?.key) ? studies[place] : undefined;
    if (later && reading) showPrior(reading.key, { kind: "volume", key, z: later.representative_z });
    else showPrior(key);
  };
  return (
    <ol class="time-line" aria-label="Studies of this patient">
      {studies.map(({ volume_key, study_date }) => (
        <li key={volume_key}>
          <button
            type="button"
            aria-current={volume_key === reading?.key}
            aria-pressed={volume_key === prior}
            disabled={volume_key === reading?.key}
            title={volume_key === reading?.key ? "The study that is read" : `Put ${volume_key} beside the study that is read; the earlier of both is the prior`}
            onClick={() => put(volume_key)}
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
    <Pane
      title={`Prior ${earlier?.study_date ?? prior.key}`}
      note={<span>{titleOf(channel)}, moved onto the present</span>}
      plane={plane}
      cursor={{ depth, url }}
    >
      {(frame) => (
        <>
          {change && <MapLayer reading={reading} prior={prior} change={change} kind="image" frame={frame} />}
          {change && !change.slices.some(({ z }) => z === reading.z) && (
            <p class="pane-words">the studies share no brain at this height</p>
          )}
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
          {change && prior.show === "lesions" && (
            <>
              <MapLayer reading={reading} prior={prior} change={change} kind="old" frame={frame} />
              <MapLegend reading={reading} change={change} kind="old" />
            </>
          )}
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
      title={`Present ${volume?.study_date ?? reading.key}`}
      note={<span>{[titleOf(channel), volume?.patient_key].filter(Boolean).join(" · ")}</span>}
      plane={plane}
      cursor={{ depth, url: volume?.channel_urls[channel] }}
    >
      {(frame) => (
        <>
          <SliceLayers shown={{ slice: reading, plane, volume, name: "Present" }} frame={frame} labels="none" />
          {change && kind !== "none" && (
            <>
              <MapLayer reading={reading} prior={prior} change={change} kind={kind} frame={frame} />
              <MapLegend reading={reading} change={change} kind={kind} />
            </>
          )}
        </>
      )}
    </Pane>
  );
}

const ALTS = {
  image: "Prior",
  old: "Predicted lesion before",
  new: "Predicted lesion now",
  abnormal: "Cells whose lesion code changed",
  normal: "Cells whose anatomy code changed",
  subtraction: "Brighter (violet) or darker (green) than before",
};

const OWN_OPACITY: Partial<Record<keyof typeof ALTS, number>> = { image: 1, subtraction: 0.85 };

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
      opacity={OWN_OPACITY[kind] ?? opacity}
    />
  );
}

/** What the colours of a map mean, and how much lesion the slice shows. */
function MapLegend({ reading, change, kind }: { reading: SliceRef; change: ChangeInfo; kind: keyof typeof ALTS }) {
  const classes = useData((now) => now.archive?.lesion_classes) ?? [];
  const slice = change.slices.find(({ z }) => z === reading.z);
  if (kind === "subtraction") return (
      <div class="areas">
        <Brightness than="than before" />
      </div>
    );
  if (kind === "abnormal" || kind === "normal") {
    return (
      <ul class="areas areas-list" aria-label="Changed cells">
        <li>
          <i class="changed-cells" aria-hidden="true" />
          {kind === "abnormal" ? "lesion code changed" : "anatomy code changed"}
        </li>
      </ul>
    );
  }
  return (
    <ul class="areas areas-list" aria-label={ALTS[kind]}>
      <li class="areas-source">
        predicted {slice && <b>{squareCentimetres(kind === "old" ? slice.old_mm2 : slice.new_mm2)}</b>}
      </li>
      {classes
        .filter(({ id }) => id > 0)
        .map(({ id, name, colour }) => (
          <li key={id}>
            <i style={{ background: colour }} aria-hidden="true" />
            {name}
          </li>
        ))}
    </ul>
  );
}

const percentWords = (percent: number): string => {
  const whole = Math.round(Math.abs(percent));
  return `${whole === 0 ? "±" : percent > 0 ? "+" : "−"}${whole} %`;
};

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
            {percent !== null && percentWords(percent)} <i>{RANO[rano]}</i>
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
