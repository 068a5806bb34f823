/** The list of jobs. */
import { useEffect, useState } from "preact/hooks";
import { firstView } from "../about";
import { isSilence, path } from "../api";
import { commandOf } from "../clipboard";
import { addKeys } from "../keys";
import { useDocument } from "../load";
import { JOB_STATES } from "../palette";
import { CopyCommand, Empty, Failure, Sentence, Skeleton, StateWord } from "../parts/basics";
import { useNow } from "../parts/live";
import { Spark } from "../parts/spark";
import { Text } from "../parts/text";
import { go, jobLink, route, setQuery } from "../route";
import { watch } from "../stream";
import type { Jobs, Row } from "../types";
import { ago, count, duration, millisOf, percent, some, spaced, utc } from "../words";

const COLUMNS: [string, string, string][] = [
  ["state", "state", ""],
  ["job", "job", ""],
  ["namespace", "namespace", "wide"],
  ["kind", "kind", "wider"],
  ["ranks", "ranks", "number roomy"],
  ["attempt", "attempt", "number roomy"],
  ["", "failure budget used", "wider"],
  ["step", "step", "number wide"],
  ["", "goal", "wide"],
  ["", "last 24 h", "wide"],
  ["trainedRatio", "trained", "number roomy"],
  ["", "ran", "number roomy"],
  ["startedAt", "started", "number"],
];
/** Columns by which the server sorts. */
const SORTS = new Set(["job", "namespace", "kind", "state", "ranks", "attempt", "step", "trainedRatio", "startedAt"]);

