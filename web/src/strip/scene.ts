/** What the strip shows and how it moves: the window, the models of it, and the frames. Owns the canvas; draws once per frame at most. */
import { batch, signal } from "@preact/signals";
import type { StateLook } from "../types";
import { draw, inksOf, ROWS_TOP, type Frame, type Tones } from "./draw";
import { clamp, pan, pick, zoom, type Model, type Span } from "./model";
import type { Inks } from "./paint";

/** Rows are not lower than this, and not higher. */
const LOWEST = 3;
const HIGHEST = 14;
/** The room for rows before they scroll. */
const ROOM = 400;
/** Models of windows that are kept beside that of the whole run. */
const KEPT = 2;

/** A cell: a row (-1 is the job) and a time. */
export interface Cell {
  row: number;
  t: number;
}

/** Tones of the page, read from its style. */
function tonesOf(element: Element): Tones {
  const style = getComputedStyle(element);
  const tone = (name: string) => style.getPropertyValue(name).trim();
  return { paper: tone("--paper"), ink: tone("--ink"), quiet: tone("--quiet"), line: tone("--line"), accent: tone("--accent"), failed: tone("--failed") };
}

/** A strip on a canvas. */
export class Scene {
  readonly window = signal<Span>({ from: 0, to: 1 });
  readonly cursor = signal<Cell | undefined>(undefined);
  readonly hover = signal<Cell | undefined>(undefined);
  /** The model that is drawn. */
  readonly shown = signal<Model | undefined>(undefined);
  /** Whether the window is the whole run, and grows with it. */
  readonly whole = signal(true);
  readonly tall = signal(false);
  width = 0;
  left = 84;
  private full: Model | undefined;
  private windows: Model[] = [];
  private canvas: HTMLCanvasElement | undefined;
  private scroller: HTMLElement | undefined;
  private context: CanvasRenderingContext2D | null = null;
  private inks: Inks | undefined;
  private tones: Tones | undefined;
  private waiting = 0;
  private scrolled = 0;

  attach(scroller: HTMLElement, canvas: HTMLCanvasElement): void {
    this.scroller = scroller;
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.resize();
  }

  detach(): void {
    cancelAnimationFrame(this.waiting);
    this.waiting = 0;
    this.canvas = this.scroller = undefined;
    this.context = null;
  }

  /** Takes the colours of the page. */
  recolour(palette: StateLook[], dark: boolean): void {
    if (!this.scroller) return;
    this.tones = tonesOf(this.scroller);
    const paper = /^#[0-9a-f]{6}$/i.test(this.tones.paper) ? this.tones.paper.slice(1) : dark ? "0f1419" : "ffffff";
    this.inks = inksOf(palette, dark, paper);
    this.redraw();
  }

  /** The times that may be shown. */
  get limits(): Span {
    const all = this.full ?? this.windows[0];
    return all ? { from: all.from, to: all.to } : this.window.peek();
  }

  /** Takes the strip of the whole run. */
  setFull(model: Model): void {
    this.full = model;
    if (this.whole.peek()) this.window.value = { from: model.from, to: model.to };
    this.redraw();
  }

  /** Takes the strip of a window. */
  setWindow(model: Model): void {
    this.windows = [model, ...this.windows.filter((it) => it.from !== model.from || it.to !== model.to)].slice(0, KEPT);
    this.redraw();
  }

  /** Forgets everything: another run, or other rows. */
  clear(): void {
    this.full = undefined;
    this.windows = [];
    this.shown.value = undefined;
  }

  /** Shows a window. */
  show(window: Span, whole = false): void {
    const next = clamp(window, this.limits);
    batch(() => {
      this.whole.value = whole || (next.from === this.limits.from && next.to === this.limits.to);
      this.window.value = next;
    });
    this.redraw();
  }

  zoom(factor: number, at?: number): void {
    const window = this.window.peek();
    const cursor = this.cursor.peek();
    const inside = cursor && cursor.t >= window.from && cursor.t <= window.to ? cursor.t : (window.from + window.to) / 2;
    this.show(zoom(window, factor, at ?? inside, this.limits));
  }

