/** The tabs that are lists: checkpoints, events, spec. */
import { useEffect, useState } from "preact/hooks";
import { asProblem, get, path } from "../api";
import { commandOf, copy } from "../clipboard";
import { useDocument } from "../load";
import { CopyCommand, Empty, Failure, Sentence, Skeleton, Time } from "../parts/basics";
import { Text } from "../parts/text";
import { route } from "../route";
import type { Checkpoints, Events, Problem, Spec } from "../types";
import { bytes, capital, count, duration, some, spaced } from "../words";
import { yaml } from "../yaml";

/** Checkpoints, the newest first. */
export function CheckpointsTab({ run }: { run: string }) {
  const saves = useDocument<Checkpoints>(path(["runs", run, "checkpoints"]), ["checkpoints"], run);
  const { data } = saves;
  const rows = [...(data?.checkpoints ?? [])].sort((one, other) => other.step - one.step);
  return (
    <>
      <div class="bar">
        {data?.atRisk && (
          <span>
            at risk: {some(data.atRisk.steps, "step")} since the last checkpoint, {duration(data.atRisk.millis)} of training
          </span>
        )}
        <CopyCommand command={commandOf(route.value, "checkpoints")} what="checkpoints" />
      </div>
      {saves.problem && !data && <Failure problem={saves.problem} retry={saves.retry} />}
      {!data && !saves.problem && <Skeleton lines={5} show={saves.slow} />}
      {data && rows.length === 0 && <Empty text="No complete checkpoint was seen. Trainyard looks for them in the folder that the annotation `trainyard.dev/checkpoints` names." />}
      {rows.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Checkpoints">
          <table class="plain" id="checkpoints">
            <caption class="hidden-text">Checkpoints</caption>
            <thead>
              <tr>
                <th scope="col" class="number">
                  step
                </th>
                <th scope="col">saved</th>
                <th scope="col" class="number">
                  size
                </th>
                <th scope="col" class="number">
                  training stood still
                </th>
                <th scope="col" class="number">
                  written in
                </th>
                <th scope="col" class="number">
                  attempt
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.slice(0, 500).map((it) => (
                <tr key={it.step}>
                  <th scope="row" class="number">
                    {count(it.step)}
                  </th>
                  <td>
                    <Time at={it.at} />
                  </td>
                  <td class="number">{it.bytes == null ? "" : bytes(it.bytes)}</td>
                  <td class="number">{it.stallMillis == null ? "" : duration(it.stallMillis)}</td>
                  <td class="number">{it.writeMillis == null ? "" : duration(it.writeMillis)}</td>
                  <td class="number">{it.attempt ?? ""}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {rows.length > 500 && <p class="quiet">{count(rows.length - 500)} older checkpoints are not shown.</p>}
    </>
  );
}

/** Events that are failures. */
const FAILURES = new Set(["failed", "failures", "podFailed"]);

/** What happened, the newest first. */
export function EventsTab({ run }: { run: string }) {
  const events = useDocument<Events>(path(["runs", run, "events"]), ["events"], run);
  const [older, setOlder] = useState<{ events: Events["events"]; cursor?: string | null | undefined }>({ events: [] });
  const [problem, setProblem] = useState<Problem>();
  const { data } = events;
  useEffect(() => setOlder({ events: [] }), [run]);
  const cursor = older.events.length > 0 ? older.cursor : data?.cursor;
  const more = async () => {
    try {
      const next = await get<Events>(path(["runs", run, "events"], { cursor: cursor ?? undefined }));
      setOlder({ events: [...older.events, ...next.events].slice(0, 5000), cursor: next.cursor });
      setProblem(undefined);
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  const all = [...(data?.events ?? []), ...older.events];
  return (
    <>
      <div class="bar">
        <CopyCommand command={commandOf(route.value, "events")} what="events" />
      </div>
      {events.problem && !data && <Failure problem={events.problem} retry={events.retry} />}
      {!data && !events.problem && <Skeleton lines={6} show={events.slow} />}
      {data?.notes?.slice(0, 50).map((note) => (
        <p class="quiet small">
          <Sentence text={capital(note)} />
        </p>
      ))}
      {data && all.length === 0 && <Empty text="Nothing happened yet." />}
      <ol class="events" id="events">
        {all.map((it) => (
          <li>
            <Time at={it.at} />
            <span class="quiet">{it.attempt === undefined ? "" : `attempt ${it.attempt}`}</span>
            <span>{it.rank === undefined ? "" : `rank ${it.rank}`}</span>
            <span class={FAILURES.has(it.kind) ? "tone-failed" : ""}>
              <Text raw={spaced(it.kind)} />
            </span>
            <span>
              <Sentence text={it.sentence} />
            </span>
          </li>
        ))}
      </ol>
      {problem && <Failure problem={problem} retry={() => void more()} />}
      {cursor && (
        <button type="button" class="more" onClick={() => void more()}>
          older events
        </button>
      )}
    </>
  );
}

/** The job as it was asked for. */
export function SpecTab({ run }: { run: string }) {
  const spec = useDocument<Spec>(path(["runs", run, "spec"]), [], run);
  const text = spec.data ? yaml(spec.data.spec) : "";
  return (
    <>
      <div class="bar">
        <button type="button" disabled={!spec.data} onClick={() => void copy("the spec", text)}>
          copy YAML
        </button>
        <CopyCommand command={commandOf(route.value, "spec")} what="spec" />
      </div>
      {spec.problem && !spec.data && <Failure problem={spec.problem} retry={spec.retry} />}
      {!spec.data && !spec.problem && <Skeleton lines={8} show={spec.slow} />}
      {spec.data && (
        <pre class="raw" tabIndex={0} role="region" aria-label="Spec">
          {text.split("\n").map((line) => (
            <>
              <Text raw={line} />
              {"\n"}
            </>
          ))}
        </pre>
      )}
    </>
  );
}
