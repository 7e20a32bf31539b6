/** Drawing a region: the grid of cells over the patient, and the tool that marks some of them. */

import { useRef, useState } from "preact/hooks";
import { setAsk, useView, view } from "../state/actions";
import { useData } from "../state/data";
import type { Cell } from "../state/view";
import type { Tool } from "../reading/pointer";
import { fieldBox, toFraction, type Frame, type Place, type Plane } from "../reading/plane";

type Corner = readonly [row: number, column: number];

function cellAt(plane: Plane, place: Place, [rows, columns]: readonly [number, number]): Corner {
  const [x, y] = toFraction(plane, place);
  const within = (share: number, count: number) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
  return [within(y, rows), within(x, columns)];
}

/** All cells between two corners. */
function rectangle(one: Corner, other: Corner): Cell[] {
  const cells: Cell[] = [];
  for (let row = Math.min(one[0], other[0]); row <= Math.max(one[0], other[0]); row++) {
    for (let column = Math.min(one[1], other[1]); column <= Math.max(one[1], other[1]); column++)
      cells.push([row, column]);
  }
  return cells;
}

const joined = (one: readonly Cell[], other: readonly Cell[]): Cell[] => [
  ...new Map([...one, ...other].map((cell) => [cell.join(), cell])).values(),
];

/** Drag marks a rectangle of cells; with Ctrl it is added to what is marked already. */
export function useRegionTool(plane: Plane): Tool {
  const grid = useData((now) => now.archive?.model.grid) ?? [8, 8];
  const start = useRef<Corner>([0, 0]);
  const before = useRef<readonly Cell[]>([]);
  const mark = (place: Place) =>
    setAsk({ region: joined(before.current, rectangle(start.current, cellAt(plane, place, grid))) });
  return {
    cursor: "cell",
    down(place, event) {
      start.current = cellAt(plane, place, grid);
      before.current = event.ctrlKey || event.metaKey ? view.get().ask.region : [];
      mark(place);
    },
    move: mark,
    up: () => undefined,
  };
}

export function RegionLayer({ frame, plane }: { frame: Frame; plane: Plane }) {
  const region = useView((now) => now.ask.region);
  const [rows, columns] = useData((now) => now.archive?.model.grid) ?? [8, 8];
  const box = fieldBox(frame, plane);
  const marked = new Set(region.map((cell) => cell.join()));
  const [pattern] = useState(() => `grid-${Math.random().toString(36).slice(2)}`);
  return (
    <svg
      class="region"
      style={{ left: `${box.left}px`, top: `${box.top}px` }}
      width={box.width}
      height={box.height}
      viewBox={`0 0 ${columns} ${rows}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`${region.length} of ${rows * columns} cells marked`}
    >
      <defs>
        <pattern id={pattern} width="1" height="1" patternUnits="userSpaceOnUse">
          <path d="M1 0V1H0" />
        </pattern>
      </defs>
      <rect width={columns} height={rows} fill={`url(#${pattern})`} />
      {region.map(([row, column]) => (
        <rect key={`${row}-${column}`} class="marked" x={column} y={row} width="1" height="1" />
      ))}
      <path class="outline" d={outline(region, marked)} />
    </svg>
  );
}

/** The edges of marked cells that no other marked cell shares. */
function outline(region: readonly Cell[], marked: ReadonlySet<string>): string {
  const edges: string[] = [];
  for (const [row, column] of region) {
    if (!marked.has([row - 1, column].join())) edges.push(`M${column} ${row}h1`);
    if (!marked.has([row + 1, column].join())) edges.push(`M${column} ${row + 1}h1`);
    if (!marked.has([row, column - 1].join())) edges.push(`M${column} ${row}v1`);
    if (!marked.has([row, column + 1].join())) edges.push(`M${column + 1} ${row}v1`);
  }
  return edges.join("");
}
