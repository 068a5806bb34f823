/** What the doctor concluded about an attempt, with the lines that it rests on. */
import { path } from "../api";
import { commandOf } from "../clipboard";
import { useDocument } from "../load";
import { CopyCommand, Failure, Time } from "../parts/basics";
import { Text } from "../parts/text";
import { format, route, setQuery } from "../route";
import type { Job, Verdict, Verdicts } from "../types";
import { spaced } from "../words";
import { showTabs } from "./tabs";

/** `rank 517 on gpu-064`. */
function about(verdict: Verdict): string {
  const ranks = verdict.ranks ?? (verdict.rank === undefined ? [] : [verdict.rank]);
  const nodes = verdict.nodes ?? (verdict.node === undefined ? [] : [verdict.node]);
  const some = (items: (string | number)[], most: number) => (items.length > most ? `${items.slice(0, most).join(", ")} and ${items.length - most} more` : items.join(", "));
  const words = [ranks.length > 0 ? `${ranks.length === 1 ? "rank" : "ranks"} ${some(ranks, 8)}` : "", nodes.length > 0 ? some(nodes, 3) : ""];
  return words.filter((word) => word !== "").join(", ");
}

/** The verdict of the attempt that the address names, else the newest. Nothing where there is none; then the explanation of the job, if it waits. */
export function VerdictCard({ run, job }: { run: string; job: Job | undefined }) {
  const verdicts = useDocument<Verdicts>(path(["runs", run, "verdicts"]), ["verdicts"], run);
  const attempt = route.value.query.att;
  const all = verdicts.data?.verdicts ?? [];
  const verdict = (attempt && all.find((it) => String(it.attempt) === attempt)) || all[0];
  if (verdicts.problem && !verdicts.data) return <Failure problem={verdicts.problem} retry={verdicts.retry} />;
  if (!verdict) return <Explanation job={job} />;
  return (
    <section class="panel verdict" aria-labelledby="verdict-title" id="verdict" data-command={commandOf(route.value, "verdict")}>
      <div class="panel-head">
        <h2 id="verdict-title">Verdict of attempt {verdict.attempt}</h2>
        <span>
          {spaced(verdict.confidence)} confidence · {spaced(verdict.account)} account · retry {spaced(verdict.retry)}
        </span>
        {verdict.at !== undefined && <Time at={verdict.at} />}
        {all.length > 1 && (
          <label>
            attempt{" "}
            <select value={String(verdict.attempt)} onChange={(event) => setQuery({ att: event.currentTarget.value, offset: undefined, line: undefined })}>
              {all.map((it) => (
                <option value={String(it.attempt)}>{it.attempt}</option>
              ))}
            </select>
          </label>
        )}
        <CopyCommand command={commandOf(route.value, "verdict")} what="verdict" />
      </div>
      <p class="verdict-sentence">
        <code>
          <Text raw={verdict.label} />
        </code>{" "}
        <Text raw={verdict.sentence} />
        {about(verdict) && (
          <span class="quiet">
            {" "}
            [<Text raw={about(verdict)} />]
          </span>
        )}
      </p>
      {verdict.evidence && verdict.evidence.length > 0 && (
        <ul class="evidence">
          {verdict.evidence.map((line) => (
            <li>
              <code class="log-text">
                <Text raw={line.text} />
              </code>
              <EvidenceLink verdict={verdict} line={line} />
            </li>
          ))}
        </ul>
      )}
      <dl class="facts">
        {verdict.next && (
          <div>
            <dt>next</dt>
            <dd>
              <Text raw={verdict.next} />
            </dd>
          </div>
        )}
        {verdict.refutedBy && (
          <div>
            <dt>refuted by</dt>
            <dd>
              <Text raw={verdict.refutedBy} />
            </dd>
          </div>
        )}
      </dl>
    </section>
  );
}

/** To the line in the log. A line without a number is known without a log. */
function EvidenceLink({ verdict, line }: { verdict: Verdict; line: { file: string; line: number; rank?: number } }) {
  const where = line.rank === undefined ? line.file : `rank ${line.rank}`;
  if (line.line <= 0)
    return (
      <span class="quiet">
        <Text raw={where} />
      </span>
    );
  const here = route.value;
  const query = { ...here.query, tab: "logs", att: verdict.attempt, rank: line.rank ?? verdict.rank ?? verdict.ranks?.[0], line: line.line, view: "lines", offset: undefined, pod: undefined, find: undefined };
  return (
    <a href={format({ ...here, query })} onClick={showTabs}>
      <Text raw={where} />, line {line.line} in the log
    </a>
  );
}

/** Why a job without a verdict does not run. */
function Explanation({ job }: { job: Job | undefined }) {
  const explain = job?.explain;
  if (!explain?.sentence || explain.standing === "runs" || explain.standing === "succeeded") return null;
  return (
    <section class="panel verdict" aria-labelledby="verdict-title" id="verdict">
      <div class="panel-head">
        <h2 id="verdict-title">Why it {explain.standing === "waits" ? "waits" : "ended"}</h2>
        <CopyCommand command={commandOf(route.value, "verdict")} what="explanation" />
      </div>
      <p class="verdict-sentence">
        {explain.cause && (
          <code>
            <Text raw={explain.cause} />
          </code>
        )}{" "}
        <Text raw={explain.sentence} />
      </p>
      {explain.evidence && (
        <ul class="evidence">
          {explain.evidence.map((it) => (
            <li>
              <Text raw={it.from} />: <Text raw={it.says} />
            </li>
          ))}
        </ul>
      )}
      {explain.next && (
        <p>
          next: <Text raw={explain.next} />
        </p>
      )}
    </section>
  );
}
