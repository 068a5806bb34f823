/** One frame of the strip: axis, marks, the job's row, labels, rows, and the cursor, on one canvas. */
import type { Mark, StateLook } from "../types";
import { rowName, ticks, type Model, type Span } from "./model";
import { colour, mix, paintJob, paintRows, type Inks } from "./paint";

/** Heights in CSS pixels. */
export const AXIS = 20;
export const MARKS = 14;
export const JOB = 16;
export const GAP = 6;
/** Where rows begin. */
export const ROWS_TOP = AXIS + MARKS + JOB + GAP;

/** Colours of the page that the strip needs, as CSS writes them. */
export interface Tones {
  paper: string;
  ink: string;
  quiet: string;
  line: string;
  accent: string;
  failed: string;
}

/** What is drawn. Lengths are CSS pixels. */
export interface Frame {
  model: Model;
  window: Span;
  width: number;
  height: number;
  /** Room for labels on the left. */
  left: number;
  rowHeight: number;
  scroll: number;
  ratio: number;
  inks: Inks;
  tones: Tones;
  cursor?: { row: number; t: number } | undefined;
  hover?: { row: number; t: number } | undefined;
}

/** States that are hatched, so that they differ without their colour too. */
const HATCHED = new Set(["stalled", "redoing", "notObserved", "lost"]);

/** The inks of a palette on light or dark paper. */
export function inksOf(palette: StateLook[], dark: boolean, paper: string): Inks {
  const ground = colour(paper);
  const states = palette.map((it) => {
    if (it.name === "nothing") return { colour: ground };
    const ink = colour(dark ? it.dark : it.light);
    return HATCHED.has(it.name) ? { colour: mix(ink, ground, 0.15), other: mix(ink, ground, 0.72) } : { colour: ink };
  });
  const number = (name: string) => palette.findIndex((it) => it.name === name);
  return { states, paper: ground, worst: [number("stalled"), number("lost"), number("failed")] };
}

/** A buffer that is kept between frames. */
let image: ImageData | undefined;

