/** The strip as a table: what differs from ordinary training, by rank. */
import { palette } from "../palette";
import { Time } from "../parts/basics";
import { duration, some } from "../words";
import { exceptions, rowName, type Model } from "./model";

/** Rows of the table. */
const MOST = 300;

/** Exceptions of all rows. */
export function StripTable({ model }: { model: Model }) {
  const { found, left } = exceptions(model, MOST);
  if (found.length === 0) return <p>No failed, stalled or lost cell in this window.</p>;
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Exceptions by rank">
      <table class="plain" id="strip-table">
        <caption>
          Failed, stalled and lost cells in this window{left > 0 && `; ${some(left, "more cell")} without room: zoom in to see them`}
        </caption>
        <thead>
          <tr>
            <th scope="col">ranks</th>
            <th scope="col">node</th>
            <th scope="col">state</th>
            <th scope="col">from</th>
            <th scope="col" class="number">
              lasted
            </th>
          </tr>
        </thead>
        <tbody>
          {found.map((it) => (
            <tr>
              <th scope="row">{rowName(model, it.row)}</th>
              <td>{model.labels[it.row]?.node ?? ""}</td>
              <td>{palette.value[it.state]?.word}</td>
              <td>
                <Time at={it.from} />
              </td>
              <td class="number">{duration(it.to - it.from)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
