/** Which attempt is shown. */
import { route, setQuery } from "../route";
import type { Row } from "../types";

/** The chosen attempt; nothing where the newest is meant. */
export function chosenAttempt(): number | undefined {
  const number = Number(route.value.query.att);
  return Number.isInteger(number) && number > 0 ? number : undefined;
}

/** A field for the attempt. */
export function AttemptField({ row }: { row: Row | undefined }) {
  const most = row?.attempt ?? undefined;
  const chosen = chosenAttempt() ?? most;
  if (most === undefined || most < 1) return null;
  const numbers = Array.from({ length: Math.min(most, 500) }, (_, at) => most - at);
  return (
    <label>
      attempt{" "}
      <select value={String(chosen)} onChange={(event) => setQuery({ att: event.currentTarget.value, offset: undefined, line: undefined })}>
        {numbers.map((it) => (
          <option value={String(it)}>{it}</option>
        ))}
      </select>
    </label>
  );
}
