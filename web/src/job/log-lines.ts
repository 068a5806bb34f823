/** A window of a log: lines that are at hand, and where it goes on. Pure. */
import type { LogLine, Logs } from "../types";

/** What is in the list: a line, or a piece of the log that was not kept. */
export type Item = { line: LogLine } | { gap: number };

/** Lines at hand. */
export interface Lines {
  lines: LogLine[];
  /** The offset before the first line. */
  first: number;
  /** The offset behind the last line. */
  last: number;
  atEnd: boolean;
}

/** Most lines at hand; those furthest away are dropped. */
export const LINES_MAX = 12_000;

/** The window of one answer. */
export function begin(logs: Logs): Lines {
  return { lines: logs.lines, first: logs.first, last: logs.last, atEnd: logs.atEnd };
}

/** Adds lines before. Where there are too many, lines at the end go. */
export function before(window: Lines, logs: Logs): Lines {
  const lines = [...logs.lines.filter((line) => line.offset < window.first), ...window.lines];
  if (lines.length <= LINES_MAX) return { ...window, lines, first: Math.min(logs.first, window.first) };
  const kept = lines.slice(0, LINES_MAX);
  return { lines: kept, first: logs.first, last: lines[LINES_MAX]?.offset ?? window.last, atEnd: false };
}

/** Adds lines behind. Where there are too many, lines at the start go. */
export function behind(window: Lines, logs: Logs): Lines {
  const lines = [...window.lines, ...logs.lines.filter((line) => line.offset >= window.last)];
  const surplus = Math.max(0, lines.length - LINES_MAX);
  const kept = surplus > 0 ? lines.slice(surplus) : lines;
  return { lines: kept, first: surplus > 0 ? (kept[0]?.offset ?? window.first) : window.first, last: Math.max(window.last, logs.last), atEnd: logs.atEnd };
}

/** The items of a list: between lines of different kept pieces stands how many bytes are missing. */
export function items(lines: LogLine[], kept: [number, number][] | undefined): Item[] {
  const found: Item[] = [];
  const pieces = kept ?? [];
  let piece = 0;
  for (const line of lines) {
    while (piece < pieces.length - 1 && line.offset >= (pieces[piece + 1] as [number, number])[0]) {
      const missing = (pieces[piece + 1] as [number, number])[0] - (pieces[piece] as [number, number])[1];
      piece += 1;
      if (missing > 0 && found.length > 0) found.push({ gap: missing });
    }
    found.push({ line });
  }
  return found;
}
