/**
 * Changes as they happen: server-sent events over `fetch`, because only that can send the token.
 *
 * A visible tab holds one stream; a hidden one holds none. After a cut the stream resumes from the last number, with growing pauses; after three
 * failures in a row the page polls as well. `changes` counts what changed, by part; documents refetch when their count grows.
 */
import { effect, signal } from "@preact/signals";
import { headers } from "./api";
import { refused, token } from "./auth";
import { backOff, reader } from "./sse";
import type { Row } from "./types";

/** Failures in a row after which the page polls. */
const POLL_AFTER = 3;
const POLL_MILLIS = 10_000;
/** A stream that the server ends to check the token again is opened again after so long. */
const AGAIN = 100;
/** Without even a comment for so long, the stream is taken for dead. */
const SILENCE = 40_000;

/** How live the data is: since when the data is known, and when it came into this state. */
export const live = signal<{ state: "off" | "connecting" | "live" | "down" | "polling"; since: number; at: number }>({ state: "off", since: Date.now(), at: Date.now() });
/** How often each part changed: `jobs`, `status`, `strip`, and so on. */
export const changes = signal<Record<string, number>>({});
/** The newest row of a job that the stream has sent. */
export const changedRow = signal<Row | undefined>(undefined);

/** What the page looks at; a change opens a new stream. */
const topics = signal("jobs");

let stop: AbortController | undefined;
let failures = 0;
let last: string | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;
let polling: ReturnType<typeof setInterval> | undefined;
let started = false;
let latest = 0;

/** Counts a change of each part. */
export function bump(parts: string[]): void {
  const next = { ...changes.peek() };
  for (const part of parts) next[part] = (next[part] ?? 0) + 1;
  changes.value = next;
}

const ALL = ["jobs", "status", "strip", "logs", "checkpoints", "verdicts", "series", "events", "seats", "failures"];

/** Watches the list of jobs, and one run where there is one. */
export function watch(run: string | undefined): void {
  topics.value = run ? `jobs,run:${run}` : "jobs";
}

function take(event: string, text: string): void {
  let data: { row?: Row; stale?: boolean; changed?: string[]; resumed?: boolean; gone?: string };
  try {
    data = JSON.parse(text) as typeof data;
  } catch {
    return;
  }
  if (data.stale) return bump(ALL);
  if (event === "hello") {
    if (data.resumed === false && latest > 0) bump(ALL);
  } else if (event === "job") {
    if (data.row) changedRow.value = data.row;
    bump(["jobs"]);
  } else if (event === "run" && Array.isArray(data.changed)) {
    bump([...data.changed, "events"]);
  } else if (event === "log") bump(["logs"]);
}

/** Reads the stream to its end; whether the server ends it only to check the token again. */
async function connect(controller: AbortController): Promise<boolean> {
  const query = new URLSearchParams({ topics: topics.peek() });
  if (last !== undefined) query.set("since", last);
  const answer = await fetch(`api/v1/stream?${query}`, {
    headers: headers({ Accept: "text/event-stream" }),
    credentials: "same-origin", // A proxy in front may keep its session in a cookie; the server itself reads none.
    cache: "no-store",
    signal: controller.signal,
  });
  if (answer.status === 401) {
    refused.value = true;
    return false;
  }
  if (!answer.ok || !answer.body) throw new Error(`status ${answer.status}`);
  const read = reader();
  const chunks = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let silence: ReturnType<typeof setTimeout> | undefined;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => controller.abort(), SILENCE);
    if (live.peek().state !== "live") live.value = { state: "live", since: Date.now(), at: Date.now() };
    latest = Date.now();
    failures = 0;
    poll(false);
  };
  try {
    heard();
    for (;;) {
      const { done, value } = await chunks.read();
      if (done) break;
      heard();
      for (const event of read(value)) {
        if (event.id !== undefined) last = event.id;
        if (event.event === "bye") return event.data.includes('"again":true');
        take(event.event, event.data);
      }
    }
  } finally {
    clearTimeout(silence);
  }
  return false;
}

function poll(on: boolean): void {
  if (!on) {
    clearInterval(polling);
    polling = undefined;
  } else if (polling === undefined) {
    polling = setInterval(() => bump(ALL), POLL_MILLIS);
  }
}

/** Marks that data was read while the stream is down: its age starts anew. */
export function readAt(millis: number): void {
  const now = live.peek();
  if (now.state === "polling") live.value = { ...now, since: millis };
}

async function run(controller: AbortController): Promise<void> {
  try {
    const again = await connect(controller);
    if (again && stop === controller && !document.hidden && !refused.peek()) {
      timer = setTimeout(open, AGAIN);
      return;
    }
  } catch {
    // A cut is the ordinary end of a stream: what follows is the same.
  }
  // Another stream took over, or the tab is hidden.
  if (stop !== controller || document.hidden || refused.peek()) return;
  failures += 1;
  const since = latest || Date.now();
  const before = live.peek();
  const at = before.state === "down" || before.state === "polling" ? before.at : Date.now();
  live.value = failures >= POLL_AFTER ? { state: "polling", since: before.state === "polling" ? before.since : since, at } : { state: "down", since, at };
  poll(failures >= POLL_AFTER);
  timer = setTimeout(open, backOff(failures, Math.random()));
}

function close(): void {
  clearTimeout(timer);
  stop?.abort();
  stop = undefined;
}

function open(): void {
  close();
  if (document.hidden || refused.peek()) return;
  stop = new AbortController();
  if (live.peek().state === "off") live.value = { state: "connecting", since: Date.now(), at: Date.now() };
  void run(stop);
}

/** Tries again now. */
export function reconnect(): void {
  failures = 0;
  bump(ALL);
  open();
}

/** Opens the stream, and closes it while the tab is hidden. */
export function startStream(): void {
  if (started) return;
  started = true;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      poll(false);
    } else open();
  });
  effect(() => {
    // The stream depends on both: another topic or another token is another stream. Numbers are of the hub, so the stream resumes from the last one.
    void topics.value;
    void token.value;
    if (!refused.value) open();
  });
}