  pan(share: number): void {
    this.show(pan(this.window.peek(), share, this.limits));
  }

  /** How high a row is. */
  get rowHeight(): number {
    const rows = Math.max(1, this.rows);
    if (this.tall.peek()) return HIGHEST;
    return Math.min(HIGHEST, Math.max(LOWEST, Math.floor(ROOM / rows)));
  }

  get rows(): number {
    return this.shown.peek()?.of.length ?? this.full?.of.length ?? this.windows[0]?.of.length ?? 0;
  }

  /** The height of what is seen, and of all rows. */
  get heights(): { seen: number; all: number } {
    const all = ROWS_TOP + this.rows * this.rowHeight + 2;
    return { seen: Math.min(all, ROWS_TOP + ROOM), all };
  }

  /** The time one column stands for. */
  get step(): number {
    const { from, to } = this.window.peek();
    const cell = (to - from) / Math.max(1, this.width - this.left);
    return Math.max(this.shown.peek()?.bucket ?? 1, cell * 4);
  }

  /** The cell at a point of the canvas. */
  cellAt(x: number, y: number): Cell | undefined {
    if (x < this.left || !this.shown.peek()) return undefined;
    const { from, to } = this.window.peek();
    const t = from + ((x - this.left) / (this.width - this.left)) * (to - from);
    if (y < ROWS_TOP) return { row: -1, t };
    const row = Math.floor((y - ROWS_TOP + this.scrolled) / this.rowHeight);
    return row < this.rows ? { row, t } : undefined;
  }

  /** The rows were scrolled. The place is kept: to ask for it in a frame would lay out the page again. */
  scrollTo(top: number): void {
    this.scrolled = top;
    this.redraw();
  }

  /** Moves the cursor; the window and the rows follow it. */
  moveTo(cell: Cell): void {
    const limits = this.limits;
    const next = { row: Math.min(this.rows - 1, Math.max(-1, cell.row)), t: Math.min(limits.to - 1, Math.max(limits.from, cell.t)) };
    this.cursor.value = next;
    const { from, to } = this.window.peek();
    const length = to - from;
    if (next.t < from) this.show({ from: next.t - length * 0.1, to: next.t + length * 0.9 });
    else if (next.t >= to) this.show({ from: next.t - length * 0.9, to: next.t + length * 0.1 });
    if (next.row >= 0 && this.scroller) {
      const top = next.row * this.rowHeight;
      const room = this.heights.seen - ROWS_TOP;
      if (top < this.scrolled) this.scroller.scrollTop = this.scrolled = top;
      else if (top + this.rowHeight > this.scrolled + room) this.scroller.scrollTop = this.scrolled = top + this.rowHeight - room;
    }
    this.redraw();
  }

  /** Reads the size of the page. */
  resize(): void {
    if (!this.scroller || !this.canvas) return;
    this.width = this.scroller.clientWidth;
    this.left = this.width < 560 ? 58 : 84;
    this.redraw();
  }

  /** Draws with the next frame. */
  redraw(): void {
    if (this.waiting || !this.canvas) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.frame();
    });
  }

  private frame(): void {
    const { canvas, context, inks, tones } = this;
    const models = this.full ? [this.full, ...this.windows] : this.windows;
    const model = pick(models, this.window.peek());
    if (this.shown.peek() !== model) this.shown.value = model;
    if (!canvas || !context || !inks || !tones || !model || this.width < 40) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    const height = this.heights.seen;
    const [wide, high] = [Math.round(this.width * ratio), Math.round(height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
      canvas.style.height = `${height}px`;
    }
    const frame: Frame = {
      model,
      window: this.window.peek(),
      width: this.width,
      height,
      left: this.left,
      rowHeight: this.rowHeight,
      scroll: Math.max(0, Math.min(this.scrolled, this.heights.all - height)),
      ratio,
      inks,
      tones,
      cursor: this.cursor.peek(),
      hover: this.hover.peek(),
    };
    draw(context, frame);
  }
}
