/** All keys that work on this page. */
import { allKeys } from "../keys";
import { Dialog } from "./dialog";

const STRIP: [string, string][] = [
  ["← → ↑ ↓", "move the cell cursor; with Shift ten cells"],
  ["w s, + -", "zoom in and out"],
  ["a d", "move the window"],
  ["n p", "next and previous mark"],
  ["l, Enter", "logs of the cell"],
  ["0", "the whole run"],
  ["Esc", "remove the cursor"],
];

function Keys({ title, keys }: { title: string; keys: [string, string][] }) {
  return (
    <>
      <h3>{title}</h3>
      <dl class="keys">
        {keys.map(([key, does]) => (
          <div>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

/** The help. */
export function Help({ close }: { close(): void }) {
  const known = new Set<string>();
  const keys = allKeys().filter((key) => !known.has(key.keys) && known.add(key.keys));
  return (
    <Dialog title="Keys" close={close}>
      <Keys title="On this page" keys={keys.map((key) => [key.keys, key.does])} />
      <Keys title="On the strip" keys={STRIP} />
      <p class="quiet">No key changes a job.</p>
    </Dialog>
  );
}
