/** Dark and light: as the system has it, or as the reader chose. */
import { computed, effect, signal } from "@preact/signals";

const KEY = "trainyard.theme";

type Choice = "system" | "light" | "dark";

function stored(): Choice {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

const choice = signal<Choice>("system");
const system = signal(false);
const forcedColours = signal(false);

/** Whether the page is dark now. */
export const dark = computed(() => (choice.value === "system" ? system.value : choice.value === "dark"));
/** Whether the system replaces colours: then hatches and signs carry the meaning. */
export const forced = computed(() => forcedColours.value);

/** Switches between dark and light. */
export function switchTheme(): void {
  choice.value = dark.peek() ? "light" : "dark";
  try {
    localStorage.setItem(KEY, choice.value);
  } catch {
    // The choice then lives as long as the page.
  }
}

/** Applies the theme now and after every change. */
export function watchTheme(): void {
  choice.value = stored();
  const follow = (query: string, into: { value: boolean }) => {
    const media = matchMedia(query);
    into.value = media.matches;
    media.addEventListener("change", () => {
      into.value = media.matches;
    });
  };
  follow("(prefers-color-scheme: dark)", system);
  follow("(forced-colors: active)", forcedColours);
  effect(() => {
    document.documentElement.dataset.theme = dark.value ? "dark" : "light";
  });
}
