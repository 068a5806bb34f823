/** Which pod was on which node. */
import { path } from "../api";
import { useDocument } from "../load";
import { stateOf } from "../palette";
import { CopyCommand, Empty, Failure, Skeleton, Time } from "../parts/basics";
import { Text } from "../parts/text";
import { commandOf } from "../clipboard";
import { route } from "../route";
import { Swatch } from "../strip/legend";
import { rankWords } from "../strip/model";
import { dark } from "../theme";
import type { Row, Seats } from "../types";
import { count, some } from "../words";
import { More } from "../parts/basics";
import { AttemptField, chosenAttempt } from "./attempt";

/** The state whose colour a pod has. */
const TONES: Record<string, string> = {
  waiting: "placing",
  creating: "creating",
  pulling: "pulling",
  running: "training",
  succeeded: "done",
  failed: "failed",
  lost: "lost",
  gone: "suspended",
};
const toneOf = (state: string | null | undefined) => TONES[state ?? ""] ?? "notObserved";
/** The word for a state; the others are words already. */
const wordOf = (state: string | null | undefined) => (state == null ? "state unknown" : state === "gone" ? "terminated" : state);
const SIGNS: Record<string, string> = { failed: "╳", lost: "?", succeeded: "=", waiting: "…" };

type SeatNode = Seats["nodes"][number];

/** The tab. */
export function SeatsTab({ run, row }: { run: string; row: Row | undefined }) {
  const attempt = chosenAttempt();
  const seats = useDocument<Seats>(path(["runs", run, "seats"], { attempt }), ["status", "strip"], `${run} ${attempt}`);
  const { data } = seats;
  return (
    <>
      <div class="bar">
        <AttemptField row={row} />
        <CopyCommand command={commandOf(route.value, "seats")} what="seats" />
      </div>
      {seats.problem && !data && <Failure problem={seats.problem} retry={seats.retry} />}
      {!data && !seats.problem && <Skeleton lines={6} show={seats.slow} />}
      {data && data.nodes.length === 0 && <Empty text="No pod of this attempt has a node yet." />}
      {data && data.nodes.length > 0 && (
        <>
          <p class="quiet">
            {some(data.nodes.length, "node")}, {some(data.nodes.reduce((sum, it) => sum + it.pods.length, 0), "pod")}
            {data.nodesLeftOut > 0 && `; ${some(data.nodesLeftOut, "node")} without room`}
          </p>
          <States nodes={data.nodes} />
          <div class="seats" role="list" aria-label="Nodes and their pods">
            <More items={data.nodes} step={160} what="nodes" render={(node) => <NodeSeats node={node} key={node.node} />} />
          </div>
          {data.swaps.length > 0 && (
            <>
              <h3 class="next-part">Pods that changed their node</h3>
              <ul class="spaced">
                {data.swaps.slice(-50).reverse().map((swap) => (
                  <li>
                    <Time at={swap.at} /> <Text raw={swap.slot} /> from <Text raw={swap.from} /> to <Text raw={swap.to} />, attempt {swap.attempt}
                  </li>
                ))}
              </ul>
            </>
          )}
        </>
      )}
    </>
  );
}

/** What the squares mean, and how many there are of each. */
function States({ nodes }: { nodes: SeatNode[] }) {
  const counts = new Map<string | undefined, number>();
  for (const node of nodes) for (const pod of node.pods) counts.set(pod.state ?? undefined, (counts.get(pod.state ?? undefined) ?? 0) + 1);
  return (
    <ul class="legend">
      {[...counts].map(([state, times]) => (
        <li>
          <Swatch state={toneOf(state)} /> {count(times)} {wordOf(state)}
        </li>
      ))}
    </ul>
  );
}

function NodeSeats({ node }: { node: SeatNode }) {
  const bad = node.pods.filter((pod) => pod.state === "failed" || pod.state === "lost");
  return (
    <div class={`seat-node seat-${node.state}`} role="listitem">
      <div class="seat-name">
        <Text raw={[...node.path, node.node].filter(Boolean).join(" › ")} />
        {node.state !== "used" && <span class="quiet"> {node.state}</span>}
        {node.blamed > 0 && <span class="tone-failed"> blamed {count(node.blamed)} ×</span>}
      </div>
      <div class="squares">
        {node.pods.slice(0, 32).map((pod) => (
          <Square pod={pod} />
        ))}
        {node.pods.length > 32 && <span class="quiet">+ {node.pods.length - 32}</span>}
      </div>
      {(node.why || bad.length > 0) && (
        <div class="small">
          {bad.slice(0, 4).map((pod) => (
            <span class="tone-failed">
              {wordOf(pod.state)}: {pod.firstRank === undefined ? <Text raw={pod.slot} /> : `rank ${pod.firstRank}`}{" "}
            </span>
          ))}
          {node.why && <Text raw={node.why} />}
        </div>
      )}
    </div>
  );
}

/** A pod: one square for each rank, and its ranks in words for readers who see no colour. */
function Square({ pod }: { pod: SeatNode["pods"][number] }) {
  const look = stateOf(toneOf(pod.state));
  const ranks = pod.firstRank === undefined ? pod.slot : rankWords(pod.firstRank, pod.firstRank + Math.max(1, pod.ranks) - 1);
  const words = `${pod.firstRank === undefined ? "" : "rank "}${ranks}: ${wordOf(pod.state)}`;
  return (
    <span class="pod" title={words} role="img" aria-label={words} style={{ "--swatch": `#${dark.value ? look.dark : look.light}` }}>
      {Array.from({ length: Math.min(16, Math.max(1, pod.ranks)) }, () => (
        <span class="square">{SIGNS[pod.state ?? ""] ?? ""}</span>
      ))}
    </span>
  );
}
