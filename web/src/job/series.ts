/** Buckets of numbers in the form of the chart. Pure. */
import type { Bucket } from "../types";

/** Times, greatest, least and last values. A bucket without a finite value is a hole. */
export function columnsOf(buckets: Bucket[]): [number[], (number | null)[], (number | null)[], (number | null)[]] {
  return [buckets.map((it) => it.t), buckets.map((it) => it.max), buckets.map((it) => it.min), buckets.map((it) => it.last)];
}

/** The extremes of all buckets. */
export function extent(buckets: Bucket[]): { least?: number; greatest?: number; last?: number; lastAt?: number; notFinite: number } {
  let found: { least?: number; greatest?: number; last?: number; lastAt?: number } = {};
  let notFinite = 0;
  for (const it of buckets) {
    notFinite += it.notFinite;
    if (it.min === null || it.max === null || it.last === null) continue;
    found = { least: Math.min(found.least ?? it.min, it.min), greatest: Math.max(found.greatest ?? it.max, it.max), last: it.last, lastAt: it.t };
  }
  return { ...found, notFinite };
}
