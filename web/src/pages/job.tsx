/** One job: header, verdict, strip, where the time went, and tabs. */
import { useEffect, useState } from "preact/hooks";
import { firstView } from "../about";
import { isSilence, path } from "../api";
import { VerdictCard } from "../job/verdict";
import { LedgerPanel } from "../job/ledger";
import { Notes } from "../job/notes";
import { Tabs } from "../job/tabs";
import { addKeys } from "../keys";
import { useDocument } from "../load";
import { CopyCommand, Failure, Sentence, Skeleton, StateWord, Time } from "../parts/basics";
import { Text } from "../parts/text";
import { commandOf } from "../clipboard";
import { route, setQuery } from "../route";
import { bump, changedRow, watch } from "../stream";
import { StripView } from "../strip/view";
import type { Job, Row } from "../types";
import { count, duration, longDuration, millisOf, percent, some } from "../words";
import { spentWords } from "./jobs";

/** How often a live run is drawn again without an event. */
const LIVE_MILLIS = 15_000;

/** The page of a job. */
export function JobPage({ namespace, name }: { namespace: string; name: string }) {
  const { query } = route.value;
  const job = useDocument<Job>(path(["jobs", namespace, name], { run: query.run }), ["status"], query.run ?? "");
  const { data } = job;
  const run = data?.run ?? query.run;
  const [ready, setReady] = useState(false);
  useEffect(() => watch(run), [run]);
  useEffect(() => {
    if (ready || job.problem) firstView();
  }, [ready, job.problem]);
  const runs = data?.row.live === true;
  useEffect(() => {
    if (!runs) return;
    // Time passes without an event: the strip and the sums of a run that is live grow with it.
    const timer = setInterval(() => !document.hidden && bump(["strip"]), LIVE_MILLIS);
    return () => clearInterval(timer);
  }, [runs]);
  const attempts = data?.row.attempt ?? undefined;
  useEffect(() => {
    const step = (by: number) => {
      if (attempts === undefined) return;
      const now = Number(route.peek().query.att ?? attempts);
      setQuery({ att: Math.max(1, Math.min(attempts, now + by)), offset: undefined, line: undefined });
    };
    return addKeys([
      { keys: "[", does: "previous attempt", run: () => step(-1) },
      { keys: "]", does: "next attempt", run: () => step(1) },
    ]);
  }, [attempts]);
  if (job.problem && !data) {
    return (
      <>
        <div class="page-head">
          <h1>
            <Text raw={name} />
          </h1>
        </div>
        <Failure problem={job.problem} retry={job.retry} />
        <p>
          <a href="#/jobs">all jobs</a>
        </p>
      </>
    );
  }
  const fresh = changedRow.value;
  const row = data && fresh && fresh.id === data.row.id ? fresh : data?.row;
  return (
    <>
      <Header namespace={namespace} name={name} job={data} row={row} />
      {job.problem && !(data && isSilence(job.problem)) && <Failure problem={job.problem} retry={job.retry} />}
      {!data && <Skeleton lines={3} show={job.slow} />}
      {run && (
        <>
          <VerdictCard run={run} job={data} row={row} />
          <StripView run={run} key={run} onReady={() => setReady(true)} />
          <LedgerPanel run={run} />
          {data && <Notes job={data} />}
          {ready && <Tabs run={run} row={row} />}
        </>
      )}
    </>
  );
}

function Header({ namespace, name, job, row }: { namespace: string; name: string; job: Job | undefined; row: Row | undefined }) {
  const began = millisOf(row?.startedAt);
  const ended = millisOf(row?.endedAt);
  const runs = job?.runs ?? [];
  const spent = row && spentWords(row);
  return (
    <div class="job-head">
      <div class="page-head">
        <h1>
          <a href={`#/jobs?namespace=${encodeURIComponent(namespace)}`} class="quiet-link">
            <Text raw={namespace} />
          </a>{" "}
          / <Text raw={name} />
        </h1>
        {row && <StateWord state={row.state} />}
        {runs.length > 1 && (
          <label>
            run{" "}
            <select value={job?.run} onChange={(event) => setQuery({ run: event.currentTarget.value, att: undefined, from: undefined, to: undefined, offset: undefined }, true)}>
              {runs.map((it) => (
                <option value={it.id}>
                  {it.id}
                  {it.outcome ? ` (${it.outcome})` : ""}
                </option>
              ))}
            </select>
          </label>
        )}
        <CopyCommand command={commandOf(route.value, "status")} what="job" />
      </div>
      {row && (
        <dl class="facts">
          <Fact term="attempt">{row.attempt ?? "unknown"}</Fact>
          {spent && <Fact term="failure budget used">{spent}</Fact>}
          {row.ranks != null && (
            <Fact term="ranks">
              {count(row.ranks)}
              {row.accelerators != null && row.accelerators > 0 && <span class="quiet"> on {some(row.accelerators, "GPU")}</span>}
            </Fact>
          )}
          {row.step != null && (
            <Fact term="step">
              {count(row.step)}
              {row.steps != null && (
                <span class="quiet">
                  {" "}
                  / {count(row.steps)} ({percent(row.step / Math.max(1, row.steps))})
                </span>
              )}
            </Fact>
          )}
          <Eta job={job} row={row} />
          {row.trainedRatio != null && <Fact term="trained">{percent(row.trainedRatio)}</Fact>}
          <Fact term="started">
            <Time at={row.startedAt} />
          </Fact>
          {began !== undefined && <Fact term={ended === undefined ? "running for" : "ran"}>{longDuration((ended ?? Date.now()) - began)}</Fact>}
          <Fact term="kind">
            <Text raw={row.kind} />
          </Fact>
        </dl>
      )}
      {row?.line && row.lineKind !== "verdict" && !(row.state === "stalled" && job?.explain?.sentence) && (
        <p class={row.lineKind === "stalled" || row.lineKind === "failure" ? "lead tone-stalled" : "lead"}>
          <Sentence text={row.line} />
        </p>
      )}
    </div>
  );
}

/** The time left, where steps and their goal are known and the job runs. */
function Eta({ job, row }: { job: Job | undefined; row: Row }) {
  const each = Number(job?.status?.progress?.stepSeconds);
  if (!row.live || row.steps == null || row.step == null || !Number.isFinite(each) || each <= 0) return null;
  const millis = (row.steps - row.step) * each * 1000;
  return millis > 0 ? <Fact term="time left">{duration(millis)}</Fact> : null;
}

function Fact({ term, children }: { term: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{term}</dt>
      <dd>{children}</dd>
    </div>
  );
}
