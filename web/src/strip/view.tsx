/** The strip on the page: ranks by time, with its window, its cursor and its table. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { effect } from "@preact/signals";
import { path } from "../api";
import { announce, commandOf } from "../clipboard";
import { download } from "../download";
import { addKeys } from "../keys";
import { showTabs } from "../job/tabs";
import { useDocument } from "../load";
import { palette } from "../palette";
import { Failure, Panel, Skeleton } from "../parts/basics";
import { route, setQuery } from "../route";
import { dark, forced } from "../theme";
import type { Mark, Strip } from "../types";
import { clock, count, day, duration, longDuration, some, span } from "../words";
import { Legend } from "./legend";
import { cellWords, model, runAt, rowOf, summary } from "./model";
import { drag, stripKeys, wheel } from "./moves";
import { Scene } from "./scene";
import { StripTable } from "./table";

/** Windows that have a button, in milliseconds. */
const WINDOWS: [string, number][] = [
  ["7 d", 604_800_000],
  ["24 h", 86_400_000],
  ["1 h", 3_600_000],
  ["10 min", 600_000],
  ["1 min", 60_000],
];

const word = (state: number) => palette.value[state]?.word ?? "unknown";

/** A mark in words. */
export function markWords(mark: Mark): string {
  const at = `${day(mark.t)} ${clock(mark.t)}`;
  const rank = mark.rank === undefined ? "" : `, rank ${mark.rank}`;
  if (mark.kind === "failed") return `failure in attempt ${mark.n ?? "unknown"}${rank}, ${at}`;
  if (mark.kind === "attempt") return `attempt ${mark.n ?? "unknown"} began, ${at}`;
  if (mark.kind === "saved") return `checkpoint of step ${mark.n === undefined ? "unknown" : count(mark.n)}, ${at}`;
  return `pod on another node in attempt ${mark.n ?? "unknown"}${rank}, ${at}`;
}

