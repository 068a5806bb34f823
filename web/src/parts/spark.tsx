/** The last day of a job as a row of cells. */
import { palette } from "../palette";
import { dark } from "../theme";
import { duration } from "../words";

/** Cells as pairs of state and milliseconds; equal neighbours are one rectangle. */
export function Spark({ cells }: { cells: [number, number][] }) {
  const total = cells.reduce((sum, [, millis]) => sum + Math.max(0, millis), 0);
  if (total <= 0) return null;
  const sums = new Map<number, number>();
  const parts: { state: number; x: number; width: number }[] = [];
  let x = 0;
  for (const [state, millis] of cells) {
    const width = (Math.max(0, millis) / total) * 96;
    const last = parts.at(-1);
    if (last?.state === state) last.width += width;
    else parts.push({ state, x, width });
    x += width;
    sums.set(state, (sums.get(state) ?? 0) + millis);
  }
  const words = [...sums].sort((one, other) => other[1] - one[1]).map(([state, millis]) => `${palette.value[state]?.word ?? "unknown"} ${duration(millis)}`);
  return (
    <svg class="spark" viewBox="0 0 96 14" width="96" height="14" role="img" aria-label={words.slice(0, 3).join(", ")}>
      <title>{words.join(", ")}</title>
      {parts.map((part) => {
        const look = palette.value[part.state];
        if (!look || look.name === "nothing") return null;
        const bad = look.name === "failed" || look.name === "stalled";
        return <rect x={part.x} y={bad ? 0 : 2} width={Math.max(bad ? 2 : 0.5, part.width)} height={bad ? 14 : 10} fill={`#${dark.value ? look.dark : look.light}`} />;
      })}
    </svg>
  );
}
