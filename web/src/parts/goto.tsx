/** Go to a page or a job by typing. */
import { useState } from "preact/hooks";
import { path } from "../api";
import { useDocument } from "../load";
import { go, jobLink } from "../route";
import type { Jobs } from "../types";
import { StateWord } from "./basics";
import { Dialog } from "./dialog";
import { Text } from "./text";

const PAGES: [string, string][] = [
  ["Jobs", "#/jobs"],
  ["Nodes", "#/nodes"],
  ["Queue", "#/queue"],
  ["Failures", "#/failures"],
];

/** The dialog. */
export function GoTo({ close }: { close(): void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const jobs = useDocument<Jobs>(path(["jobs"], { q: text.trim() || undefined, limit: 12 }));
  const pages = PAGES.filter(([word]) => word.toLowerCase().includes(text.trim().toLowerCase()));
  const targets = [
    ...pages.map(([word, link]) => ({ link, id: link, text: <>{word}</> })),
    ...(jobs.data?.rows ?? []).map((row) => ({
      link: jobLink(row.namespace, row.job),
      id: row.id,
      text: (
        <>
          <Text raw={row.job} />{" "}
          <span class="quiet">
            <Text raw={row.namespace} />
          </span>{" "}
          <StateWord state={row.state} />
        </>
      ),
    })),
  ];
  const chosen = Math.min(at, targets.length - 1);
  const open = (link: string | undefined) => {
    if (!link) return;
    close();
    go(link);
  };
  return (
    <Dialog title="Go to" close={close}>
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="goto-list"
        aria-activedescendant={chosen >= 0 ? `goto-${chosen}` : undefined}
        aria-label="Page or job"
        placeholder="page or job"
        autocomplete="off"
        spellcheck={false}
        value={text}
        autoFocus
        onInput={(event) => {
          setText(event.currentTarget.value.slice(0, 200));
          setAt(0);
        }}
        onKeyDown={(event) => {
          const moves: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
          const move = moves[event.key];
          if (move !== undefined) {
            event.preventDefault();
            setAt(Math.max(0, Math.min(targets.length - 1, chosen + move)));
          } else if (event.key === "Enter") open(targets[chosen]?.link);
        }}
      />
      <ul id="goto-list" role="listbox" aria-label="Pages and jobs" class="choices">
        {targets.map((target, number) => (
          <li role="option" id={`goto-${number}`} aria-selected={number === chosen} key={target.id} onClick={() => open(target.link)}>
            {target.text}
          </li>
        ))}
      </ul>
      {targets.length === 0 && <p class="quiet">No page and no job has that name.</p>}
    </Dialog>
  );
}
