/** Nodes and queue of a cluster, as tables. */
import { Empty, Sentence, Time } from "../parts/basics";
import { Text } from "../parts/text";
import { jobLink } from "../route";
import type { Area, ClusterNodes, Host, Queue } from "../types";
import { capital, count, some } from "../words";

/** Rows of the page. */
const MOST = 500;

/** A node with the names of the domains it lies in. */
interface Place {
  path: string[];
  host: Host;
}

/** All nodes below `area`, those that accept no pods first. */
export function hostsOf(area: Area): Place[] {
  const found: Place[] = [];
  const walk = (area: Area, path: string[]) => {
    for (const host of area.hosts ?? []) found.push({ path, host });
    for (const part of area.areas ?? []) walk(part, [...path, part.name ?? `no ${part.level}`]);
  };
  walk(area, []);
  return found.sort((one, other) => Number(isBad(other.host)) - Number(isBad(one.host)));
}

function isBad(host: Host): boolean {
  return Boolean(host.state) || host.preflight?.outcome === "fail";
}

/** Every node with its accelerators, who holds them, and why it accepts no pods. */
export function NodesTable({ nodes }: { nodes: ClusterNodes }) {
  const { cluster, warnings = [] } = nodes;
  const { total, free, held, foreign, out } = cluster.accelerators;
  const places = hostsOf(cluster);
  if (places.length === 0) return <Empty text="The cluster has no node." />;
  return (
    <>
      <p>
        {some(cluster.nodes, "node")}, {some(total, "GPU")}: {count(free)} free, {count(held)} held by jobs, {count(foreign)} by other pods, {count(out)} on nodes that accept no pods
      </p>
      {warnings.length > 0 && (
        <ul class="spaced tone-warning">
          {warnings.slice(0, 50).map((it) => (
            <li>
              <Sentence text={it} />
            </li>
          ))}
        </ul>
      )}
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Nodes">
        <table class="plain full" id="nodes">
          <caption class="hidden-text">Nodes, those that accept no pods first</caption>
          <thead>
            <tr>
              <th scope="col">node</th>
              <th scope="col" class="number">
                free
              </th>
              <th scope="col" class="number">
                GPUs
              </th>
              <th scope="col" class="roomy">
                held by
              </th>
              <th scope="col">state</th>
            </tr>
          </thead>
          <tbody>
            {places.slice(0, MOST).map((place) => (
              <NodeRow place={place} key={place.host.name} />
            ))}
          </tbody>
        </table>
      </div>
      {places.length > MOST && (
        <p class="quiet">
          {some(places.length - MOST, "more node")} not shown: <code>trainyard nodes</code> lists all.
        </p>
      )}
    </>
  );
}

function NodeRow({ place: { path, host } }: { place: Place }) {
  const why = host.state ?? (host.preflight && host.preflight.outcome !== "pass" ? host.preflight.why : undefined);
  return (
    <tr>
      <th scope="row">
        {path.length > 0 && (
          <span class="quiet">
            <Text raw={path.join(" › ")} /> ›{" "}
          </span>
        )}
        <Text raw={host.name} />
      </th>
      <td class="number">{count(host.accelerators.free)}</td>
      <td class="number">{count(host.accelerators.total)}</td>
      <td class="roomy">
        {host.holders.slice(0, 4).map((it) => (
          <div>
            <Text raw={it.gang} /> × {count(it.accelerators)}
          </div>
        ))}
        {host.holders.length > 4 && <span class="quiet">and {host.holders.length - 4} more</span>}
      </td>
      <td class={isBad(host) ? "tone-failed" : ""}>
        {why && <Sentence text={why} />}
        {host.probationUntil && (
          <>
            {" "}
            on probation until <Time at={host.probationUntil} />
          </>
        )}
      </td>
    </tr>
  );
}

/** Jobs that wait, the oldest first, each with its reason. */
export function QueueTable({ queue }: { queue: Queue }) {
  const { rows, rowsLeftOut = 0, unreadable = [] } = queue;
  return (
    <>
      {unreadable.length > 0 && (
        <ul class="spaced tone-warning">
          {unreadable.map((it) => (
            <li>
              {capital(it.run)}: <Sentence text={it.why} />
            </li>
          ))}
        </ul>
      )}
      {rows.length === 0 && <Empty text="No job waits." />}
      {rows.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Queue">
          <table class="plain full" id="queue">
            <caption class="hidden-text">Jobs that wait, the oldest first</caption>
            <thead>
              <tr>
                <th scope="col">job</th>
                <th scope="col" class="number">
                  pods
                </th>
                <th scope="col" class="number">
                  GPUs
                </th>
                <th scope="col" class="roomy">
                  queue
                </th>
                <th scope="col">created</th>
              </tr>
            </thead>
            {rows.map((row) => (
              <tbody key={row.id}>
                <tr>
                  <th scope="row">
                    <a href={jobLink(row.namespace, row.job)}>
                      <Text raw={row.job} />
                    </a>{" "}
                    <span class="quiet">
                      <Text raw={row.namespace} />
                    </span>
                  </th>
                  <td class="number">{count(row.pods)}</td>
                  <td class="number">{row.accelerators == null ? "" : count(row.accelerators)}</td>
                  <td class="roomy">{row.queue && <Text raw={row.queue} />}</td>
                  <td>
                    <Time at={row.createdAt} />
                  </td>
                </tr>
                <tr class="line">
                  <td colSpan={5}>{row.reason ? <Sentence text={row.reason} /> : "no reason was reported"}</td>
                </tr>
              </tbody>
            ))}
          </table>
        </div>
      )}
      {rowsLeftOut > 0 && <p class="quiet">{some(rowsLeftOut, "more job")} not shown.</p>}
    </>
  );
}
