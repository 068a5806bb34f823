/** What the colours, hatches and signs of a strip mean: only those that are in it. */
import { useMemo } from "preact/hooks";
import { palette, stateOf } from "../palette";
import { dark } from "../theme";
import type { Model } from "./model";

const SIGNS: [string, string, string][] = [
  ["failed", "✕", "failure"],
  ["attempt", "▾", "attempt began"],
  ["saved", "◇", "checkpoint"],
  ["swapped", "⇄", "pod on another node"],
];

/** The swatch of a state. */
export function Swatch({ state }: { state: string }) {
  const look = stateOf(state);
  const hatched = ["stalled", "redoing", "notObserved", "lost"].includes(state);
  return <span class={hatched ? "swatch hatched" : "swatch"} style={{ "--swatch": `#${dark.value ? look.dark : look.light}` }} aria-hidden="true" />;
}

/** The legend of a strip. */
export function Legend({ model }: { model: Model }) {
  // Once for each model: the panel is rendered with every move of the window.
  const { seen, kinds } = useMemo(() => {
    const seen = new Set<number>(model.job.states);
    for (const row of model.rows) for (const state of row.states) seen.add(state);
    return { seen, kinds: new Set<string>(model.marks.map((mark) => mark.kind)) };
  }, [model]);
  return (
    <ul class="legend">
      {palette.value.map((look, number) =>
        seen.has(number) && look.name !== "nothing" ? (
          <li>
            <Swatch state={look.name} /> {look.word}
          </li>
        ) : null,
      )}
      {SIGNS.filter(([kind]) => kinds.has(kind)).map(([kind, sign, word]) => (
        <li>
          <span class={kind === "failed" ? "sign tone-failed" : "sign"} aria-hidden="true">
            {sign}
          </span>{" "}
          {word}
        </li>
      ))}
    </ul>
  );
}
