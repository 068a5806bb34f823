/** What the doctor concluded about an attempt, with the lines that it rests on. */
import { path } from "../api";
import { commandOf } from "../clipboard";
import { useDocument } from "../load";
import { CopyCommand, Failure, Sentence, Time } from "../parts/basics";
import { Text } from "../parts/text";
import { format, route, setQuery } from "../route";
import type { Job, Row, Verdict, Verdicts } from "../types";
import { capital, spaced } from "../words";
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
export function VerdictCard({ run, job, row }: { run: string; job: Job | undefined; row: Row | undefined }) {
  const verdicts = useDocument<Verdicts>(path(["runs", run, "verdicts"]), ["verdicts"], run);
  const attempt = route.value.query.att;
  const all = verdicts.data?.verdicts ?? [];
  const verdict = (attempt && all.find((it) => String(it.attempt) === attempt)) || all[0];
  if (verdicts.problem && !verdicts.data) return <Failure problem={verdicts.problem} retry={verdicts.retry} />;
  if (!verdict) return <Explanation job={job} row={row} />;
  return (
    <>
      {/* A verdict is about the past: why no step comes now stands above it. */}
      {row?.state === "stalled" && <Explanation job={job} row={row} />}
      <Conclusion verdict={verdict} all={all} row={row} />
    </>
  );
}

function Conclusion({ verdict, all, row }: { verdict: Verdict; all: Verdict[]; row: Row | undefined }) {
  return (
    <section class={`panel verdict ${toneOf(verdict, row)}`} aria-labelledby="verdict-title" id="verdict" data-command={commandOf(route.value, "verdict")}>
      <div class="panel-head">
        <h2 id="verdict-title">Verdict of attempt {verdict.attempt}</h2>
        {verdict.at !== undefined && <Time at={verdict.at} />}
        {row?.state === "succeeded" && <span class="tone-done">✓ attempt {row.attempt} succeeded</span>}
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
        <Sentence text={verdict.sentence} />
        {about(verdict) && (
          <span class="quiet">
            {" "}
            [<Text raw={about(verdict)} />]
          </span>
        )}
      </p>
      {verdict.next && (
        <p>
          <strong>Next:</strong> <Sentence text={verdict.next} />
        </p>
      )}
      {verdict.evidence && verdict.evidence.length > 0 && (
        <ul class="evidence">
          {sameText(verdict.evidence).map((lines) => (
            <li>
              <code class="log-text">
                {lines[0].line > 0 ? <Text raw={lines[0].text} /> : <Sentence text={lines[0].text} />}
              </code>
              <span class="places">
                {lines.map((line) => (
                  <EvidenceLink verdict={verdict} line={line} />
                ))}
              </span>
            </li>
          ))}
        </ul>
      )}
      <dl class="facts small">
        <div>
          <dt>confidence</dt>
          <dd>{spaced(verdict.confidence)}</dd>
        </div>
        <div>
          <dt>account</dt>
          <dd>{spaced(verdict.account)}</dd>
        </div>
        <div>
          <dt>retry</dt>
          <dd>{spaced(verdict.retry)}</dd>
        </div>
        {verdict.refutedBy && (
          <div>
            <dt>refuted by</dt>
            <dd>
              <Sentence text={verdict.refutedBy} />
            </dd>
          </div>
        )}
      </dl>
    </section>
  );
}

type Evidence = NonNullable<Verdict["evidence"]>[number];

/** Lines of the same text together, in the order in which they came: several ranks often wrote the same. */
export function sameText(lines: Evidence[]): [Evidence, ...Evidence[]][] {
  const found = new Map<string, [Evidence, ...Evidence[]]>();
  for (const line of lines) {
    const known = found.get(line.text);
    if (known) known.push(line);
    else found.set(line.text, [line]);
  }
  return [...found.values()];
}

/** What the reader is to look at first: red while it is why the job failed, quiet once a later attempt succeeded. */
function toneOf(verdict: Verdict, row: Row | undefined): string {
  if (row?.state === "succeeded") return "verdict-past";
  return row?.state === "failed" && verdict.attempt === row.attempt ? "verdict-failed" : "verdict-open";
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
function Explanation({ job, row }: { job: Job | undefined; row: Row | undefined }) {
  const explain = job?.explain;
  const stalled = row?.state === "stalled";
  if (!explain?.sentence || (explain.standing === "runs" && !stalled) || explain.standing === "succeeded") return null;
  return (
    <section class={`panel verdict ${stalled ? "verdict-stalled" : "verdict-open"}`} aria-labelledby="explanation-title" id="explanation" data-command={commandOf(route.value, "verdict")}>
      <div class="panel-head">
        <h2 id="explanation-title">Why it {stalled ? "stalls" : explain.standing === "waits" ? "waits" : "ended"}</h2>
        <CopyCommand command={commandOf(route.value, "verdict")} what="explanation" />
      </div>
      <p class="verdict-sentence">
        {explain.cause && !stalled && (
          <code>
            <Text raw={explain.cause} />
          </code>
        )}{" "}
        <Sentence text={stalled ? capital(explain.sentence) : explain.sentence} />
      </p>
      {explain.next && (
        <p>
          <strong>Next:</strong> <Sentence text={explain.next} />
        </p>
      )}
      {explain.evidence && (
        <ul class="evidence">
          {explain.evidence.map((it) => (
            <li>
              <span class="quiet">
                <Text raw={it.from} />: <Text raw={it.says} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
