/** Lines of all ranks: the first failure open on top, equal lines together. */
import { useState } from "preact/hooks";
import { path } from "../api";
import { useDocument } from "../load";
import { Empty, Failure, More, Skeleton } from "../parts/basics";
import { Text } from "../parts/text";
import { rowsOf } from "./groups";
import { format, route } from "../route";
import { ranksIn } from "../ranks";
import type { Folded, LogGroup, LogLine, Logs } from "../types";
import { bytes, clock, count, some, utc } from "../words";

const ROLES: Record<LogGroup["role"], string> = { cause: "cause", symptom: "error", wrapper: "follows from the above", progress: "progress", other: "" };

/** A link to lines of a pod. */
function linesLink(attempt: number | undefined, at: { pod?: string | undefined; offset?: number | undefined; rank?: number | undefined }): string {
  const here = route.value;
  const place = at.pod === undefined ? { rank: at.rank, pod: undefined } : { pod: at.pod, rank: undefined };
  return format({ ...here, query: { ...here.query, tab: "logs", att: attempt, ...place, offset: at.offset, line: undefined, find: undefined, view: "lines" } });
}

/** The folded logs of an attempt. */
export function FoldedLogs({ run, attempt }: { run: string; attempt: number | undefined }) {
  const folded = useDocument<Folded>(path(["runs", run, "logs", "folded"], { attempt }), ["logs"], `${run} ${attempt}`);
  const [bad, setBad] = useState(false);
  const { data } = folded;
  if (!data) {
    return folded.problem ? <Failure problem={folded.problem} retry={folded.retry} /> : <Skeleton lines={8} show={folded.slow} />;
  }
  const rows = rowsOf(data.groups);
  const worse = rows.filter((it) => it.severity !== "info");
  const groups = bad ? worse : rows;
  return (
    <>
      {data.firstFailure && <FirstFailure run={run} folded={data} attempt={attempt ?? data.attempt} key={data.firstFailure.text} />}
      {data.groups.length === 0 && <Empty text="No rank of this attempt has written a line yet." />}
      {data.groups.length > 0 && (
        <>
          <div class="bar quiet">
            <div class="group" role="group" aria-label="Groups">
              <button type="button" aria-pressed={!bad} onClick={() => setBad(false)}>
                {some(rows.length, "group")}
              </button>
              <button type="button" aria-pressed={bad} onClick={() => setBad(true)}>
                {count(worse.length)} with errors or warnings
              </button>
            </div>
            {data.bytes !== undefined && <span>{bytes(data.bytes)} read</span>}
            {data.bytesLeftOut !== undefined && data.bytesLeftOut > 0 && <span>{bytes(data.bytesLeftOut)} not read: open a pod to see them</span>}
            {data.leftOut > 0 && <span>{some(data.leftOut, "line")} in no group for want of room</span>}
          </div>
          <ol class="groups" id="groups">
            <More items={groups} step={200} what="groups" render={(group, at) => <Group group={group} attempt={attempt ?? data.attempt} key={`${at} ${group.template}`} />} />
          </ol>
        </>
      )}
      {data.unread && data.unread.length > 0 && (
        <ul class="quiet">
          {data.unread.map((it) => (
            <li>
              log of <Text raw={it.pod} /> not read: <Text raw={it.why} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** Lines behind the first failure that are shown: a traceback begins with the line that is known and ends with the exception. */
const BEHIND = 16;

/** The place of the first failure in the log of its rank, and the lines behind it. Nothing until they are there, or where the rank is unknown. */
function useBehind(run: string, attempt: number, first: Folded["firstFailure"]): { offset: number; lines: LogLine[] } | undefined {
  const text = first?.text.trim().slice(0, 200);
  const parts = ["runs", run, "logs"];
  const rank = first?.rank;
  const hits = useDocument<Logs>(rank !== undefined && text ? path(parts, { attempt, rank, q: text, offset: 0, lines: 50, dir: "forward" }) : undefined);
  const line = hits.data?.lines.find((it) => it.at === first?.at) ?? hits.data?.lines[0];
  const behind = useDocument<Logs>(line && path(parts, { attempt, rank, offset: line.offset, lines: BEHIND + 1, dir: "forward" }));
  if (!line) return undefined;
  return { offset: line.offset, lines: (behind.data?.lines ?? []).filter((it) => it.offset > line.offset) };
}

function FirstFailure({ run, folded, attempt }: { run: string; folded: Folded; attempt: number }) {
  const first = folded.firstFailure;
  const behind = useBehind(run, attempt, first);
  if (!first) return null;
  return (
    <section class="first-failure" aria-labelledby="first-failure-title" id="first-failure">
      <div class="panel-head">
        <h3 id="first-failure-title">First failure{first.rank === undefined ? "" : `: rank ${first.rank}`}</h3>
        {first.at !== undefined && <time title={utc(first.at)}>{clock(first.at, "milli")}</time>}
        <a href={linesLink(attempt, { rank: first.rank, pod: first.pod, offset: first.offset ?? behind?.offset })}>open its log</a>
      </div>
      <pre class="lines" tabIndex={0} role="region" aria-label="Lines around the first failure">
        {(first.before ?? []).map((line) => (
          <div class="log-line quiet">
            <Text raw={line} />
          </div>
        ))}
        <div class="log-line failed-line">
          <span aria-hidden="true">✗ </span>
          <Text raw={first.text} />
        </div>
        {behind?.lines.map((line) => (
          <div class="log-line" key={line.offset}>
            <Text raw={line.text} />
          </div>
        ))}
      </pre>
    </section>
  );
}

/** Ranks that have a link of their own when a group is open. */
const RANKS_SHOWN = 64;

function Group({ group, attempt }: { group: LogGroup; attempt: number }) {
  const [open, setOpen] = useState(false);
  const same = group.firstAt === undefined || group.lastAt === undefined || group.lastAt - group.firstAt < 1000;
  const times = group.firstAt === undefined ? "" : same ? clock(group.firstAt) : `${clock(group.firstAt)}–${clock(group.lastAt as number)}`;
  const ranks = open ? ranksIn(group.ranks, RANKS_SHOWN) : undefined;
  return (
    <li class={`group-row severity-${group.severity}`}>
      <button type="button" class="group-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class="turn" aria-hidden="true">
          {open ? "▾" : "▸"}
        </span>
        <span class="number group-time">{times}</span>
        <span class="number group-count">× {count(group.count)}</span>
        <span class="group-ranks" title={group.ranks}>
          {group.ranks ? `${/[-,]/.test(group.ranks) ? "ranks" : "rank"} ${group.ranks}` : ""}
        </span>
        <span class="log-text group-text">
          {group.severity !== "info" && <strong class={group.severity === "error" ? "tone-failed" : "tone-warning"}>{group.severity === "error" ? "✗ error " : "! warning "}</strong>}
          <Text raw={group.count > 1 ? group.template : group.example} />
        </span>
        {ROLES[group.role] && group.role !== "symptom" && <span class="quiet small">{ROLES[group.role]}</span>}
      </button>
      {open && (
        <div class="group-body">
          <p class="log-text wrap">
            <Text raw={group.example} />
          </p>
          <p>
            <a href={linesLink(attempt, { pod: group.pod, offset: group.offset, rank: group.firstRank })}>open the first of them in its log</a>
          </p>
          {ranks && ranks.ranks.length > 0 && (
            <p class="rank-links">
              logs of rank:{" "}
              {ranks.ranks.map((rank) => (
                <>
                  <a href={linesLink(attempt, { rank })}>{rank}</a>{" "}
                </>
              ))}
              {ranks.more > 0 && <span class="quiet">and {count(ranks.more)} more: enter a rank above</span>}
            </p>
          )}
        </div>
      )}
    </li>
  );
}
