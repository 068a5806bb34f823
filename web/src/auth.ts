/** Who the reader is: a token from the fragment of the address, kept in memory and for this tab, and removed from the address at once. */
import { signal } from "@preact/signals";

const KEY = "trainyard.token";
const TOKEN = /^[A-Za-z0-9._~+/=:-]{1,8192}$/;

/** The token; nothing where the reader has none. */
export const token = signal<string | undefined>(undefined);
/** Whether the server refused the token, or wants one. */
export const refused = signal(false);
/** What the server says to do about that, where it says anything. */
export const advice = signal<string | undefined>(undefined);

/** What a fragment holds: a token or a one-time code, and the route behind it. */
export function credentials(fragment: string): { token?: string; code?: string; rest: string } | undefined {
  const found = /^#(token|code)=([^&]*)(?:&(.*))?$/s.exec(fragment);
  if (!found) return undefined;
  const [, kind, value = "", behind = ""] = found;
  const rest = behind.startsWith("/") ? `#${behind}` : "#/jobs";
  let text = value;
  try {
    text = decodeURIComponent(value);
  } catch {
    // It is used as it is written.
  }
  if (!TOKEN.test(text)) return { rest };
  return kind === "token" ? { token: text, rest } : { code: text, rest };
}

/** Keeps a token for this tab. */
export function keep(value: string): void {
  token.value = value;
  refused.value = false;
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // Without storage it lives as long as this page.
  }
}

/** Whether a text can be a token. */
export function isToken(value: string): boolean {
  return TOKEN.test(value);
}

/** Reads the fragment and the storage of this tab. Resolves when calls may be made. */
export async function signIn(): Promise<void> {
  const given = credentials(location.hash);
  if (given) history.replaceState(null, "", given.rest);
  if (given?.token) return keep(given.token);
  if (given?.code) {
    try {
      const answer = await fetch("api/v1/login", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ code: given.code }),
        credentials: "omit",
      });
      const document = (await answer.json()) as { token?: unknown };
      if (answer.ok && typeof document.token === "string" && isToken(document.token)) return keep(document.token);
    } catch {
      // The sentence of a reader without a token holds here too.
    }
    refused.value = true;
    return;
  }
  try {
    token.value = sessionStorage.getItem(KEY) ?? undefined;
  } catch {
    token.value = undefined;
  }
}
