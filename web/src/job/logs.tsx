/** Logs: the first failure and folded groups of all ranks, or the lines of one pod. */
import { useEffect, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { commandOf } from "../clipboard";
import { CopyCommand } from "../parts/basics";
import { route, setQuery } from "../route";
import type { Row } from "../types";
import { AttemptField, chosenAttempt } from "./attempt";
import { FoldedLogs } from "./folded";
import { LogWindow } from "./log-window";

/** Keys of the address that choose lines of one pod. */
export const NO_LINES = { rank: undefined, pod: undefined, container: undefined, offset: undefined, line: undefined, find: undefined, view: undefined };

/** Whether the search is to have the focus as soon as it is on the page. */
export const wantsSearch = signal(false);

/** The tab. */
export function LogsTab({ run, row }: { run: string; row: Row | undefined }) {
  const { query } = route.value;
  const attempt = chosenAttempt();
  const lines = Boolean(query.rank || query.pod || query.offset || query.line || query.find || query.view === "lines");
  return (
    <>
      <div class="bar">
        <div class="group" role="group" aria-label="View">
          <button type="button" aria-pressed={!lines} onClick={() => setQuery(NO_LINES, true)}>
            all ranks, folded
          </button>
          <button type="button" aria-pressed={lines} onClick={() => setQuery({ view: "lines" }, true)}>
            lines of one pod
          </button>
        </div>
        <AttemptField row={row} />
        <RankField row={row} />
        <Search />
        <CopyCommand command={commandOf(route.value, "logs")} what="logs" />
      </div>
      {lines ? (
        <LogWindow run={run} attempt={attempt} live={row?.live === true} key={`${run} ${attempt} ${query.rank} ${query.pod} ${query.container} ${query.find}`} />
      ) : (
        <FoldedLogs run={run} attempt={attempt} />
      )}
    </>
  );
}

function RankField({ row }: { row: Row | undefined }) {
  const { query } = route.value;
  const [text, set] = useState(query.rank ?? "");
  useEffect(() => set(query.rank ?? ""), [query.rank]);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const rank = /^\d{1,7}$/.test(text.trim()) ? String(Number(text)) : undefined;
        setQuery({ rank, pod: undefined, container: undefined, offset: undefined, line: undefined, view: rank === undefined ? query.view : "lines" }, true);
      }}
    >
      <label>
        rank{" "}
        <input class="short" inputMode="numeric" value={text} placeholder={row?.ranks ? `0-${row.ranks - 1}` : ""} onInput={(event) => set(event.currentTarget.value)} />
      </label>
    </form>
  );
}

/** The search runs on the server and counts all lines that match. */
function Search() {
  const { query } = route.value;
  const [text, set] = useState(query.find ?? "");
  const input = useRef<HTMLInputElement>(null);
  const wanted = wantsSearch.value;
  useEffect(() => set(query.find ?? ""), [query.find]);
  useEffect(() => {
    if (!wanted) return;
    wantsSearch.value = false;
    input.current?.focus();
  }, [wanted]);
  return (
    <form
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        setQuery({ find: text || undefined, offset: undefined, line: undefined, view: "lines" }, true);
      }}
    >
      <input ref={input} type="search" data-filter aria-label="Search lines" placeholder="search this log" maxLength={200} value={text} onInput={(event) => set(event.currentTarget.value)} />{" "}
      <button type="submit">search</button>
    </form>
  );
}
