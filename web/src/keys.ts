/** The keyboard. No key acts on a job. */

/** One key, or two in a row (`g j`), and what they do. */
export interface Key {
  keys: string;
  does: string;
  run(): void;
}

/** A group of keys of the page that is shown. The newest group is asked first. */
const groups: Key[][] = [];
let first: { key: string; at: number } | undefined;
/** Two keys belong together within this time. */
const TOGETHER = 1200;

/** Adds keys; the function that is returned removes them. */
export function addKeys(keys: Key[]): () => void {
  groups.push(keys);
  return () => {
    const at = groups.indexOf(keys);
    if (at >= 0) groups.splice(at, 1);
  };
}

/** All keys that work now, the page's own first. */
export function allKeys(): Key[] {
  return [...groups].reverse().flat();
}

/** The name of a key press: `/`, `Ctrl+k`, `Esc`. */
export function nameOf(event: { key: string; ctrlKey: boolean; metaKey: boolean; altKey: boolean }): string {
  const key = event.key === "Escape" ? "Esc" : event.key;
  return event.ctrlKey || event.metaKey ? `Ctrl+${key.toLowerCase()}` : event.altKey ? `Alt+${key}` : key;
}

/** Whether keys are text here and not commands. */
function writes(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Handles a press; whether something was done. */
function press(event: KeyboardEvent): boolean {
  if (event.defaultPrevented || event.isComposing) return false;
  const name = nameOf(event);
  if (document.querySelector("dialog[open]") && name !== "Ctrl+k") return false;
  if (writes(event.target) && name !== "Ctrl+k") {
    if (name !== "Esc") return false;
    (event.target as HTMLElement).blur();
    return true;
  }
  const both = first && Date.now() - first.at < TOGETHER ? `${first.key} ${name}` : undefined;
  first = undefined;
  const keys = allKeys();
  const found = (both && keys.find((it) => it.keys.split(", ").includes(both))) || keys.find((it) => it.keys.split(", ").includes(name));
  if (found) {
    found.run();
    return true;
  }
  if (keys.some((it) => it.keys.startsWith(`${name} `))) {
    first = { key: name, at: Date.now() };
    return true;
  }
  return false;
}

/** Listens to the keyboard. */
export function watchKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (press(event)) event.preventDefault();
  });
}
