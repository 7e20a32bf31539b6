/** A picture of a slice, laid exactly where its field lies in the pane. Knows frames and addresses. */

import { useLoaded } from "./hooks";
import { fieldBox, type Frame, type Plane } from "./plane";

interface PictureProps {
  url: string | null;
  frame: Frame;
  plane: Plane;
  alt: string;
  opacity?: number;
}

export function Picture({ url, frame, plane, alt, opacity = 1 }: PictureProps) {
  const { shown } = useLoaded(url);
  if (!shown) return null;
  const box = fieldBox(frame, plane);
  return (
    <img
      class="picture"
      src={shown}
      alt={alt}
      draggable={false}
      style={{
        left: `${box.left}px`,
        top: `${box.top}px`,
        width: `${box.width}px`,
        height: `${box.height}px`,
        opacity,
      }}
    />
  );
}

/** How many pixels high a picture is worth asking for: a few steps, so that resizing hits the cache. */
export function pictureHeight(frame: Frame, plane: Plane): number {
  const wanted = plane.field[0] * frame.scale * Math.min(window.devicePixelRatio || 1, 2);
  return [256, 512, 1024].find((height) => height >= wanted * 0.8) ?? 1024;
}
