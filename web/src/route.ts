/** Where the reader is: everything is in the fragment of the address, so that a link shows the same to another reader. */
import { signal } from "@preact/signals";

/** A page and its query. */
export interface Route {
  page: "jobs" | "job" | "nodes" | "queue" | "failures" | "unknown";
  namespace?: string;
  name?: string;
  query: Record<string, string>;
}

/** Longest fragment that is read. */
const LONGEST = 8192;

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Reads a fragment such as `#/job/team-a/sft?tab=logs`. */
export function parse(fragment: string): Route {
  const text = fragment.slice(0, LONGEST).replace(/^#/, "");
  const [path = "", search = ""] = text.split(/\?(.*)/s);
  const query = Object.fromEntries(new URLSearchParams(search));
  const parts = path.split("/").filter((part) => part !== "").map(decode);
  const [page = "jobs", namespace, name] = parts;
  if (page === "job" && namespace !== undefined && name !== undefined && parts.length === 3) {
    return { page: "job", namespace, name, query };
  }
  if ((page === "jobs" || page === "nodes" || page === "queue" || page === "failures") && parts.length <= 1) {
    return { page, query };
  }
  return { page: "unknown", query };
}

/** The fragment of a route. Keys without a value are left out; their order is that of the names. */
export function format(route: { page: string; namespace?: string; name?: string; query?: Record<string, string | number | undefined> }): string {
  const parts = route.page === "job" ? ["job", route.namespace ?? "", route.name ?? ""] : [route.page];
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(route.query ?? {}).sort(([one], [other]) => (one < other ? -1 : 1))) {
    if (value !== undefined && value !== "") search.set(key, String(value));
  }
  const text = search.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** The fragment of a job's page. */
export function jobLink(namespace: string, name: string, query: Record<string, string | number | undefined> = {}): string {
  return format({ page: "job", namespace, name, query });
}

/** Where the reader is now. */
export const route = signal<Route>({ page: "jobs", query: {} });

/** Goes to a fragment, with a step in the history of the browser. */
export function go(fragment: string): void {
  if (location.hash !== fragment) location.hash = fragment;
}

/**
 * Changes the query of this page: `undefined` removes a key. Without `step` the back button does not stop here.
 *
 * A link that was clicked is in the address before its event arrives, and timers call this in between. So the address is what is changed, not
 * the route that was read last, and a reader who has left the page is not brought back.
 */
export function setQuery(change: Record<string, string | number | undefined>, step = false): void {
  const [shown, here] = [route.peek(), parse(location.hash)];
  if (here.page !== shown.page || here.namespace !== shown.namespace || here.name !== shown.name) return;
  const next = format({ ...here, query: { ...here.query, ...change } });
  if (next === location.hash) return;
  if (step) location.hash = next;
  else {
    history.replaceState(null, "", next);
    route.value = parse(next);
  }
}

/** Reads the address now and after every change. */
export function watchRoute(): void {
  const read = () => {
    route.value = parse(location.hash);
  };
  addEventListener("hashchange", read);
  read();
}
