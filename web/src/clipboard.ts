/** What is copied, and the commands that print the same in a terminal. */
import { signal } from "@preact/signals";
import { plain } from "./text";
import type { Route } from "./route";

/** What was copied, or could not be: a short note on the page. */
export const note = signal<{ text: string; copy?: string; number: number } | undefined>(undefined);
/** What a screen reader is to read out. */
export const announcement = signal("");

let numbers = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Shows a note for a while. */
export function show(text: string, copy?: string): void {
  numbers += 1;
  note.value = { text, ...(copy === undefined ? {} : { copy }), number: numbers };
  clearTimeout(timer);
  timer = setTimeout(() => (note.value = undefined), copy === undefined ? 4000 : 30_000);
}

/** Reads a sentence out politely. */
export function announce(text: string): void {
  announcement.value = text;
}

/** Copies a text; where the browser does not allow it, shows it to be copied by hand. */
export async function copy(what: string, text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    show(`Copied ${what}: ${text}`);
  } catch {
    show(`The browser did not allow to copy ${what}. Copy it from here:`, text);
  }
}

/** One argument of a shell command. Names come from tenants: nothing in them is obeyed by a shell. */
export function quote(argument: string): string {
  const safe = plain(argument).replace(/[\r\n]/g, " ");
  if (/^[A-Za-z0-9][A-Za-z0-9._/:@-]*$/.test(safe)) return safe;
  return `'${safe.replaceAll("'", "'\\''")}'`;
}

/** The command that prints what a page shows. */
export function commandOf(route: Route, panel?: string): string {
  const { page, query } = route;
  if (page === "jobs") return "trainyard ps";
  if (page === "nodes" || page === "queue") return "trainyard nodes --cluster";
  if (page === "failures") return "trainyard ps --all";
  if (page !== "job") return "trainyard ps";
  const job = quote(route.name ?? "");
  const run = query.run ? ` --run ${quote(query.run)}` : "";
  switch (panel ?? query.tab ?? "logs") {
    case "verdict":
      return `trainyard explain ${job}${run}`;
    case "logs": {
      const attempt = query.att ? ` --attempt ${quote(query.att)}` : "";
      const pod = query.pod ? ` --pod ${quote(query.pod)}` : query.rank ? ` --rank ${quote(query.rank)}` : " --first-failure";
      const find = query.find ? ` --grep ${quote(query.find.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))}` : "";
      return `trainyard logs ${job}${run}${attempt}${pod}${find}`;
    }
    case "spec":
    case "checkpoints":
    case "metrics":
      return `trainyard status ${job}${run} --format json`;
    default:
      return `trainyard status ${job}${run}`;
  }
}
