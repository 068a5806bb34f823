/**
 * Rows of a strip as pixels. Pure: writes into a buffer and reads nothing else.
 *
 * A failure is at least two pixels wide at every zoom, and nothing is painted over it. Equal rows are painted once and copied.
 */
import { rowOf, type Model, type Runs, type Span } from "./model";

/** What a state looks like in a buffer: two colours where it is hatched. */
export interface Ink {
  colour: number;
  /** The second colour of a hatch. */
  other?: number;
}

/** Colours in the order of the bytes of image data, by the number of the state. */
export interface Inks {
  states: Ink[];
  paper: number;
  /** States that are never painted over, the worst last. */
  worst: number[];
}

/** `rrggbb` as it lies in image data on a little-endian machine. */
export function colour(hex: string): number {
  const rgb = Number.parseInt(hex, 16);
  return ((0xff << 24) | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
}

/** A colour between two. */
export function mix(one: number, other: number, share: number): number {
  const part = (shift: number) => Math.round(((one >> shift) & 0xff) * (1 - share) + ((other >> shift) & 0xff) * share) << shift;
  return ((0xff << 24) | part(16) | part(8) | part(0)) >>> 0;
}

/** Paints the first line of a row, then the lines below it, into `pixels` from line `top` on. */
function paintRow(pixels: Uint32Array, stride: number, left: number, width: number, top: number, height: number, row: Runs, window: Span, inks: Inks): void {
  const scale = width / (window.to - window.from);
  const start = top * stride + left;
  pixels.fill(inks.paper, start, start + width);
  const { edges, states } = row;
  const length = states.length;
  let hatched = false;
  let painted = 0;
  let before = 0;
  for (let run = first(row, window.from); run < length; run += 1) {
    const from = edges[run] as number;
    if (from >= window.to) break;
    const x1 = Math.min(width, Math.round(((edges[run + 1] as number) - window.from) * scale));
    const x0 = Math.max(painted, Math.round((from - window.from) * scale));
    if (x1 <= x0) continue;
    const ink = inks.states[states[run] as number] ?? (inks.states[11] as Ink);
    // Neighbours are parted by one pixel of paper where there is room for it.
    const gap = before > 5 && x1 - x0 > 5 ? 1 : 0;
    pixels.fill(ink.colour, start + x0 + gap, start + x1);
    if (ink.other !== undefined) hatched = true;
    painted = x1;
    before = x1 - x0;
  }
  for (let line = 1; line < height; line += 1) {
    pixels.copyWithin(start + line * stride, start, start + width);
  }
  if (hatched) hatch(pixels, stride, start, width, height, row, window, inks);
  for (const state of inks.worst) paintWorst(pixels, stride, start, width, height, row, window, inks, state);
}

/** The first run that reaches into the window. */
function first(row: Runs, from: number): number {
  let low = 0;
  let high = row.states.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((row.edges[middle + 1] as number) <= from) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Slanted lines over the runs of hatched states. */
function hatch(pixels: Uint32Array, stride: number, start: number, width: number, height: number, row: Runs, window: Span, inks: Inks): void {
  const scale = width / (window.to - window.from);
  for (let run = first(row, window.from); run < row.states.length; run += 1) {
    const from = row.edges[run] as number;
    if (from >= window.to) break;
    const ink = inks.states[row.states[run] as number];
    if (ink?.other === undefined) continue;
    const x0 = Math.max(0, Math.round((from - window.from) * scale));
    const x1 = Math.min(width, Math.round(((row.edges[run + 1] as number) - window.from) * scale));
    // A hatch needs room; what is narrower keeps its plain colour.
    if (x1 - x0 < 6) continue;
    for (let y = 0; y < height; y += 1) {
      const line = start + y * stride;
      // Two of six pixels, one to the left for each line down.
      for (let x = x0 + ((600_000 - y - x0) % 6); x < x1; x += 6) {
        pixels[line + x] = ink.other;
        if (x + 1 < x1) pixels[line + x + 1] = ink.other;
      }
    }
  }
}

/** Paints the runs of one bad state again, at least two pixels wide. */
function paintWorst(pixels: Uint32Array, stride: number, start: number, width: number, height: number, row: Runs, window: Span, inks: Inks, state: number): void {
  const ink = inks.states[state];
  if (!ink) return;
  const scale = width / (window.to - window.from);
  for (let run = first(row, window.from); run < row.states.length; run += 1) {
    const from = row.edges[run] as number;
    if (from >= window.to) break;
    if (row.states[run] !== state) continue;
    const x0 = Math.min(width - 2, Math.max(0, Math.round((from - window.from) * scale)));
    const x1 = Math.min(width, Math.round(((row.edges[run + 1] as number) - window.from) * scale));
    if (x1 - x0 > 2) continue;
    for (let y = 0; y < height; y += 1) {
      const at = start + y * stride + x0;
      pixels[at] = ink.colour;
      pixels[at + 1] = ink.colour;
    }
  }
}

/** Where rows are painted, in pixels of the buffer. */
export interface Place {
  stride: number;
  left: number;
  width: number;
  top: number;
  height: number;
  rowHeight: number;
  /** How far the rows are scrolled. */
  scroll: number;
}

/** Paints the job's own row. */
export function paintJob(pixels: Uint32Array, stride: number, left: number, width: number, top: number, height: number, it: Model, window: Span, inks: Inks): void {
  paintRow(pixels, stride, left, width, top, height, it.job, window, inks);
}

/** Paints the rows that are seen. */
export function paintRows(pixels: Uint32Array, place: Place, it: Model, window: Span, inks: Inks): void {
  const { stride, left, width, top, height, rowHeight, scroll } = place;
  for (let line = top; line < top + height; line += 1) pixels.fill(inks.paper, line * stride + left, line * stride + left + width);
  if (width < 4) return;
  const gap = rowHeight >= 5 ? 1 : 0;
  const painted = new Map<number, number>();
  const begin = Math.floor(scroll / rowHeight);
  for (let row = begin; row < it.of.length; row += 1) {
    const y = top + row * rowHeight - scroll;
    if (y >= top + height) break;
    const ink = rowHeight - gap;
    const [y0, y1] = [Math.max(top, y), Math.min(top + height, y + ink)];
    if (y1 <= y0) continue;
    const whole = y1 - y0 === ink;
    const unique = it.of[row] as number;
    const before = whole ? painted.get(unique) : undefined;
    if (before !== undefined) {
      // The same row was painted above: copy its lines.
      for (let line = 0; line < ink; line += 1) {
        const from = (before + line) * stride + left;
        pixels.copyWithin((y0 + line) * stride + left, from, from + width);
      }
      continue;
    }
    paintRow(pixels, stride, left, width, y0, y1 - y0, rowOf(it, row), window, inks);
    if (whole) painted.set(unique, y0);
  }
}
