/** Controls that the whole page shares: a row of choices, a labelled select, a slider. They keep no state. */

import type { ComponentChildren } from "preact";

interface SegmentedProps<T extends string> {
  label: string;
  choices: readonly (readonly [value: T, title: string, hint?: string])[];
  value: T;
  onChange: (value: T) => void;
}

/** A few choices of which one holds; ← and → move between them, ↑ and ↓ stay with the slices. */
export function Segmented<T extends string>({ label, choices, value, onChange }: SegmentedProps<T>) {
  const move = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const place = choices.findIndex(([choice]) => choice === value);
    const next = (place + step + choices.length) % choices.length;
    onChange(choices[next]![0]);
    const group = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => group.querySelectorAll<HTMLElement>("[role=radio]")[next]?.focus());
  };
  return (
    <div class="segmented" role="radiogroup" aria-label={label} onKeyDown={move}>
      {choices.map(([choice, title, hint]) => (
        <button
          type="button"
          role="radio"
          key={choice}
          aria-checked={choice === value}
          tabIndex={choice === value ? 0 : -1}
          title={hint}
          onClick={() => onChange(choice)}
        >
          {title}
        </button>
      ))}
    </div>
  );
}

interface SelectProps {
  label: string;
  hint?: string;
  /** Whether the label is only read out. */
  bare?: boolean;
  value: string;
  choices: readonly (readonly [value: string, title: string, disabled?: boolean])[];
  onChange: (value: string) => void;
}

export function Select({ label, hint, bare, value, choices, onChange }: SelectProps) {
  return (
    <label class="select" title={hint}>
      <span class={bare ? "unseen" : undefined}>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {choices.map(([choice, title, disabled]) => (
          <option key={choice} value={choice} disabled={disabled}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}

interface SliderProps {
  label: string;
  value: number;
  min: number;
  max: number;
  step: number;
  words?: string;
  disabled?: boolean;
  onChange: (value: number) => void;
  children?: ComponentChildren;
}

export function Slider({ label, value, min, max, step, words, disabled, onChange }: SliderProps) {
  return (
    <input
      type="range"
      aria-label={label}
      title={label}
      aria-valuetext={words}
      {...{ min, max, step, value, disabled }}
      onInput={(event) => onChange(Number(event.currentTarget.value))}
    />
  );
}

export function Toggle({
  label,
  on,
  hint,
  disabled,
  onChange,
}: {
  label: string;
  on: boolean;
  hint?: string;
  disabled?: boolean;
  onChange: (on: boolean) => void;
}) {
  return (
    <button type="button" class="toggle" aria-pressed={on} disabled={disabled} title={hint} onClick={() => onChange(!on)}>
      {label}
    </button>
  );
}