/** The page of jobs. */
export function JobsPage() {
  const { query } = route.value;
  const [text, setText] = useState(query.q ?? "");
  const filters = { q: query.q, state: query.state, namespace: query.namespace, kind: query.kind, sort: query.sort };
  const filtered = Boolean(query.q || query.state || query.namespace || query.kind);
  const jobs = useDocument<Jobs>(path(["jobs"], { ...filters, cursor: query.cursor }), ["jobs"]);
  useEffect(() => watch(undefined), []);
  useEffect(() => {
    if (jobs.data || jobs.problem) firstView();
  }, [jobs.data, jobs.problem]);
  useEffect(() => {
    const timer = setTimeout(() => {
      if (text !== (route.peek().query.q ?? "")) setQuery({ q: text || undefined, cursor: undefined });
    }, 200);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => {
    const move = (by: number) => {
      const links = [...document.querySelectorAll<HTMLElement>("a[data-row]")];
      const at = links.indexOf(document.activeElement as HTMLElement);
      links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
    };
    return addKeys([
      { keys: "j, ArrowDown", does: "next job", run: () => move(1) },
      { keys: "k, ArrowUp", does: "previous job", run: () => move(-1) },
      { keys: "o", does: "open the job (Enter too)", run: () => document.activeElement?.closest<HTMLElement>("a[data-row]")?.click() },
    ]);
  }, []);
  const { data } = jobs;
  return (
    <>
      <div class="page-head">
        <h1>Jobs</h1>
        {data && <Counts jobs={data} state={query.state} />}
        <input
          type="search"
          data-filter
          aria-label="Filter jobs"
          placeholder="filter (press /)"
          value={text}
          maxLength={200}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <CopyCommand command={commandOf(route.value)} what="jobs" />
      </div>
      {(query.namespace || query.kind) && (
        <p class="bar">
          {(["namespace", "kind"] as const).map(
            (key) =>
              query[key] && (
                <button type="button" onClick={() => setQuery({ [key]: undefined, cursor: undefined })}>
                  {key} <Text raw={query[key]} /> · remove
                </button>
              ),
          )}
        </p>
      )}
      {jobs.problem && !(data && isSilence(jobs.problem)) && <Failure problem={jobs.problem} retry={jobs.retry} />}
      {!data && !jobs.problem && <Skeleton lines={6} show={jobs.slow} />}
      {data && data.rows.length === 0 && !filtered && <Empty text="There are no runs here yet. This command makes one:" command="trainyard run -- python train.py" />}
      {data && data.rows.length === 0 && filtered && (
        <div class="empty">
          <p>No job matches the filter.</p>
          <button
            type="button"
            onClick={() => {
              setText("");
              setQuery({ q: undefined, state: undefined, namespace: undefined, kind: undefined, cursor: undefined });
            }}
          >
            remove the filter
          </button>
        </div>
      )}
      {data && data.rows.length > 0 && <Table jobs={data} sort={query.sort} />}
      {data?.unreadable && data.unreadable.length > 0 && (
        <details class="panel">
          <summary>{some(data.unreadable.length, "entry", "entries")} cannot be read</summary>
          <ul>
            {data.unreadable.map((it) => (
              <li>
                <Text raw={it.run} />: <Text raw={it.why} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

/** How many jobs are in each state; a press filters. */
function Counts({ jobs, state }: { jobs: Jobs; state: string | undefined }) {
  const order = Object.keys(JOB_STATES).filter((it) => (jobs.counts[it] ?? 0) > 0);
  return (
    <div class="group" role="group" aria-label="Filter by state">
      {order.map((it) => (
        <button type="button" aria-pressed={state === it} onClick={() => setQuery({ state: state === it ? undefined : it, cursor: undefined })}>
          {count(jobs.counts[it] ?? 0)} {it}
        </button>
      ))}
    </div>
  );
}

function Table({ jobs, sort }: { jobs: Jobs; sort: string | undefined }) {
  const now = useNow(10_000);
  const total = typeof jobs.total === "number" ? count(jobs.total) : `at least ${count(jobs.total.atLeast)}`;
  const sortBy = (key: string) => setQuery({ sort: sort === key ? `-${key}` : sort === `-${key}` ? undefined : key, cursor: undefined });
  return (
    <>
      <table class="jobs" id="jobs">
        <caption class="hidden-text">Jobs, running first</caption>
        <thead>
          <tr>
            {COLUMNS.map(([key, word, style]) => (
              <th scope="col" class={style} aria-sort={key && sort === key ? "ascending" : key && sort === `-${key}` ? "descending" : undefined}>
                {SORTS.has(key) ? (
                  <button type="button" class="sort" onClick={() => sortBy(key)}>
                    {word}
                    {sort === key ? " ↑" : sort === `-${key}` ? " ↓" : ""}
                  </button>
                ) : (
                  word
                )}
              </th>
            ))}
          </tr>
        </thead>
        {jobs.rows.map((row) => (
          <JobRow row={row} now={now} key={row.id} />
        ))}
      </table>
      <p class="bar quiet">
        <span>
          {count(jobs.rows.length)} of {total} jobs
        </span>
        {route.value.query.cursor && (
          <button type="button" onClick={() => setQuery({ cursor: undefined }, true)}>
            first page
          </button>
        )}
        {jobs.cursor && (
          <button type="button" onClick={() => setQuery({ cursor: jobs.cursor ?? undefined }, true)}>
            next page
          </button>
        )}
      </p>
    </>
  );
}

/** Who paid for failed attempts. */
export function spentWords(row: Pick<Row, "spent">): string {
  const paid = Object.entries(row.spent ?? {}).filter(([, times]) => typeof times === "number" && times > 0);
  return paid.map(([account, times]) => `${times} ${spaced(account)}`).join(", ");
}

function JobRow({ row, now }: { row: Row; now: number }) {
  const link = jobLink(row.namespace, row.job);
  const began = millisOf(row.startedAt);
  const until = millisOf(row.endedAt) ?? now;
  const spent = spentWords(row);
  return (
    <tbody onClick={(event) => !(event.target as Element).closest("a, button") && getSelection()?.isCollapsed && go(link)}>
      <tr>
        <td>
          <StateWord state={row.state} />
        </td>
        <th scope="row">
          <a href={link} data-row>
            <Text raw={row.job} />
          </a>
        </th>
        <td class="wide">
          <button type="button" class="plain-button" onClick={() => setQuery({ namespace: row.namespace, cursor: undefined })} aria-label={`only namespace ${row.namespace}`}>
            <Text raw={row.namespace} />
          </button>
        </td>
        <td class="wider">
          <Text raw={row.kind} />
        </td>
        <td class="number roomy">{row.ranks == null ? "" : count(row.ranks)}</td>
        <td class="number roomy">{row.attempt ?? ""}</td>
        <td class="wider quiet budget">{spent}</td>
        <td class="number wide">{row.step == null ? "" : count(row.step)}</td>
        <td class="wide quiet">{row.steps != null && `of ${count(row.steps)}`}</td>
        <td class="wide">{row.day && <Spark cells={row.day} />}</td>
        <td class="number roomy">{row.trainedRatio == null ? "" : percent(row.trainedRatio)}</td>
        <td class="number roomy">{began === undefined ? "" : duration(until - began)}</td>
        <td class="number" title={began === undefined ? undefined : utc(began)}>
          {began === undefined ? "" : ago(began, now)}
        </td>
      </tr>
      {row.line && (
        <tr class={`line line-${row.state}`}>
          <td class="indent" />
          <td colSpan={COLUMNS.length - 1}>
            <Sentence text={row.line} />
          </td>
        </tr>
      )}
    </tbody>
  );
}
