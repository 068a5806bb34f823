/** The lines of one pod: a window that grows in both directions, of which only what is seen is on the page. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { asProblem, get, path } from "../api";
import { announce, copy } from "../clipboard";
import { Empty, Failure, Skeleton } from "../parts/basics";
import { Text } from "../parts/text";
import { format, route, setQuery } from "../route";
import { changes } from "../stream";
import { plain } from "../text";
import type { LogLine, Logs, Problem } from "../types";
import { bytes, clock, count, utc } from "../words";
import { before, begin, behind, items, type Item, type Lines } from "./log-lines";

/** The height of a line, as in the style. */
const LINE = 18;
const PAGE = 500;

/** Lines of a pod. */
export function LogWindow({ run, attempt, live }: { run: string; attempt: number | undefined; live: boolean }) {
  const { query } = route.value;
  const [window, setWindow] = useState<Lines>();
  const [meta, setMeta] = useState<Logs>();
  const [problem, setProblem] = useState<Problem>();
  const [slow, setSlow] = useState(false);
  const [following, setFollowing] = useState(false);
  const [selected, select] = useState<LogLine>();
  const [tries, retry] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const busy = useRef(false);
  // Where the list is scrolled to after the next change: a line, the end, or by how many lines.
  const target = useRef<{ offset?: number; end?: boolean; by?: number } | undefined>(undefined);
  const find = query.find;
  const ask = (more: Record<string, string | number | undefined>) =>
    get<Logs>(path(["runs", run, "logs"], { attempt, rank: query.pod ? undefined : query.rank, pod: query.pod, container: query.container, q: find, ...more }));

  // The first window: around a line, the first hits, or the end.
  const anchor = query.offset !== undefined ? `o${query.offset}` : query.line !== undefined ? `l${query.line}` : "";
  const shown = useRef<string | undefined>(undefined);
  useEffect(() => {
    // A line that is at hand is not asked for again.
    if (shown.current === anchor && window) return;
    shown.current = anchor;
    let stale = false;
    const timer = setTimeout(() => setSlow(true), 150);
    const load = async () => {
      if (find) {
        const logs = await ask({ offset: 0, lines: PAGE, dir: "forward" });
        return { logs, lines: begin(logs) };
      }
      if (anchor === "") {
        const logs = await ask({ lines: PAGE, dir: "back" });
        target.current = { end: true };
        return { logs, lines: begin(logs) };
      }
      const place = query.offset !== undefined ? { offset: Number(query.offset) || 0 } : { line: Number(query.line) || 1 };
      const logs = await ask({ ...place, lines: 300, dir: "forward" });
      const line = logs.lines[0];
      const lines = begin(logs);
      if (line) target.current = { offset: line.offset };
      if (!line || logs.first <= 0) return { logs, lines, line };
      const above = await ask({ offset: logs.first, lines: 200, dir: "back" });
      return { logs, lines: before(lines, above), line };
    };
    load()
      .then((it) => {
        if (stale) return;
        setMeta(it.logs);
        setWindow(it.lines);
        setProblem(undefined);
        if ("line" in it && it.line) select(it.line);
      })
      .catch((error: unknown) => !stale && setProblem(asProblem(error)))
      .finally(() => {
        clearTimeout(timer);
        if (!stale) setSlow(false);
      });
    return () => {
      stale = true;
      clearTimeout(timer);
    };
  }, [anchor, tries]);

  const grow = async (dir: "back" | "forward") => {
    if (busy.current || !window) return;
    busy.current = true;
    try {
      const logs = await ask({ offset: dir === "back" ? window.first : window.last, lines: PAGE, dir });
      if (dir === "back") target.current = { by: logs.lines.filter((line) => line.offset < window.first).length };
      else if (following) target.current = { end: true };
      setWindow(dir === "back" ? before(window, logs) : behind(window, logs));
      setMeta({ ...logs, ...(meta?.pods && !logs.pods ? { pods: meta.pods } : {}) });
      setProblem(undefined);
    } catch (error) {
      setProblem(asProblem(error));
      setFollowing(false);
    } finally {
      busy.current = false;
    }
  };
  const changed = changes.value.logs ?? 0;
  useEffect(() => {
    if (following) void grow("forward");
  }, [following, changed]);
  useEffect(() => {
    if (!following) return;
    // Where the stream is down, lines come with the next poll.
    const timer = setInterval(() => void grow("forward"), 5000);
    return () => clearInterval(timer);
  }, [following, window]);

  const all = useMemo(() => (window ? items(window.lines, find ? undefined : meta?.kept) : []), [window, meta?.kept, find]);
  useLayoutEffect(() => {
    const element = list.current;
    const wanted = target.current;
    if (!element || !wanted) return;
    target.current = undefined;
    if (wanted.end) element.scrollTop = element.scrollHeight;
    else if (wanted.by !== undefined) element.scrollTop += wanted.by * LINE;
    else {
      const at = all.findIndex((it) => "line" in it && it.line.offset === wanted.offset);
      element.scrollTop = Math.max(0, at * LINE - element.clientHeight / 3);
      element.scrollIntoView({ block: "nearest" });
    }
  }, [all]);

  if (!window) return problem ? <Failure problem={problem} retry={() => (retry(tries + 1), (shown.current = undefined))} /> : <Skeleton lines={10} show={slow} />;
  const choose = (line: LogLine, step = false) => {
    select(line);
    shown.current = `o${line.offset}`;
    if (!find) setQuery({ offset: line.offset, line: undefined }, step);
    announce(plain(line.text).slice(0, 300));
  };
  return (
    <>
      <WindowHead meta={meta} window={window} find={find} following={following} live={live} follow={() => setFollowing(!following)} />
      {problem && <Failure problem={problem} retry={() => void grow("forward")} />}
      {all.length === 0 ? (
        <Empty text={find ? "No line contains that text." : "This pod has written no line."} />
      ) : (
        <LineList all={all} list={list} find={find} selected={selected} choose={choose} grow={grow} more={{ back: window.first > 0 && !find, forward: !window.atEnd }} />
      )}
      {selected && <Selected line={selected} attempt={meta?.attempt} pod={meta?.pod} find={find} />}
    </>
  );
}

