/** Groups of equal lines as rows. Pure. */
import type { LogGroup } from "../types";

/**
 * The server folds equal lines of two seconds, so that what came again is seen again. Lines that only inform are one row here: steps of training wherever
 * they stand, others where nothing but steps is between them. Warnings and errors stay as they are.
 */
export function rowsOf(groups: LogGroup[]): LogGroup[] {
  const rows: LogGroup[] = [];
  const progress = new Map<string, number>();
  for (const group of groups) {
    const key = `${group.template}\n${group.ranks}`;
    const last = rows.at(-1);
    const at = group.severity !== "info" ? undefined : group.role === "progress" ? progress.get(key) : last && isSame(last, group) ? rows.length - 1 : undefined;
    if (at === undefined) {
      if (group.role === "progress" && group.severity === "info") progress.set(key, rows.length);
      rows.push(group);
    } else rows[at] = joined(rows[at] as LogGroup, group);
  }
  return rows;
}

function isSame(one: LogGroup, other: LogGroup): boolean {
  return one.template === other.template && one.ranks === other.ranks && one.role === other.role && one.severity === other.severity;
}

/** Both as one row; what a single row is known for is that of the first. */
function joined(first: LogGroup, later: LogGroup): LogGroup {
  return { ...first, count: first.count + later.count, ...(later.lastAt === undefined ? {} : { lastAt: later.lastAt }) };
}
