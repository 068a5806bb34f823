/** JSON as YAML, for people. Every text that YAML could read as something else is quoted as in JSON, which is YAML too. */

/** Most lines that are written. */
const LINES_MAX = 20_000;

const PLAIN = /^[A-Za-z_/.][A-Za-z0-9_/.@-]*(?: ?[A-Za-z0-9_/.@=-]+)*$/;
const WORDS = /^(?:true|false|null|yes|no|on|off|y|n|~|\.inf|\.nan)$/i;

function scalar(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value) ?? "null";
  return PLAIN.test(value) && !WORDS.test(value) && value.length < 500 ? value : JSON.stringify(value);
}

/** Writes a value. */
export function yaml(value: unknown): string {
  const lines: string[] = [];
  write(value, "", "", lines);
  return lines.length >= LINES_MAX ? `${lines.join("\n")}\n# the rest is left out` : lines.join("\n");
}

/** Writes `value` behind `lead`, such as `name:` or `-`, with what is below it indented by `indent`. */
function write(value: unknown, lead: string, indent: string, lines: string[]): void {
  if (lines.length >= LINES_MAX) return;
  const items = Array.isArray(value) ? value.map((it) => ["-", it] as const) : value && typeof value === "object" ? Object.entries(value).map(([key, it]) => [`${scalar(key)}:`, it] as const) : undefined;
  if (!items) {
    lines.push(lead === "" ? scalar(value) : `${lead} ${scalar(value)}`);
    return;
  }
  if (items.length === 0) {
    lines.push(`${lead}${lead && " "}${Array.isArray(value) ? "[]" : "{}"}`);
    return;
  }
  // The first line of a map in a list stands behind its dash.
  const dash = lead.endsWith("-") && !Array.isArray(value);
  if (lead !== "" && !dash) lines.push(lead);
  items.forEach(([key, it], at) => {
    const before = dash && at === 0 ? `${lead} ` : indent;
    write(it, `${before}${key}`, `${indent}  `, lines);
  });
}
