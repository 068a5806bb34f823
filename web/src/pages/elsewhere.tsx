/** Nodes and queue: of a cluster as tables. Runs of one machine have neither: the page shows why, and the command that does. */
import { useEffect } from "preact/hooks";
import { firstView } from "../about";
import { path } from "../api";
import { useDocument } from "../load";
import { Command, Failure, Sentence, Skeleton } from "../parts/basics";
import { watch } from "../stream";
import type { ClusterNodes, Queue } from "../types";
import { capital } from "../words";
import { NodesTable, QueueTable } from "./cluster";

/** The command in a text, where it has one in backticks. */
function commandIn(text: string): string | undefined {
  return /`(trainyard [^`]{1,300})`/.exec(text)?.[1];
}

/** A page that this way of serving may not have. */
export function ElsewherePage({ what }: { what: "nodes" | "queue" }) {
  const document = useDocument<ClusterNodes | Queue>(path([what]), ["jobs"]);
  useEffect(() => watch(undefined), []);
  useEffect(() => {
    if (document.data || document.problem) firstView();
  }, [document.data, document.problem]);
  const { problem } = document;
  const fallback = what === "nodes" ? "trainyard nodes --cluster" : "trainyard ps --cluster";
  const command = problem && (commandIn(problem.hint ?? "") ?? commandIn(problem.message) ?? fallback);
  return (
    <>
      <div class="page-head">
        <h1>{what === "nodes" ? "Nodes" : "Queue"}</h1>
      </div>
      {problem?.code === "notHere" && command && (
        <div class="empty" id="not-here">
          <p>
            <Sentence text={`${capital(problem.message)}. This command shows a cluster:`} />
          </p>
          {problem.hint && !problem.hint.includes(command) && (
            <p>
              <Sentence text={problem.hint} />
            </p>
          )}
          <Command text={command} />
        </div>
      )}
      {problem && problem.code !== "notHere" && <Failure problem={problem} retry={document.retry} />}
      {!document.data && !problem && <Skeleton lines={4} show={document.slow} />}
      {document.data && "cluster" in document.data && <NodesTable nodes={document.data} />}
      {document.data && "rows" in document.data && <QueueTable queue={document.data} />}
    </>
  );
}
