/**
 * Hostile text made safe. Log lines, names and messages come from tenants: the page shows them as text nodes only.
 *
 * ANSI colours become classes; all other escape sequences are dropped; control and bidi characters are shown as code points.
 */

/** A piece of text with the classes of its colours. */
export interface Piece {
  text: string;
  /** Such as `a-red a-bold`; empty where it has none. */
  style: string;
  /** Whether it stands for a character that is not shown. */
  code?: boolean;
}

/** Longest text that is taken apart; the rest is one plain piece. */
const LONGEST = 64 * 1024;

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

// Every part is bounded, so that no line takes more than linear time. Escape sequences of terminals: CSI, OSC and other strings with their ends, and two-character escapes. C1 controls begin the same.
const ESCAPE =
  /(?:\u001b\[|\u009b)([0-9;:]{0,64})([0-9:;<=>?]{0,64}[ -/]{0,8}[@-~])|(?:\u001b[\]PX^_]|[\u0090\u0098\u009d-\u009f])[^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c|$)|\u001b(?:[ -/]{0,8}[0-~])?/g;

// What changes the direction or is not seen: C0 but tab, DEL and C1, bidi marks, zero width, line separators, byte order mark, tags, soft hyphen.
const HIDDEN =
  /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

/** `U+202E` for a character that is not shown. */
function codePoint(character: string): string {
  const number = character.codePointAt(0) ?? 0;
  return `U+${number.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Applies the numbers of one `SGR` sequence. */
function restyle(style: Set<string>, numbers: string): void {
  const codes = numbers === "" ? [0] : numbers.split(/[;:]/).map(Number);
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] as number;
    const drop = (start: string) => [...style].filter((it) => it.startsWith(start)).forEach((it) => style.delete(it));
    const colour = (from: number) => COLOURS[code - from] as string;
    if (code === 0) style.clear();
    else if (code === 1) style.add("a-bold");
    else if (code === 2) style.add("a-dim");
    else if (code === 3) style.add("a-italic");
    else if (code === 4) style.add("a-under");
    else if (code === 22) {
      style.delete("a-bold");
      style.delete("a-dim");
    } else if (code === 23) style.delete("a-italic");
    else if (code === 24) style.delete("a-under");
    else if (code >= 30 && code <= 37) {
      drop("a-c-");
      style.add(`a-c-${colour(30)}`);
    } else if (code >= 90 && code <= 97) {
      drop("a-c-");
      style.add(`a-c-${colour(90)}`);
    } else if (code === 38 || code === 48) {
      // Colours of 256 or of 24 bits: their numbers are skipped, the text stays plain.
      at += codes[at + 1] === 5 ? 2 : codes[at + 1] === 2 ? 4 : 0;
      if (code === 38) drop("a-c-");
    } else if (code === 39) drop("a-c-");
  }
}

/** Adds `text` with its hidden characters as code points. */
function push(pieces: Piece[], text: string, style: string): void {
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > from) pieces.push({ text: text.slice(from, found.index), style });
    pieces.push({ text: codePoint(found[0]), style, code: true });
    from = found.index + found[0].length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from), style });
}

/** The pieces of a line. A text without escapes and hidden characters is one piece. */
export function pieces(raw: string): Piece[] {
  const text = raw.length > LONGEST ? `${raw.slice(0, LONGEST)}…` : raw.replace(/\r?\n?$/, "");
  const found: Piece[] = [];
  const style = new Set<string>();
  let from = 0;
  for (const escape of text.matchAll(ESCAPE)) {
    push(found, text.slice(from, escape.index), [...style].join(" "));
    from = escape.index + escape[0].length;
    if (escape[2] === "m") restyle(style, escape[1] ?? "");
  }
  push(found, text.slice(from), [...style].join(" "));
  return found;
}

/** The same as one plain text: for titles, announcements and the clipboard. */
export function plain(raw: string): string {
  return pieces(raw).map((piece) => piece.text).join("");
}
