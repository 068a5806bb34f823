/** Questions to the server: with the token, with `ETag`s, and with errors as values that have a cause and a next step. */
import { signal } from "@preact/signals";
import { advice, refused, token } from "./auth";
import type { Problem } from "./types";

/** Why there is no answer. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.message);
  }
}

/** Whether the server answered the last question, with whatever. */
export const reachable = signal(true);

interface Kept {
  tag: string;
  document: unknown;
}

/** Answers that are kept for `If-None-Match`, the oldest dropped first. */
const KEPT_MAX = 24;
const kept = new Map<string, Kept>();
/** How long a question may take. */
const TIMEOUT = 35_000;

/** The headers of every call. */
export function headers(more: Record<string, string> = {}): Record<string, string> {
  return token.peek() ? { ...more, Authorization: `Bearer ${token.peek()}` } : more;
}

/** A path below the API with its query; keys without a value are left out. */
export function path(parts: string[], query: Record<string, string | number | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") search.set(key, String(value));
  }
  const text = search.toString();
  return `api/v1/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

function unreachable(): ApiError {
  return new ApiError(0, {
    code: "unreachable",
    message: "the server did not respond",
    hint: "check that `trainyard dashboard` is running, then retry",
  });
}

/** Whether there was no answer at all: the banner says so, and data that is there stays alone on its page. */
export function isSilence(problem: Problem): boolean {
  return problem.code === "unreachable";
}

/** The problem of an answer that is not 200. */
async function problemOf(answer: Response): Promise<Problem> {
  try {
    const { error } = (await answer.json()) as { error?: Problem };
    if (error && typeof error.message === "string") return error;
  } catch {
    // An answer of something between us and the server.
  }
  return { code: "internal", message: `the server answered with status ${answer.status} and no reason`, hint: "retry; if it stays, restart `trainyard dashboard`" };
}

/** Asks for a document. The same document again costs no transfer where the server has an `ETag` for it. */
export async function get<T>(url: string, signal?: AbortSignal): Promise<T> {
  const before = kept.get(url);
  const stop = AbortSignal.timeout(TIMEOUT);
  let answer: Response;
  try {
    answer = await fetch(url, {
      headers: headers(before ? { "If-None-Match": before.tag } : {}),
      credentials: "same-origin", // A proxy in front may keep its session in a cookie; the server itself reads none.
      cache: "no-store",
      signal: signal ? either(signal, stop) : stop,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    reachable.value = false;
    throw unreachable();
  }
  reachable.value = true;
  if (answer.status === 304 && before) return before.document as T;
  if (!answer.ok) {
    const problem = await problemOf(answer);
    if (answer.status === 401) {
      advice.value = problem.hint;
      refused.value = true;
    }
    throw new ApiError(answer.status, problem);
  }
  let document: T;
  try {
    document = (await answer.json()) as T;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(answer.status, { code: "unreadable", message: "the answer of the server is not JSON", hint: "reload the page: it may be older than the server" });
  }
  const tag = answer.headers.get("ETag");
  kept.delete(url);
  if (tag) {
    kept.set(url, { tag, document });
    const oldest = kept.keys().next().value;
    if (kept.size > KEPT_MAX && oldest !== undefined) kept.delete(oldest);
  }
  return document;
}

/** A signal that aborts with the first of two. */
function either(one: AbortSignal, other: AbortSignal): AbortSignal {
  const controller = new AbortController();
  for (const signal of [one, other]) {
    if (signal.aborted) controller.abort();
    else signal.addEventListener("abort", () => controller.abort(), { once: true });
  }
  return controller.signal;
}

/** What went wrong, as a problem. */
export function asProblem(error: unknown): Problem {
  if (error instanceof ApiError) return error.problem;
  return { code: "internal", message: `the page failed: ${error instanceof Error ? error.message : String(error)}`, hint: "reload the page" };
}
