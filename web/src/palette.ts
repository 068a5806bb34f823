/** The states that a cell can show. The server's palette replaces this one; until it is there the page draws with the same words and colours. */
import { signal } from "@preact/signals";
import type { StateLook } from "./types";

const look = (name: string, sign: string, light: string, dark: string, word = name): StateLook => ({ name, word, sign, light, dark });

/** In the order of the numbers in strips. */
export const STATES: StateLook[] = [
  look("training", "█", "0b6e4f", "3fb68b"),
  look("queued", "░", "767f8a", "8b949e"),
  look("placing", "░", "6b6fb5", "8f94e0"),
  look("creating", "▒", "3f7fbf", "5aa2e0"),
  look("pulling", "▒", "2f8ba0", "45b0c6"),
  look("starting", "▒", "4a6fa5", "7f9fd6"),
  look("saving", "▓", "5b7f1f", "9bbf4d"),
  look("stalled", "!", "c2410c", "ff8552"),
  look("restarting", "▒", "a15c00", "e0a030"),
  look("redoing", "▚", "9c3f86", "d97fc4"),
  look("suspended", "·", "8a8178", "a39a8f"),
  look("other", "?", "6f6f6f", "a8a8a8"),
  look("failed", "╳", "b00020", "ff6b6b"),
  look("lost", "?", "8f1d4f", "ff8fb0"),
  look("done", "=", "3d6b5c", "8fcfb5"),
  look("notObserved", "‖", "737373", "a0a0a0", "not observed"),
  look("nothing", " ", "ffffff", "0f1419"),
];

/** The states as the server has them. */
export const palette = signal<StateLook[]>(STATES);

const HEX = /^[0-9a-fA-F]{6}$/;

/** Takes the server's palette where it has the right form. */
export function usePalette(states: StateLook[] | undefined): void {
  if (!states || states.length < STATES.length) return;
  const clean = (it: string) => it.replace("#", "");
  const fits = states.every((it) => HEX.test(clean(it.light)) && HEX.test(clean(it.dark)));
  if (fits) palette.value = states.map((it) => ({ ...it, light: clean(it.light), dark: clean(it.dark) }));
}

/** The state of that name; `other` where it is not known. */
export function stateOf(name: string): StateLook {
  return palette.value.find((it) => it.name === name) ?? (palette.value[11] as StateLook);
}

/** How the state of a whole job is shown: a sign, a word, and the state whose colour it has. */
export const JOB_STATES: Record<string, { sign: string; word: string; tone: string }> = {
  running: { sign: "▶", word: "Running", tone: "training" },
  waiting: { sign: "◷", word: "Waiting", tone: "placing" },
  stalled: { sign: "!", word: "Stalled", tone: "stalled" },
  restarting: { sign: "↻", word: "Restarting", tone: "restarting" },
  suspended: { sign: "‖", word: "Suspended", tone: "suspended" },
  succeeded: { sign: "✓", word: "Succeeded", tone: "done" },
  failed: { sign: "✗", word: "Failed", tone: "failed" },
  stopped: { sign: "■", word: "Stopped", tone: "queued" },
  unknown: { sign: "?", word: "Unknown", tone: "other" },
};
