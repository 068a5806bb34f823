/** A document on the page: loading, there, failed, or there and old. */
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, get } from "./api";
import { token } from "./auth";
import { changes, readAt } from "./stream";
import type { Problem } from "./types";

/** A document and what is known of it. */
export interface Loaded<T> {
  data?: T;
  /** Of which address `data` is. */
  url?: string;
  problem?: Problem;
  /** Whether an answer is awaited for so long that the reader should see it. */
  slow: boolean;
  retry(): void;
}

/** After so long the reader sees that something is awaited. */
const SLOW = 150;

/**
 * The document at `url`, refetched when one of `parts` changes. Data stays while the next is loaded, unless it is of another `subject`.
 * Without a url nothing is asked.
 */
export function useDocument<T>(url: string | undefined, parts: string[] = [], subject = ""): Loaded<T> {
  const [state, set] = useState<{ data?: T; url?: string; subject?: string; problem?: Problem; slow: boolean }>({ slow: false });
  const [tries, retry] = useState(0);
  const busy = useRef(0);
  const counts = parts.map((part) => changes.value[part] ?? 0).join();
  const who = token.value;
  useEffect(() => {
    if (url === undefined) return;
    const controller = new AbortController();
    const mine = (busy.current += 1);
    const timer = setTimeout(() => set((old) => ({ ...old, slow: true })), SLOW);
    get<T>(url, controller.signal)
      .then((data) => {
        readAt(Date.now());
        set({ data, url, subject, slow: false });
      })
      .catch((error: unknown) => {
        if (controller.signal.aborted) return;
        set((old) => ({ ...(old.subject === subject ? old : {}), problem: asProblem(error), slow: false }));
      })
      .finally(() => {
        if (busy.current === mine) clearTimeout(timer);
      });
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [url, counts, tries, who]);
  const fresh = state.subject === subject || state.subject === undefined;
  return {
    ...(fresh && state.data !== undefined ? { data: state.data } : {}),
    ...(fresh && state.url !== undefined ? { url: state.url } : {}),
    ...(state.problem && fresh ? { problem: state.problem } : {}),
    slow: state.slow,
    retry: () => retry(tries + 1),
  };
}
