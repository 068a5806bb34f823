import assert from "node:assert/strict";
import { test } from "node:test";
import { rowsOf } from "../../src/job/groups";
import type { LogGroup } from "../../src/types";

function group(template: string, role: LogGroup["role"], at: number, more: Partial<LogGroup> = {}): LogGroup {
  return { template, example: template, count: 8, ranks: "0-3", firstAt: at, lastAt: at + 2000, severity: "info", role, ...more };
}
const short = (rows: LogGroup[]) => rows.map((it) => `${it.template} ${it.count} ${it.firstAt}-${it.lastAt}`);

test("steps_are_one_row_wherever_they_stand", () => {
  const rows = rowsOf([group("step #", "progress", 0), group("saved #", "other", 5000), group("step #", "progress", 6000), group("saved #", "other", 9000)]);
  assert.deepEqual(short(rows), ["step # 16 0-8000", "saved # 16 5000-11000"]);
});

test("equal_lines_in_a_row_are_one_row", () => {
  const rows = rowsOf([group("hello", "other", 0), group("hello", "other", 3000), group("hello", "other", 6000, { ranks: "0" })]);
  assert.deepEqual(short(rows), ["hello 16 0-5000", "hello 8 6000-8000"]);
});

test("errors_that_come_again_stay_apart", () => {
  const bad = { severity: "error" } as const;
  const rows = rowsOf([group("oops", "symptom", 0, bad), group("oops", "symptom", 3000, bad), group("step #", "progress", 4000, { severity: "warning" })]);
  assert.equal(rows.length, 3);
});