function WindowHead({ meta, window, find, following, live, follow }: { meta: Logs | undefined; window: Lines; find: string | undefined; following: boolean; live: boolean; follow(): void }) {
  const hits = meta?.hits;
  const pods = (meta?.pods ?? []).slice(0, 512);
  const key = (it: { pod: string; container: string }) => `${it.pod}\n${it.container}`;
  return (
    <div class="bar quiet">
      {pods.length > 1 && meta ? (
        <label>
          pod{" "}
          <select
            value={key(meta)}
            onChange={(event) => {
              const [pod, container] = event.currentTarget.value.split("\n");
              setQuery({ pod, container, rank: undefined, offset: undefined, line: undefined }, true);
            }}
          >
            {pods.map((it) => (
              <option value={key(it)}>
                {plain(it.pod)} {plain(it.container)}
                {it.firstRank == null ? "" : ` (rank ${it.firstRank})`}, {bytes(it.size)}
              </option>
            ))}
          </select>
        </label>
      ) : (
        meta && (
          <span>
            <Text raw={meta.pod} /> <Text raw={meta.container} />
          </span>
        )
      )}
      {meta && (
        <span class="number">
          {count(window.lines.length)} lines loaded, log is {bytes(meta.size)}
        </span>
      )}
      {find && hits !== undefined && (
        <strong id="hits" role="status">
          {typeof hits === "number" ? `${count(hits)} ${hits === 1 ? "line matches" : "lines match"}` : `at least ${count(hits.atLeast)} lines match: the search was stopped after its time limit`}
        </strong>
      )}
      {live && !find && (
        <button type="button" aria-pressed={following} onClick={follow}>
          follow
        </button>
      )}
    </div>
  );
}