/** Draws a frame. */
export function draw(context: CanvasRenderingContext2D, frame: Frame): void {
  const { ratio } = frame;
  const px = (length: number) => Math.round(length * ratio);
  const width = px(frame.width) - px(frame.left);
  const rowsTop = px(ROWS_TOP);
  const height = px(frame.height);
  if (width < 4 || height <= 0) return;
  if (!image || image.width !== width || image.height !== height) image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  pixels.fill(frame.inks.paper, 0, rowsTop * width);
  paintJob(pixels, width, 0, width, px(AXIS + MARKS), px(JOB), frame.model, frame.window, frame.inks);
  const rowHeight = Math.max(1, px(frame.rowHeight));
  const scroll = Math.round((frame.scroll / frame.rowHeight) * rowHeight);
  paintRows(pixels, { stride: width, left: 0, width, top: rowsTop, height: height - rowsTop, rowHeight, scroll }, frame.model, frame.window, frame.inks);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = frame.tones.paper;
  context.fillRect(0, 0, px(frame.left), height);
  context.putImageData(image, px(frame.left), 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  axis(context, frame);
  marks(context, frame);
  labels(context, frame);
  if (frame.hover) outline(context, frame, frame.hover, frame.tones.quiet);
  if (frame.cursor) outline(context, frame, frame.cursor, frame.tones.accent);
}

/** The place of a time on the canvas. */
export function xOf(frame: Pick<Frame, "window" | "width" | "left">, t: number): number {
  const { from, to } = frame.window;
  return frame.left + ((t - from) / (to - from)) * (frame.width - frame.left);
}

/** The top of a row; -1 is the job. */
export function yOf(frame: Pick<Frame, "rowHeight" | "scroll">, row: number): number {
  return row < 0 ? AXIS + MARKS : ROWS_TOP + row * frame.rowHeight - frame.scroll;
}

function axis(context: CanvasRenderingContext2D, frame: Frame): void {
  context.fillStyle = frame.tones.quiet;
  context.textAlign = "left";
  for (const tick of ticks(frame.window, frame.width - frame.left, 84)) {
    const x = Math.round(xOf(frame, tick.t));
    if (x < frame.left) continue;
    context.fillRect(x, AXIS - 5, 1, 5);
    if (x + 4 + context.measureText(tick.text).width <= frame.width) context.fillText(tick.text, x + 4, AXIS / 2);
  }
}

/** The marks in a window; they are in the order of time. */
function between(marks: Mark[], { from, to }: Span): Mark[] {
  let first = 0;
  while (first < marks.length && (marks[first] as Mark).t < from) first += 1;
  let end = first;
  while (end < marks.length && (marks[end] as Mark).t <= to) end += 1;
  return marks.slice(first, end);
}

/** Kinds of marks, the worst last. */
const KINDS = ["saved", "swapped", "attempt", "failed"] as const;

function marks(context: CanvasRenderingContext2D, frame: Frame): void {
  const middle = AXIS + MARKS / 2;
  const last: Record<string, number> = {};
  // What is worse is drawn later, over the rest.
  const shown = between(frame.model.marks, frame.window);
  const place = (t: number) => Math.min(frame.width - 4, Math.round(xOf(frame, t))) + 0.5;
  const failed = shown.filter((mark) => mark.kind === "failed").map((mark) => place(mark.t));
  for (const kind of KINDS) {
    let next = 0;
    for (const mark of shown) {
      if (mark.kind !== kind) continue;
      const x = place(mark.t);
      if (kind === "failed") failure(context, frame, mark, x);
      // A sign that would hide a worse one is left out.
      while (next < failed.length && (failed[next] as number) < x - 7) next += 1;
      const hides = kind !== "failed" && next < failed.length && (failed[next] as number) <= x + 7;
      if (hides || x - (last[kind] ?? -99) < (kind === "saved" ? 12 : 7)) continue;
      sign(context, frame, kind, x, middle);
      last[kind] = x;
    }
  }
}

/** A failure in its row: a cross where the row has room, else a square with a border of paper, so that one failed rank is seen among hundreds. */
function failure(context: CanvasRenderingContext2D, frame: Frame, mark: Mark, x: number): void {
  if (mark.row === undefined) return;
  const y = yOf(frame, mark.row) + (frame.rowHeight - 1) / 2;
  if (y < ROWS_TOP || y > frame.height) return;
  context.fillStyle = frame.tones.paper;
  if (frame.rowHeight >= 8) {
    context.fillRect(x - 5, y - 5, 10, 10);
    sign(context, frame, "failed", x, y);
    return;
  }
  context.fillRect(x - 3.5, y - 3.5, 7, 7);
  context.fillStyle = frame.tones.failed;
  context.fillRect(x - 2.5, y - 2.5, 5, 5);
}

/** The sign of a mark: a shape, so that it is not known by its colour alone. */
function sign(context: CanvasRenderingContext2D, frame: Frame, kind: Mark["kind"], x: number, y: number): void {
  context.beginPath();
  context.lineWidth = 1.6;
  context.strokeStyle = context.fillStyle = kind === "failed" ? frame.tones.failed : frame.tones.ink;
  if (kind === "failed") {
    context.moveTo(x - 3, y - 3);
    context.lineTo(x + 3, y + 3);
    context.moveTo(x + 3, y - 3);
    context.lineTo(x - 3, y + 3);
    context.stroke();
  } else if (kind === "attempt") {
    context.moveTo(x - 3.5, y - 1);
    context.lineTo(x + 3.5, y - 1);
    context.lineTo(x, y + 5);
    context.fill();
  } else if (kind === "saved") {
    context.strokeStyle = frame.tones.quiet;
    context.lineWidth = 1;
    context.moveTo(x, y - 3);
    context.lineTo(x + 3, y);
    context.lineTo(x, y + 3);
    context.lineTo(x - 3, y);
    context.closePath();
    context.stroke();
  } else {
    context.lineWidth = 1;
    context.moveTo(x - 4, y - 1.5);
    context.lineTo(x + 4, y - 1.5);
    context.lineTo(x + 1, y - 4);
    context.moveTo(x + 4, y + 1.5);
    context.lineTo(x - 4, y + 1.5);
    context.lineTo(x - 1, y + 4);
    context.stroke();
  }
}

function labels(context: CanvasRenderingContext2D, frame: Frame): void {
  context.save();
  context.textAlign = "right";
  context.fillStyle = frame.tones.ink;
  context.fillText("job", frame.left - 8, AXIS + MARKS + JOB / 2);
  context.beginPath();
  context.rect(0, ROWS_TOP - 2, frame.left, frame.height);
  context.clip();
  context.fillStyle = frame.tones.quiet;
  const each = Math.max(1, Math.ceil(14 / frame.rowHeight));
  const first = Math.max(0, Math.floor(frame.scroll / frame.rowHeight / each) * each);
  for (let row = first; row < frame.model.of.length; row += each) {
    const y = yOf(frame, row);
    if (y > frame.height) break;
    context.fillText(rowName(frame.model, row), frame.left - 8, y + Math.max(frame.rowHeight, 10) / 2, frame.left - 10);
  }
  context.restore();
}

/** A cell with its row and its time. */
function outline(context: CanvasRenderingContext2D, frame: Frame, cell: { row: number; t: number }, tone: string): void {
  const x = Math.round(xOf(frame, cell.t)) + 0.5;
  if (x < frame.left) return;
  const y = yOf(frame, cell.row);
  const height = cell.row < 0 ? JOB : Math.max(2, frame.rowHeight);
  context.save();
  context.beginPath();
  context.rect(frame.left, AXIS, frame.width, frame.height);
  context.clip();
  // First in the colour of the paper and wider, so that it is seen on every state.
  for (const [colour, more] of [
    [frame.tones.paper, 2],
    [tone, 0],
  ] as const) {
    context.strokeStyle = colour;
    context.lineWidth = 1 + more;
    context.beginPath();
    context.moveTo(x, AXIS);
    context.lineTo(x, frame.height);
    context.stroke();
    if (cell.row >= 0 && y + height <= ROWS_TOP) continue;
    context.lineWidth = 2 + more;
    context.strokeRect(x - 4, y - 1, 8, height + 1);
  }
  context.restore();
}
