/** The exact agreement map: which cells of two slices differ, and by how much. It is the distance itself, laid out. */

import { useEffect, useRef } from "preact/hooks";
import type { CellGrid, Match } from "../api/types";
import type { LaneName } from "../state/data";
import type { Cell } from "../state/view";
import { fieldBox, type Frame, type Plane } from "../reading/plane";

/** Disagreement by cell, 0 to 1: of the panel that the lane compares, or the larger of both. */
export function disagreement(match: Match, lane: LaneName): CellGrid | null {
  const panels: ("normal" | "abnormal")[] =
    lane === "both" ? ["normal", "abnormal"] : [lane === "abnormal" ? "abnormal" : "normal"];
  const grids = panels.map((panel) => match.agreement[panel]).filter((grid): grid is CellGrid => Boolean(grid));
  const first = grids[0] ?? match.agreement.abnormal ?? match.agreement.normal;
  if (!first) return null;
  return first.map((row, r) =>
    row.map((_, c) => 1 - Math.min(...(grids.length ? grids : [first]).map((grid) => grid[r]![c]!))),
  );
}

const EQUAL = 0.005;

/** In words, for those who do not see it. */
export function agreementWords(grid: CellGrid): string {
  const cells = grid.flat();
  const equal = cells.filter((value) => value < EQUAL).length;
  return `${equal} of ${cells.length} cells equal`;
}

/** How many cells of a region are equal; no more than the distance where a match was moved or nothing is marked. */
export function cellWords(match: Match, lane: LaneName, region: readonly Cell[]): string {
  const grid = match.shift ? null : disagreement(match, lane);
  if (!grid || !region.length) return `not rated, distance ${match.distance.toFixed(2)}`;
  const equal = region.filter(([row, column]) => (grid[row]?.[column] ?? 1) < EQUAL).length;
  return `${equal} of ${region.length} marked cells equal`;
}

/** Teal where the slices agree, a white veil the more they differ; no class of lesion has these colours. */
export function AgreementMap({ grid }: { grid: CellGrid }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [rows, columns] = [grid.length, grid[0]?.length ?? 0];
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const pixels = context.createImageData(columns, rows);
    grid.flat().forEach((value, i) => {
      const colour = value < EQUAL ? [64, 200, 180, 70] : [255, 255, 255, Math.round(20 + 170 * value)];
      pixels.data.set(colour, i * 4);
    });
    context.putImageData(pixels, 0, 0);
  }, [grid, rows, columns]);
  return <canvas class="agreement" ref={canvas} width={columns} height={rows} aria-hidden="true" />;
}

/** The same map over the query. */
export function AgreementLayer({
  pointed,
  frame,
  plane,
}: {
  pointed: { lane: LaneName; match: Match };
  frame: Frame;
  plane: Plane;
}) {
  const grid = disagreement(pointed.match, pointed.lane);
  if (!grid || pointed.match.shift) return null;
  const box = fieldBox(frame, plane);
  return (
    <div
      class="agreement-layer"
      style={{ left: `${box.left}px`, top: `${box.top}px`, width: `${box.width}px`, height: `${box.height}px` }}
    >
      <AgreementMap grid={grid} />
    </div>
  );
}
