/** Failures by cause, of all jobs. */
import { useEffect } from "preact/hooks";
import { firstView } from "../about";
import { isSilence, path } from "../api";
import { commandOf } from "../clipboard";
import { useDocument } from "../load";
import { CopyCommand, Empty, Failure, Sentence, Skeleton, Time } from "../parts/basics";
import { Text } from "../parts/text";
import { jobLink, route, setQuery } from "../route";
import { watch } from "../stream";
import type { Failures } from "../types";
import { capital, count } from "../words";

const WINDOWS = ["1d", "7d", "30d", "90d"];

/** The page of failures. */
export function FailuresPage() {
  const asked = route.value.query.window ?? "30d";
  const window = WINDOWS.includes(asked) ? asked : "30d";
  const failures = useDocument<Failures>(path(["failures"], { window }), ["jobs", "verdicts"]);
  useEffect(() => watch(undefined), []);
  useEffect(() => {
    if (failures.data || failures.problem) firstView();
  }, [failures.data, failures.problem]);
  const { data } = failures;
  // A column that no row fills is noise.
  const hasNodes = data?.rows.some((row) => row.nodes.length > 0);
  const hasHours = data?.rows.some((row) => row.gpuHours !== undefined);
  return (
    <>
      <div class="page-head">
        <h1>Failures</h1>
        <label>
          of the last{" "}
          <select value={window} onChange={(event) => setQuery({ window: event.currentTarget.value })}>
            {WINDOWS.map((it) => (
              <option value={it}>{it.replace("d", " d")}</option>
            ))}
          </select>
        </label>
        <CopyCommand command={commandOf(route.value)} what="failures" />
      </div>
      {failures.problem && !(data && isSilence(failures.problem)) && <Failure problem={failures.problem} retry={failures.retry} />}
      {!data && !failures.problem && <Skeleton lines={5} show={failures.slow} />}
      {data?.notes?.slice(0, 50).map((note) => (
        <p class="quiet small">
          <Sentence text={capital(note)} />
        </p>
      ))}
      {data && data.rows.length === 0 && <Empty text={`No verdict was stored in the last ${window.replace("d", " d")}.`} />}
      {data && data.rows.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Failures by cause">
          <table class="plain" id="failures">
            <caption class="hidden-text">Failures by cause</caption>
            <thead>
              <tr>
                <th scope="col">cause</th>
                <th scope="col" class="number">
                  times
                </th>
                <th scope="col" class="number roomy">
                  jobs
                </th>
                {hasNodes && (
                  <th scope="col" class="wide">
                    nodes
                  </th>
                )}
                <th scope="col" class="roomy">
                  first
                </th>
                <th scope="col">last</th>
                {hasHours && (
                  <th scope="col" class="number wide">
                    GPU-h lost
                  </th>
                )}
                <th scope="col" class="wide">
                  account
                </th>
              </tr>
            </thead>
            {data.rows.map((row) => (
              <tbody key={row.fingerprint}>
                <tr>
                  <th scope="row">
                    <strong>
                      <Text raw={row.label} />
                    </strong>
                    {row.place && (
                      <span class="quiet">
                        {" "}
                        <Text raw={row.place} />
                      </span>
                    )}
                  </th>
                  <td class="number">{count(row.times)}</td>
                  <td class="number roomy">{count(row.jobs)}</td>
                  {hasNodes && (
                    <td class="wide">
                      <Nodes nodes={row.nodes} />
                    </td>
                  )}
                  <td class="roomy">
                    <Time at={row.firstAt} />
                  </td>
                  <td>
                    <Time at={row.lastAt} />
                  </td>
                  {hasHours && <td class="number wide">{row.gpuHours === undefined ? "" : count(row.gpuHours)}</td>}
                  <td class="wide">{row.account ?? ""}</td>
                </tr>
                {row.newest && (
                  <tr class="line">
                    <td colSpan={8}>
                      newest:{" "}
                      <a href={jobLink(row.newest.namespace, row.newest.job, { run: row.newest.run, att: row.newest.attempt, tab: "logs" })}>
                        <Text raw={row.newest.job} />, attempt {row.newest.attempt}
                      </a>{" "}
                      <Sentence text={row.newest.sentence} />
                    </td>
                  </tr>
                )}
              </tbody>
            ))}
          </table>
        </div>
      )}
    </>
  );
}

function Nodes({ nodes }: { nodes: { node: string; times: number }[] }) {
  if (nodes.length === 0) return <span class="quiet">none known</span>;
  const worst = nodes.reduce((most, it) => (it.times > most.times ? it : most));
  return (
    <>
      {nodes.length === 1 ? "" : `${count(nodes.length)}, most on `}
      <Text raw={worst.node} /> × {count(worst.times)}
    </>
  );
}
