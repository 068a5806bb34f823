import assert from "node:assert/strict";
import { test } from "node:test";
import { before, begin, behind, items, LINES_MAX } from "../../src/job/log-lines";
import { sameText } from "../../src/job/verdict";
import { columnsOf, extent } from "../../src/job/series";
import { nameOf } from "../../src/keys";
import { usePalette, palette, STATES } from "../../src/palette";
import { ranksIn } from "../../src/ranks";
import type { LogLine, Logs } from "../../src/types";
import { ago, bytes, duration, figure, hours, longDuration, millisOf, percent, some, spaced, span } from "../../src/words";
import { yaml } from "../../src/yaml";

test("durations_are_those_of_the_status", () => {
  const words = [[5, "5 ms"], [140, "0.1 s"], [9_940, "9.9 s"], [45_000, "45 s"], [119_999, "120 s"], [120_000, "2 min"], [7_200_000, "2 h"], [172_800_000, "2 d"]] as const;
  for (const [millis, text] of words) assert.equal(duration(millis), text);
  assert.equal(longDuration(511_200_000), "5 d 22 h");
  assert.equal(longDuration(9_000_000), "2 h 30 min");
  assert.equal(hours(480_960_000), "133.6 h");
});

test("evidence_of_the_same_text_is_one_row", () => {
  const line = (text: string, rank: number) => ({ file: `worker-${rank}.log`, line: 4, text, rank });
  const found = sameText([line("KeyError", 5), line("other", 2), line("KeyError", 1)]);
  assert.deepEqual(found.map((lines) => lines.map((it) => it.rank)), [[5, 1], [2]]);
});

test("past_is_never_negative", () => {
  assert.equal(ago(0, 9_999), "now");
  assert.equal(ago(60_000, 0), "now");
  assert.equal(ago(0, 45_000), "45 s ago");
  assert.equal(ago(0, 7_200_000), "2 h ago");
});

test("numbers_have_units_and_few_digits", () => {
  assert.equal(percent(0.9412), "94.1 %");
  assert.equal(bytes(141_000_000_000), "131 GiB");
  assert.equal(bytes(12), "12 B");
  assert.equal(figure(4_058_123), "4.058 M");
  assert.equal(figure(0.00001), "1.00e-5");
  assert.equal(some(1, "rank"), "1 rank");
  assert.equal(some(1024, "rank"), "1,024 ranks");
  assert.equal(spaced("does_not_help"), "does not help");
  assert.equal(spaced("tokensPerSecond"), "tokens per second");
});

test("unknown_times_are_nothing", () => {
  assert.equal(millisOf("2025-01-01T00:00:00Z"), 1_735_689_600_000);
  assert.equal(millisOf(null), undefined);
  assert.equal(millisOf("never"), undefined);
});

test("ranges_of_ranks_are_bounded", () => {
  assert.deepEqual(ranksIn("0-2,5", 10), { ranks: [0, 1, 2, 5], more: 0 });
  assert.deepEqual(ranksIn("0-999999999", 3), { ranks: [0, 1, 2], more: 999_999_997 });
  assert.deepEqual(ranksIn("x,3-1", 3), { ranks: [], more: 0 });
});

const line = (offset: number): LogLine => ({ offset, text: String(offset), severity: "info" });
const answer = (from: number, to: number, more: Partial<Logs> = {}): Logs => ({
  run: "r", attempt: 1, pod: "p", container: "c", lines: Array.from({ length: (to - from) / 10 }, (_, at) => line(from + at * 10)), first: from, last: to, size: 1e6, atEnd: false, ...more,
});

test("log_window_grows_in_both_directions", () => {
  let window = begin(answer(100, 200));
  window = before(window, answer(50, 110));
  window = behind(window, answer(190, 250, { atEnd: true }));
  assert.deepEqual(window.lines.map((it) => it.offset), Array.from({ length: 20 }, (_, at) => 50 + at * 10));
  assert.deepEqual([window.first, window.last, window.atEnd], [50, 250, true]);
});

test("log_window_is_bounded", () => {
  let window = begin(answer(0, LINES_MAX * 10, { atEnd: false }));
  window = behind(window, answer(LINES_MAX * 10, LINES_MAX * 10 + 50));
  assert.equal(window.lines.length, LINES_MAX);
  assert.equal(window.first, 50);
  window = before(window, answer(0, 50));
  assert.equal(window.lines.length, LINES_MAX);
  assert.equal(window.last, LINES_MAX * 10);
  assert.equal(window.atEnd, false);
});

test("missing_pieces_of_a_log_are_shown", () => {
  const found = items([line(0), line(10), line(500), line(510)], [[0, 20], [500, 520]]);
  assert.deepEqual(found.map((it) => ("gap" in it ? `gap ${it.gap}` : it.line.offset)), [0, 10, "gap 480", 500, 510]);
  assert.equal(items([line(500)], [[0, 20], [500, 520]]).length, 1);
});

test("holes_in_series_stay_holes", () => {
  const buckets = [
    { t: 1, min: 1, max: 9, last: 2, n: 3, notFinite: 0 },
    { t: 2, min: null, max: null, last: null, n: 0, notFinite: 4 },
  ];
  assert.deepEqual(columnsOf(buckets)[1], [9, null]);
  assert.deepEqual(extent(buckets), { least: 1, greatest: 9, last: 2, lastAt: 1, notFinite: 4 });
});

test("yaml_quotes_what_would_change_its_meaning", () => {
  const text = yaml({ a: "yes", b: ["x", { c: 1, d: [] }], "k: v": null, e: "two\nlines", f: "-x", g: {} });
  assert.equal(text, 'a: "yes"\nb:\n  - x\n  - c: 1\n    d: []\n"k: v": null\ne: "two\\nlines"\nf: "-x"\ng: {}');
});

test("keys_have_one_name_with_ctrl_and_command", () => {
  const press = { key: "K", ctrlKey: false, metaKey: false, altKey: false };
  assert.equal(nameOf({ ...press, ctrlKey: true }), "Ctrl+k");
  assert.equal(nameOf({ ...press, metaKey: true }), "Ctrl+k");
  assert.equal(nameOf({ ...press, key: "Escape" }), "Esc");
  assert.equal(nameOf({ ...press, key: "?" }), "?");
});

test("palette_takes_only_colours", () => {
  usePalette(STATES.map((it) => ({ ...it, light: "url(x)" })));
  assert.equal(palette.value[0]?.light, "0b6e4f");
  usePalette(STATES.map((it) => ({ ...it, light: "#111111" })));
  assert.equal(palette.value[0]?.light, "111111");
});

test("spans_show_what_differs", () => {
  const at = (hour: number, second: number, date = 18) => new Date(2026, 10, date, hour, 21, second).getTime();
  assert.equal(span(at(15, 44), at(15, 53)), "18 Nov 15:21:44 to 15:21:53");
  assert.equal(span(at(3, 0), at(15, 0)), "18 Nov 03:21 to 15:21");
  assert.equal(span(at(3, 0, 12), at(15, 0)), "12 Nov 03:21 to 18 Nov 15:21");
});
