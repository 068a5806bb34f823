/** What the server is. Asked for after the first view: the page does not wait for it. */
import { signal } from "@preact/signals";
import { get } from "./api";
import { usePalette } from "./palette";
import { startStream } from "./stream";
import type { About } from "./types";

/** What the server is, once it has answered. */
export const about = signal<About | undefined>(undefined);

let viewed = false;

/** The first view is there: opens the stream and asks what the server is. */
export function firstView(): void {
  if (viewed) return;
  viewed = true;
  performance.mark("trainyard.first-view");
  setTimeout(() => {
    startStream();
    void load();
  }, 50);
}

/** Asks what the server is. */
export async function load(): Promise<void> {
  try {
    about.value = await get<About>("api/v1/about");
    usePalette(about.value.palette?.states);
  } catch {
    // The page works without it; whatever is wrong shows where data is asked for.
  }
}
