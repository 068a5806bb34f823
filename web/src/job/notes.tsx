/** Warnings about the stored spec, and notes about the data. */
import { Sentence } from "../parts/basics";
import { Text } from "../parts/text";
import type { Job } from "../types";
import { some } from "../words";

/** Closed unless something is an error. */
export function Notes({ job }: { job: Job }) {
  const [warnings, notes] = [job.warnings ?? [], job.notes ?? []];
  if (warnings.length + notes.length === 0) return null;
  return (
    <details class="panel" open={warnings.some((it) => it.severity === "error")}>
      <summary>
        {[warnings.length > 0 ? some(warnings.length, "warning") : "", notes.length > 0 ? some(notes.length, "note") : ""].filter(Boolean).join(", ")}
      </summary>
      <ul class="spaced">
        {warnings.map((it) => (
          <li>
            <strong>{it.severity}</strong> <code>{it.code}</code> <Sentence text={it.message} />{" "}
            {it.path && (
              <span class="quiet">
                <Text raw={it.path} />
              </span>
            )}
            {it.hint && (
              <div class="quiet">
                <Sentence text={it.hint} />
              </div>
            )}
          </li>
        ))}
        {notes.map((it) => (
          <li>
            <Sentence text={it} />
          </li>
        ))}
      </ul>
    </details>
  );
}
