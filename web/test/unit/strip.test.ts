import assert from "node:assert/strict";
import { test } from "node:test";
import type { Strip } from "../../src/types";
import { STATES } from "../../src/palette";
import { inksOf } from "../../src/strip/draw";
import { cellWords, clamp, exceptions, model, pan, pick, runAt, summary, ticks, zoom } from "../../src/strip/model";
import { colour, paintRows } from "../../src/strip/paint";

const FAILED = 12;

/** 4 rows of 100 cells of one second; one cell of row 2 failed. */
function document(more: Partial<Strip> = {}): Strip {
  return {
    run: "r", from: 1000, to: 101_000, columns: 100, bucketMillis: 1000, states: STATES.map((it) => it.name),
    rows: [[100, 0], [50, 0, 1, FAILED, 49, 0]], of: [0, 0, 1, 0], labels: [0, 1, 2, 3].map((rank) => ({ from: rank, to: rank, pod: `Worker-${rank}`, pods: 1 })),
    job: [50, 0, 1, FAILED, 49, 0], marks: [{ t: 51_000, kind: "failed", row: 2, rank: 2, n: 1 }], marksLeftOut: 0, exact: false, mixed: 0, ...more,
  };
}

test("cells_and_exact_runs_have_the_same_times", () => {
  const cells = model(document());
  const exact = model(document({ exact: true, rows: [[100_000, 0], [50_000, 0, 1000, FAILED, 49_000, 0]], job: [100_000, 0] }));
  assert.deepEqual(cells.rows[1], exact.rows[1]);
  assert.deepEqual([...(cells.rows[1]?.edges ?? [])], [1000, 51_000, 52_000, 101_000]);
});

test("last_cell_ends_with_the_window", () => {
  const it = model(document({ to: 100_500, rows: [[100, 0]], of: [0], job: [100, 0] }));
  assert.equal(it.rows[0]?.edges[1], 100_500);
});

test("run_is_found_by_time", () => {
  const row = model(document()).rows[1];
  assert.ok(row);
  assert.deepEqual([0, 50_999, 51_000, 51_999, 52_000, 1e9].map((t) => runAt(row, t)), [0, 0, 1, 1, 2, 2]);
});

test("zoom_keeps_the_point_and_the_limits", () => {
  const limits = { from: 0, to: 1_000_000 };
  const near = zoom(limits, 0.5, 250_000, limits);
  assert.deepEqual(near, { from: 125_000, to: 625_000 });
  assert.deepEqual(zoom(near, 100, 250_000, limits), limits);
  assert.deepEqual(pan(near, 10, limits), { from: 500_000, to: 1_000_000 });
  assert.equal(clamp({ from: 5, to: 6 }, limits).to, 1005);
});

test("finest_model_that_covers_is_drawn", () => {
  const whole = model(document());
  const part = model(document({ from: 40_000, to: 60_000 }));
  assert.equal(pick([whole, part], { from: 45_000, to: 55_000 }), part);
  assert.equal(pick([whole, part], { from: 30_000, to: 55_000 }), whole);
});

test("one_failed_cell_is_seen_at_every_zoom", () => {
  const inks = inksOf(STATES, false, "ffffff");
  const it = model(document({ from: 0, to: 2_592_000_000, columns: 2000, bucketMillis: 1_296_000, rows: [[2000, 0], [777, 0, 1, FAILED, 1222, 0]], job: [2000, 0] }));
  for (let length = 2_592_000_000; length > 10_000; length /= 3) {
    const at = 777.5 * 1_296_000;
    const window = clamp({ from: at - length / 2, to: at + length / 2 }, it);
    for (const width of [200, 317, 1300]) {
      const pixels = new Uint32Array(width * 16);
      paintRows(pixels, { stride: width, left: 0, width, top: 0, height: 16, rowHeight: 4, scroll: 0 }, it, window, inks);
      const row = pixels.subarray(2 * 4 * width, 2 * 4 * width + width);
      assert.ok(row.filter((pixel) => pixel === colour("b00020")).length >= 2, `window of ${length} ms, ${width} pixels`);
    }
  }
});

test("equal_rows_have_equal_pixels", () => {
  const inks = inksOf(STATES, true, "0f1419");
  const it = model(document({ rows: [[40, 0, 30, 9, 30, 7], [100, 0]], of: [0, 1, 0, 1] }));
  const pixels = new Uint32Array(100 * 40);
  paintRows(pixels, { stride: 100, left: 0, width: 100, top: 0, height: 40, rowHeight: 10, scroll: 0 }, it, it, inks);
  assert.deepEqual(pixels.subarray(0, 900), pixels.subarray(2000, 2900));
  const hatched = new Set(pixels.subarray(45, 65));
  assert.equal(hatched.size, 2, "redoing is hatched");
});

test("scrolled_rows_stay_inside_their_place", () => {
  const inks = inksOf(STATES, false, "ffffff");
  const it = model(document());
  const pixels = new Uint32Array(100 * 20).fill(1);
  paintRows(pixels, { stride: 100, left: 10, width: 80, top: 5, height: 10, rowHeight: 6, scroll: 3 }, it, it, inks);
  assert.ok(pixels.subarray(0, 500).every((pixel) => pixel === 1));
  assert.ok(pixels.subarray(1500).every((pixel) => pixel === 1));
  assert.equal(pixels[509], 1);
  assert.notEqual(pixels[510], 1);
});

test("cells_and_exceptions_have_words", () => {
  const it = model(document());
  const word = (state: number) => STATES[state]?.word ?? "";
  assert.equal(cellWords(it, 2, 51_500, word), "rank 2: failed 1.0 s, from 1 Jan 00:00:51 to 1 Jan 00:00:52");
  assert.equal(cellWords(it, -1, 0, word).split(":")[0], "job");
  assert.deepEqual(exceptions(it, 10).found.map((one) => one.row), [-1, 2]);
  assert.equal(exceptions(it, 1).left, 1);
  assert.match(summary(it), /^Strip of 4 ranks in 4 rows over 100 s, .*: 1 failure, 0 attempts began\.$/);
});

test("axis_has_rounded_times", () => {
  const day = 86_400_000;
  const found = ticks({ from: 10 * day + 5, to: 12 * day }, 800, 84);
  assert.deepEqual(found.slice(0, 4).map((it) => it.text), ["06:00", "12:00", "18:00", "12 Jan"]);
  assert.ok(ticks({ from: 0, to: 1e13 }, 800, 84).length <= 100);
});
