/**
 * NiiVue as a plain painter of slices: it is told which volume, plane and window to show, and handles no input.
 *
 * Loaded on first use only, so that the page is there before it is. Knows NiiVue and frames, nothing about state.
 */

import type { NVImage, Niivue } from "@niivue/niivue";
import type { Range } from "../api/types";
import { toWorld, type Axis, type Frame, type Plane } from "./plane";

const KEPT = 10;
const images = new Map<string, Promise<NVImage>>();

export interface Shown {
  frame: Frame;
  plane: Plane;
  /** Where the plane cuts, in the scanner's millimetres along its normal. */
  depth: number;
  /** Black and white in the file's own values; the file's usual range without it. */
  window: Range | null;
}

/** Fetch a volume; the last few are kept. */
function image(url: string): Promise<NVImage> {
  const kept = images.get(url);
  images.delete(url);
  const promise =
    kept ?? import("@niivue/niivue").then(({ NVImage }) => NVImage.loadFromUrl({ url, name: "volume.nii.gz" }));
  images.set(url, promise);
  promise.catch(() => images.delete(url));
  for (const old of [...images.keys()].slice(0, -KEPT)) images.delete(old);
  return promise;
}

/** The signal of a volume that is loaded, at a point of the scanner's world; null where there is none. */
export async function signalAt(url: string, point: readonly [number, number, number]): Promise<number | null> {
  const volume = await images.get(url)?.catch(() => null);
  if (!volume?.dimsRAS) return null;
  const [x, y, z] = volume.mm2vox([...point]) as unknown as [number, number, number];
  const inside = [x, y, z].every((at, i) => at >= 0 && at < volume.dimsRAS![i + 1]!);
  return inside ? volume.getValue(x, y, z) : null;
}

const SWIZZLE: Record<Axis, number> = { axial: 0, coronal: 1, sagittal: 2 };

export class SlicePainter {
  private url = "";
  private usual: Range = [0, 1];

  private constructor(
    private readonly niivue: Niivue,
    private readonly canvas: HTMLCanvasElement,
    private readonly axis: Axis,
  ) {}

  static async on(canvas: HTMLCanvasElement, axis: Axis = "axial"): Promise<SlicePainter> {
    const { Niivue, SLICE_TYPE } = await import("@niivue/niivue");
    const niivue = new Niivue({
      interactive: false,
      isResizeCanvas: false,
      isSliceMM: true,
      isRadiologicalConvention: true,
      sliceType: { axial: SLICE_TYPE.AXIAL, coronal: SLICE_TYPE.CORONAL, sagittal: SLICE_TYPE.SAGITTAL }[axis],
      sagittalNoseLeft: true,
      crosshairWidth: 0,
      isOrientationTextVisible: false,
      isColorbar: false,
      backColor: [0, 0, 0, 1],
      loadingText: "",
      logLevel: "silent",
    });
    await niivue.attachToCanvas(canvas, false);
    return new SlicePainter(niivue, canvas, axis);
  }

  /** Load a volume; false when another one was asked for meanwhile. */
  async load(url: string): Promise<boolean> {
    this.url = url;
    const volume = await image(url);
    if (this.url !== url) return false;
    for (const old of [...this.niivue.volumes]) this.niivue.removeVolume(old);
    this.usual = [volume.robust_min ?? volume.cal_min ?? 0, volume.robust_max ?? volume.cal_max ?? 1];
    this.niivue.addVolume(volume);
    return true;
  }

  paint({ frame, plane, depth, window: range }: Shown): void {
    const volume = this.niivue.volumes[0];
    if (!volume || frame.width < 2 || frame.height < 2) return;
    this.resize(frame);
    const [low, high] = range ?? this.usual;
    if (volume.cal_min !== low || volume.cal_max !== high) {
      volume.cal_min = low;
      volume.cal_max = high;
      this.niivue.updateGLVolume();
    }
    const centre = [plane.centre[0] + frame.pan[0], plane.centre[1] + frame.pan[1]] as const;
    this.niivue.scene.crosshairPos = this.niivue.mm2frac(toWorld(plane, frame.pan, depth));
    this.niivue.scene.pan2Dxyzmm = this.panAndZoom(frame, centre);
    this.niivue.drawScene();
  }

  /**
   * NiiVue fits the volume into the canvas, takes `pan` away and divides by `zoom`. Solved here for the centre and the
   * scale that the frame asks for.
   */
  private panAndZoom(frame: Frame, centre: readonly [number, number]): [number, number, number, number] {
    const { mnMM, mxMM, fovMM } = this.niivue.screenFieldOfViewExtendedMM(SWIZZLE[this.axis]);
    const fitted = Math.min(frame.width / fovMM[0], frame.height / fovMM[1]);
    const zoom = frame.scale / fitted;
    const middle = [(mnMM[0] + mxMM[0]) / 2, (mnMM[1] + mxMM[1]) / 2] as const;
    const [u, v] = [middle[0] - centre[0] * zoom, middle[1] - centre[1] * zoom];
    if (this.axis === "axial") return [u, v, 0, zoom];
    return this.axis === "coronal" ? [u, 0, v, zoom] : [0, u, v, zoom];
  }

  private resize(frame: Frame): void {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(frame.width * ratio), Math.round(frame.height * ratio)];
    if (this.canvas.width === width && this.canvas.height === height) return;
    this.canvas.width = width;
    this.canvas.height = height;
  }

  /** Give the graphics memory back. */
  close(): void {
    this.niivue.cleanup();
    this.niivue.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }
}