/** The strip of one run. */
export function StripView({ run, onReady }: { run: string; onReady(): void }) {
  const scene = useMemo(() => new Scene(), [run]);
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [asTable, setTable] = useState(false);
  const [columns, setColumns] = useState(0);
  const query = route.value.query;
  const by = query.by === "node" ? "node" : undefined;
  const [from, to] = [Number(query.from), Number(query.to)];
  const zoomed = Number.isFinite(from) && Number.isFinite(to) && to > from && query.from !== undefined;
  const ask = { columns: columns || undefined, by };
  const parts = ["runs", run, "strip"];
  const full = useDocument<Strip>(columns ? path(parts, ask) : undefined, ["strip"], `${run} ${by}`);
  const part = useDocument<Strip>(columns && zoomed ? path(parts, { from, to, ...ask }) : undefined, ["strip"], `${run} ${by}`);

  // The size of the page decides how many columns are asked for.
  useEffect(() => {
    const element = scroller.current;
    if (!element || !canvas.current) return;
    scene.attach(element, canvas.current);
    const measure = () => {
      scene.resize();
      setColumns(Math.min(2000, Math.max(200, Math.ceil((scene.width - scene.left) / 100) * 100)));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    const stop = effect(() => {
      void forced.value;
      scene.recolour(palette.value, dark.value);
    });
    return () => {
      observer.disconnect();
      stop();
      scene.detach();
    };
  }, [scene]);
  useEffect(() => scene.clear(), [scene, by]);
  // Only what others wrote into the address moves the window: what the strip wrote may be older than the last move.
  const written = useRef<string | undefined>(undefined);
  useEffect(() => {
    if (written.current === (zoomed ? `${from}-${to}` : "")) return;
    if (zoomed && scene.whole.peek()) {
      scene.whole.value = false;
      scene.window.value = { from, to };
    } else if (!zoomed && !scene.whole.peek()) scene.show(scene.limits, true);
    else if (zoomed && (scene.window.peek().from !== from || scene.window.peek().to !== to)) scene.show({ from, to });
  }, [from, to, zoomed, scene]);
  useEffect(() => {
    if (!full.data) return;
    scene.setFull(model(full.data));
    onReady();
  }, [full.data]);
  useEffect(() => {
    if (!part.data) return;
    scene.setWindow(model(part.data));
    onReady();
  }, [part.data]);

  // The window goes into the address once it rests.
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    const stop = effect(() => {
      const { from, to } = scene.window.value;
      const whole = scene.whole.value;
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (to - from <= 1) return;
        written.current = whole ? "" : `${from}-${to}`;
        setQuery(whole ? { from: undefined, to: undefined } : { from, to });
      }, 140);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [scene]);

  // The cell under the cursor is read out once the cursor rests.
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    return effect(() => {
      const cell = scene.cursor.value;
      clearTimeout(timer);
      if (!cell) return;
      timer = setTimeout(() => {
        const it = scene.shown.peek();
        if (it) announce(cellWords(it, cell.row, cell.t, word));
      }, 200);
    });
  }, [scene]);

  const toMark = (direction: 1 | -1) => {
    const it = scene.shown.peek();
    if (!it) return;
    const marks = it.marks.filter((mark) => mark.kind !== "saved");
    const at = scene.cursor.peek()?.t ?? (direction > 0 ? scene.window.peek().from : scene.window.peek().to);
    const next = direction > 0 ? marks.find((mark) => mark.t > at + 1) : marks.findLast((mark) => mark.t < at - 1);
    if (!next) return announce(direction > 0 ? "no later mark in this window" : "no earlier mark in this window");
    scene.moveTo({ row: next.row ?? -1, t: next.t });
    announce(markWords(next));
  };
  const openLogs = () => {
    const it = scene.shown.peek();
    const cell = scene.cursor.peek();
    const label = cell && cell.row >= 0 ? it?.labels[cell.row] : undefined;
    const attempt = cell && it?.marks.findLast((mark) => mark.kind === "attempt" && mark.t <= cell.t)?.n;
    const failed = cell && it && cell.row >= 0 ? it.marks.find((mark) => mark.row === cell.row && mark.kind === "failed" && Math.abs(mark.t - cell.t) <= scene.step * 2) : undefined;
    setQuery({ tab: "logs", rank: failed?.rank ?? label?.from, pod: undefined, offset: undefined, att: failed?.n ?? attempt }, true);
    showTabs();
  };
  const actions = { toMark, openLogs };
  useEffect(
    () =>
      addKeys([
        { keys: "n", does: "next mark on the strip", run: () => toMark(1) },
        { keys: "p", does: "previous mark on the strip", run: () => toMark(-1) },
        { keys: "l", does: "logs of the cell under the cursor", run: openLogs },
      ]),
    [scene],
  );
  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    // Not passive: Ctrl and the wheel zoom the strip and not the page.
    const onWheel = (event: WheelEvent) => wheel(scene, event);
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [scene]);

  const it = scene.shown.value;
  void scene.tall.value;
  const { seen, all } = scene.heights;
  const problem = (!full.data && full.problem) || (zoomed && !part.data && part.problem);
  const description = useMemo(() => (it ? summary(it) : ""), [it]);
  const legend = useMemo(() => it && <Legend model={it} />, [it]);
  return (
    <Panel title="Ranks over time" id="strip" command={commandOf(route.value, "strip")}>
      <div class="bar">
        <WindowButtons scene={scene} />
        <label>
          rows by{" "}
          <select value={by ?? "rank"} onChange={(event) => setQuery({ by: event.currentTarget.value === "node" ? "node" : undefined })}>
            <option value="rank">rank</option>
            <option value="node">node</option>
          </select>
        </label>
        {scene.rows > 28 && (
          <button
            type="button"
            aria-pressed={scene.tall.value}
            onClick={() => {
              scene.tall.value = !scene.tall.value;
              scene.redraw();
            }}
          >
            tall rows
          </button>
        )}
        <button type="button" aria-pressed={asTable} onClick={() => setTable(!asTable)}>
          as table
        </button>
        <button type="button" onClick={() => void download(path(["runs", run, "trace.json"]), `${run}.trace.json`)}>
          save as Chrome trace
        </button>
      </div>
      {problem && <Failure problem={problem} retry={full.retry} />}
      {!it && !problem && <Skeleton lines={8} show={full.slow} />}
      <div
        ref={scroller}
        id="strip-field"
        class="strip"
        tabIndex={0}
        role="application"
        aria-label="Strip. Arrow keys move the cell cursor, w and s zoom, a and d move the window, n and p go to marks, l opens logs."
        style={{ height: it ? `${seen}px` : "0px" }}
        data-ready={it ? "yes" : "no"}
        onScroll={(event) => scene.scrollTo(event.currentTarget.scrollTop)}
        onKeyDown={(event) => stripKeys(scene, actions, event)}
        onPointerDown={(event) => drag(scene, event)}
        onPointerMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          scene.hover.value = scene.cellAt(event.clientX - box.left, event.clientY - box.top);
          scene.redraw();
        }}
        onPointerLeave={() => {
          scene.hover.value = undefined;
          scene.redraw();
        }}
      >
        <canvas ref={canvas} role="img" aria-label={description} />
        <div style={{ height: `${Math.max(0, all - seen)}px` }} />
      </div>
      {it && (
        <>
          <Readout scene={scene} />
          {legend}
          <p class="quiet small">
            {it.exact ? "Exact spans." : `A cell is ${duration(it.bucket)} and shows its worst state; ${some(it.mixed, "cell")} hold more than one.`}
            {it.marksLeftOut > 0 && ` ${some(it.marksLeftOut, "mark")} are not drawn: zoom in to see them.`} Wheel scrolls ranks, Ctrl and wheel zooms, drag
            moves.
          </p>
          {asTable && <StripTable model={it} />}
        </>
      )}
    </Panel>
  );
}

