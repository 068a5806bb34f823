/** Where the time went, and what cost most. */
import { path } from "../api";
import { commandOf } from "../clipboard";
import { useDocument } from "../load";
import { stateOf } from "../palette";
import { Failure, Panel, Sentence, Skeleton } from "../parts/basics";
import { route } from "../route";
import { Swatch } from "../strip/legend";
import { dark } from "../theme";
import type { Ledger } from "../types";
import { count, hours, longDuration, percent } from "../words";

/** The panel. */
export function LedgerPanel({ run }: { run: string }) {
  const ledger = useDocument<Ledger>(path(["runs", run, "ledger"]), ["status", "strip"], run);
  const { data } = ledger;
  return (
    <Panel title={data ? `Where ${longDuration(data.wall)} went` : "Where the time went"} id="ledger" command={commandOf(route.value, "ledger")}>
      {ledger.problem && !data && <Failure problem={ledger.problem} retry={ledger.retry} />}
      {!data && !ledger.problem && <Skeleton lines={4} show={ledger.slow} />}
      {data && data.wall === 0 && <p class="quiet">No time was recorded yet.</p>}
      {data && data.wall > 0 && (
        <div class="columns">
          <Phases ledger={data} />
          <Losses ledger={data} />
        </div>
      )}
    </Panel>
  );
}

const RATIOS: [keyof Ledger["ettr"], string, string][] = [
  ["all", "wall time spent training (ETTR)", "training ÷ (all time − suspended)"],
  ["sinceSeated", "without queue and placement", "training ÷ (all time − suspended − queued − placing)"],
  ["lastHour", "last hour", "the same over the last hour"],
  ["lastDay", "last 24 h", "the same over the last 24 hours"],
];

function Phases({ ledger }: { ledger: Ledger }) {
  const hasGpus = ledger.phases.some((it) => it.gpuMillis);
  const known = RATIOS.filter(([key]) => ledger.ettr[key] !== undefined && ledger.ettr[key] !== null);
  return (
    <div>
      <div class="stack" aria-hidden="true">
        {ledger.phases.map((it) => {
          const look = stateOf(it.phase);
          return <span style={{ flexGrow: String(it.millis / ledger.wall), background: `#${dark.value ? look.dark : look.light}` }} />;
        })}
      </div>
      <table class="plain compact" id="phases">
        <caption class="hidden-text">Time by phase</caption>
        <thead>
          <tr>
            <th scope="col">phase</th>
            <th scope="col" class="number">
              time
            </th>
            <th scope="col" class="number">
              share
            </th>
            {hasGpus && (
              <th scope="col" class="number">
                GPU-h
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {ledger.phases.map((it) => (
            <tr>
              <th scope="row">
                <Swatch state={it.phase} /> {stateOf(it.phase).name === it.phase ? stateOf(it.phase).word : it.phase}
              </th>
              <td class="number" title={`${it.millis} ms`} data-millis={it.millis}>
                {hours(it.millis)}
              </td>
              <td class="number">{percent(it.millis / ledger.wall)}</td>
              {hasGpus && <td class="number">{it.gpuMillis ? count(it.gpuMillis / 3.6e6) : ""}</td>}
            </tr>
          ))}
        </tbody>
      </table>
      {ledger.notObserved !== undefined && ledger.notObserved > 0 && (
        <p class="quiet small">Of that, {hours(ledger.notObserved)} was not observed: its sums are exact, its order is unknown.</p>
      )}
      <dl class="facts">
        {known.map(([key, word, formula]) => (
          <div title={formula}>
            <dt>{word}</dt>
            <dd>{percent(ledger.ettr[key] as number)}</dd>
          </div>
        ))}
      </dl>
      {known.length === 0 && <p class="quiet small">No step was reported: how much of the time trained is unknown.</p>}
    </div>
  );
}

function Losses({ ledger }: { ledger: Ledger }) {
  const hasGpus = ledger.losses.some((it) => it.gpuHours);
  if (ledger.losses.length === 0) return <p class="quiet">No time was lost.</p>;
  const title = ["", "The biggest loss", "The two biggest losses"][ledger.losses.length] ?? "The three biggest losses";
  return (
    <div>
      <h3>{title}</h3>
      <ol class="losses">
        {ledger.losses.map((it) => (
          <li>
            <div class="loss-head">
              <strong>{stateOf(it.phase).name === it.phase ? stateOf(it.phase).word : it.phase}</strong>
              {it.attempt !== undefined && <span class="quiet">mostly attempt {it.attempt}</span>}
              <span class="loss-numbers">
                <span class="number">{hours(it.millis)}</span>
                {hasGpus && <span class="number">{it.gpuHours ? `${count(it.gpuHours)} GPU-h` : ""}</span>}
              </span>
            </div>
            <div>
              <Sentence text={it.why} />
            </div>
            {it.wouldWin && (
              <div>
                <span class="quiet">would win {it.wouldWin.points.toFixed(1)} points:</span> <Sentence text={it.wouldWin.change} />
              </div>
            )}
          </li>
        ))}
      </ol>
    </div>
  );
}
