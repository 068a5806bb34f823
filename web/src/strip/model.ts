/** A strip in the form in which it is drawn and read: rows of runs with their times. Pure. */
import type { Label, Mark, Strip } from "../types";
import { clock, day, duration, some, span } from "../words";

/** Runs of one row: run `i` lasts from `edges[i]` to `edges[i + 1]` and has the state `states[i]`. */
export interface Runs {
  edges: Float64Array;
  states: Uint8Array;
}

/** A strip, ready to draw. */
export interface Model {
  from: number;
  to: number;
  bucket: number;
  exact: boolean;
  rows: Runs[];
  /** Which of `rows` each row is. */
  of: number[];
  labels: Label[];
  job: Runs;
  marks: Mark[];
  marksLeftOut: number;
  mixed: number;
  names: string[];
}

/** A piece of time, in Unix milliseconds. */
export interface Span {
  from: number;
  to: number;
}

/** The shortest window that can be shown. */
export const SHORTEST = 1_000;

/** Reads pairs of (length, state). Lengths are cells, or milliseconds where the strip is exact. */
export function runs(pairs: number[], strip: Span & { bucketMillis: number; exact: boolean }): Runs {
  const length = pairs.length >> 1;
  const edges = new Float64Array(length + 1);
  const states = new Uint8Array(length);
  const unit = strip.exact ? 1 : strip.bucketMillis;
  let at = strip.from;
  edges[0] = at;
  for (let run = 0; run < length; run += 1) {
    at = Math.min(strip.to, at + (pairs[2 * run] as number) * unit);
    edges[run + 1] = at;
    states[run] = pairs[2 * run + 1] as number;
  }
  return { edges, states };
}

/** Reads a document. */
export function model(strip: Strip): Model {
  return {
    from: strip.from,
    to: strip.to,
    bucket: strip.exact ? 1 : strip.bucketMillis,
    exact: strip.exact,
    rows: strip.rows.map((pairs) => runs(pairs, strip)),
    of: strip.of,
    labels: strip.labels,
    job: runs(strip.job, strip),
    marks: [...strip.marks].sort((one, other) => one.t - other.t),
    marksLeftOut: strip.marksLeftOut,
    mixed: strip.mixed,
    names: strip.states,
  };
}

/** The number of the run in which `t` lies, or of the first or last one. */
export function runAt(row: Runs, t: number): number {
  let low = 0;
  let high = row.states.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((row.edges[middle + 1] as number) <= t) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The runs of a row; those of the job for row -1. */
export function rowOf(it: Model, row: number): Runs {
  return row < 0 ? it.job : (it.rows[it.of[row] ?? 0] ?? it.job);
}

/** The name of a row. */
export function rowName(it: Model, row: number): string {
  if (row < 0) return "job";
  const label = it.labels[row];
  if (!label) return `row ${row}`;
  return label.from === undefined ? label.pod : rankWords(label.from, label.to ?? label.from);
}

/** `3` or `0-7`. */
export function rankWords(from: number, to: number): string {
  return from === to ? String(from) : `${from}-${to}`;
}

/** A window moved and cut so that it lies in `limits`. */
export function clamp(window: Span, limits: Span): Span {
  const whole = Math.max(1, limits.to - limits.from);
  const length = Math.min(whole, Math.max(Math.min(SHORTEST, whole), window.to - window.from));
  const from = Math.min(Math.max(window.from, limits.from), limits.to - length);
  return { from: Math.round(from), to: Math.round(from + length) };
}

/** A window `factor` times as long in which `at` stays where it is. */
export function zoom(window: Span, factor: number, at: number, limits: Span): Span {
  const length = (window.to - window.from) * factor;
  const share = (at - window.from) / (window.to - window.from);
  return clamp({ from: at - share * length, to: at + (1 - share) * length }, limits);
}

/** A window moved by a part of its length. */
export function pan(window: Span, share: number, limits: Span): Span {
  const by = (window.to - window.from) * share;
  return clamp({ from: window.from + by, to: window.to + by }, limits);
}

/** Of several models the one to draw `window` from: the finest that covers it, else the one that covers most. */
export function pick(models: Model[], window: Span): Model | undefined {
  const covered = (it: Model) => Math.max(0, Math.min(it.to, window.to) - Math.max(it.from, window.from));
  let best: Model | undefined;
  for (const it of models) {
    if (!best) best = it;
    else if (covered(it) > covered(best) || (covered(it) === covered(best) && it.to - it.from < best.to - best.from)) best = it;
  }
  return best;
}

/** Rounded times for the axis: about one for each `least` pixels. */
export function ticks(window: Span, width: number, least: number): { t: number; text: string }[] {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 345_600, 604_800, 1_209_600, 2_592_000];
  const length = window.to - window.from;
  const wanted = (length / Math.max(1, width)) * least;
  const step = (steps.find((it) => it * 1000 >= wanted) ?? 5_184_000) * 1000;
  const zone = new Date(window.from).getTimezoneOffset() * 60_000;
  const found = [];
  for (let t = Math.ceil((window.from - zone) / step) * step + zone; t <= window.to && found.length < 100; t += step) {
    const midnight = (t - zone) % 86_400_000 === 0;
    found.push({ t, text: midnight ? day(t) : clock(t, step < 60_000 ? "second" : "minute") });
  }
  return found;
}