/** Buttons of the window. A part of its own: it is rendered with every move, the panel is not. */
function WindowButtons({ scene }: { scene: Scene }) {
  const { from, to } = scene.window.value;
  const length = to - from;
  const known = scene.limits.to - scene.limits.from;
  return (
    <>
      <div class="group" role="group" aria-label="Window">
        <button type="button" aria-pressed={scene.whole.value} onClick={() => scene.show(scene.limits, true)}>
          all
        </button>
        {WINDOWS.filter(([, millis]) => millis < known).map(([name, millis]) => (
          <button type="button" aria-pressed={!scene.whole.value && length === millis} onClick={() => scene.show(aroundCursor(scene, millis))}>
            {name}
          </button>
        ))}
      </div>
      <div class="group" role="group" aria-label="Move">
        <button type="button" onClick={() => scene.pan(-0.5)}>
          earlier
        </button>
        <button type="button" onClick={() => scene.pan(0.5)}>
          later
        </button>
        <button type="button" onClick={() => scene.zoom(0.5)} aria-label="zoom in">
          zoom +
        </button>
        <button type="button" onClick={() => scene.zoom(2)} aria-label="zoom out">
          zoom −
        </button>
      </div>
    </>
  );
}

/** The cell under the cursor or the pointer, else the window. */
function Readout({ scene }: { scene: Scene }) {
  const it = scene.shown.value;
  const cell = scene.cursor.value ?? scene.hover.value;
  const { from, to } = scene.window.value;
  if (!it) return null;
  return (
    <p class="readout" id="strip-readout">
      {cell ? cellWords(it, cell.row, cell.t, word) : `${longDuration(to - from)}: ${span(from, to)}`}
      {cell && !it.exact && runsMany(it, cell.row, cell.t) && " (cells show their worst)"}
    </p>
  );
}

/** Whether the run at `t` is a single cell. */
function runsMany(it: NonNullable<Scene["shown"]["value"]>, row: number, t: number): boolean {
  const line = rowOf(it, row);
  const run = runAt(line, t);
  return (line.edges[run + 1] as number) - (line.edges[run] as number) <= it.bucket;
}

/** A window of a length around the cursor, else at the end of what is shown. */
function aroundCursor(scene: Scene, millis: number) {
  const cursor = scene.cursor.peek();
  const { to } = scene.window.peek();
  return cursor ? { from: cursor.t - millis / 2, to: cursor.t + millis / 2 } : { from: to - millis, to };
}