interface ListProps {
  all: Item[];
  list: { current: HTMLDivElement | null };
  find: string | undefined;
  selected: LogLine | undefined;
  choose(line: LogLine, step?: boolean): void;
  grow(dir: "back" | "forward"): Promise<void>;
  more: { back: boolean; forward: boolean };
}

/** Only the lines that are seen, and some around them, are on the page. */
function LineList({ all, list, find, selected, choose, grow, more }: ListProps) {
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(480);
  const onScroll = () => {
    const element = list.current;
    if (!element) return;
    setTop(element.scrollTop);
    setHeight(element.clientHeight);
    if (more.back && element.scrollTop < 20 * LINE) void grow("back");
    if (more.forward && element.scrollTop + element.clientHeight > all.length * LINE - 20 * LINE) void grow("forward");
  };
  useLayoutEffect(onScroll, [all]);
  const from = Math.max(0, Math.floor(top / LINE) - 10);
  const to = Math.min(all.length, Math.ceil((top + height) / LINE) + 10);
  const onKey = (event: KeyboardEvent) => {
    const by = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    const element = list.current;
    if (by === undefined || event.ctrlKey || event.metaKey || !element) return;
    let at = all.findIndex((it) => "line" in it && it.line === selected);
    if (at < 0) at = Math.floor(element.scrollTop / LINE) - by;
    for (at += by; at >= 0 && at < all.length; at += by) {
      const item = all[at] as Item;
      if (!("line" in item)) continue;
      choose(item.line);
      if (at * LINE < element.scrollTop) element.scrollTop = at * LINE;
      else if ((at + 1) * LINE > element.scrollTop + element.clientHeight) element.scrollTop = (at + 1) * LINE - element.clientHeight;
      break;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="log-list" ref={list} tabIndex={0} role="region" aria-label="Log lines" onScroll={onScroll} onKeyDown={onKey} id="log-list" style={{ height: `${Math.min(480, all.length * LINE + 16)}px` }}>
      <div style={{ height: `${all.length * LINE}px` }} class="log-space">
        <div class="log-slice" style={{ transform: `translateY(${from * LINE}px)` }}>
          {all.slice(from, to).map((item) =>
            "gap" in item ? (
              <div class="log-line gap-line">… {bytes(item.gap)} of the log were not kept …</div>
            ) : (
              <div class={`log-line severity-${item.line.severity}${item.line.offset === selected?.offset ? " selected" : ""}`} onClick={() => choose(item.line)} key={item.line.offset}>
                <span class="log-time">{item.line.at === undefined ? "" : <time title={utc(item.line.at)}>{clock(item.line.at, "milli")}</time>}</span>
                <span class="log-text">
                  <Text raw={item.line.text.slice(0, 2000)} {...(find ? { find } : {})} />
                  {(item.line.cut || item.line.text.length > 2000) && <span class="quiet"> … cut</span>}
                </span>
              </div>
            ),
          )}
        </div>
      </div>
    </div>
  );
}

/** The chosen line in full. */
function Selected({ line, attempt, pod, find }: { line: LogLine; attempt: number | undefined; pod: string | undefined; find: string | undefined }) {
  const here = route.value;
  const link = format({ ...here, query: { ...here.query, tab: "logs", att: attempt, pod, rank: undefined, offset: line.offset, line: undefined, find: undefined, view: "lines" } });
  return (
    <div class="selected-line" id="selected-line">
      <p class="log-text wrap">
        <Text raw={line.text} />
        {line.cut && <span class="quiet"> … the line was cut here</span>}
      </p>
      <div class="bar">
        {line.rank !== undefined && <span class="quiet">rank {line.rank}</span>}
        {line.at !== undefined && <span class="quiet">{utc(line.at)}</span>}
        <span class="quiet">byte {count(line.offset)}</span>
        {find && <a href={link}>show it among its neighbours</a>}
        <button type="button" onClick={() => void copy("the link", new URL(link, location.href).href)}>
          copy link to this line
        </button>
        <button type="button" onClick={() => void copy("the line", plain(line.text))}>
          copy line
        </button>
      </div>
    </div>
  );
}