/** What a cell shows, in words. */
export function cellWords(it: Model, row: number, t: number, word: (state: number) => string): string {
  const line = rowOf(it, row);
  const run = runAt(line, t);
  const [from, to] = [line.edges[run] as number, line.edges[run + 1] as number];
  const label = row < 0 ? undefined : it.labels[row];
  const who = row < 0 ? "job" : label?.from === undefined ? rowName(it, row) : `rank ${rowName(it, row)}`;
  const place = label?.node ? ` on ${label.node}` : "";
  const pods = label && label.pods > 1 ? ` (${some(label.pods, "pod")})` : "";
  return `${who}${pods}${place}: ${word(line.states[run] as number)} ${duration(to - from)}, from ${day(from)} ${clock(from)} to ${day(to)} ${clock(to)}`;
}

/** Rows that differ from the job: what failed, stalled or was lost in each, with its time. */
export interface Exception {
  row: number;
  state: number;
  from: number;
  to: number;
}

/** Exceptions of all rows, bounded; `left` counts those without room. */
export function exceptions(it: Model, most: number): { found: Exception[]; left: number } {
  const wanted = new Set(["failed", "stalled", "lost"].map((name) => it.names.indexOf(name)));
  const found: Exception[] = [];
  let left = 0;
  for (let row = -1; row < it.of.length; row += 1) {
    const line = rowOf(it, row);
    line.states.forEach((state, run) => {
      if (!wanted.has(state)) return;
      // What the whole job did is in its own row.
      const from = line.edges[run] as number;
      const shared = row >= 0 && state !== it.names.indexOf("failed") && it.job.states[runAt(it.job, from)] === state;
      if (shared) return;
      if (found.length < most) found.push({ row, state, from, to: line.edges[run + 1] as number });
      else left += 1;
    });
  }
  return { found, left };
}

/** The summary sentence of a strip. */
export function summary(it: Model): string {
  const failed = it.marks.filter((mark) => mark.kind === "failed").length;
  const attempts = it.marks.filter((mark) => mark.kind === "attempt").length;
  const ranks = it.labels.reduce((most, label) => Math.max(most, (label.to ?? -1) + 1), 0);
  const what = ranks > 0 ? some(ranks, "rank") : some(it.of.length, "pod");
  return `Strip of ${what} in ${some(it.of.length, "row")} over ${duration(it.to - it.from)}, from ${span(it.from, it.to)}: ${some(failed, "failure")}, ${some(attempts, "attempt")} began.`;
}
