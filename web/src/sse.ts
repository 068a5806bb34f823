/** The form of server-sent events, read from chunks of text. Pure. */

/** One event. */
export interface ServerEvent {
  id?: string;
  event: string;
  data: string;
}

/** Longest event that is read; a longer one is dropped. */
const LONGEST = 128 * 1024;

/** Returns a function that takes the next chunk and returns the events that it completes. */
export function reader(): (chunk: string) => ServerEvent[] {
  let rest = "";
  let id: string | undefined;
  let event = "message";
  let data: string[] = [];
  let size = 0;
  return (chunk) => {
    const found: ServerEvent[] = [];
    const lines = (rest + chunk).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    if (rest.length > LONGEST) rest = "";
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0 && size <= LONGEST) found.push({ ...(id === undefined ? {} : { id }), event, data: data.join("\n") });
        event = "message";
        data = [];
        size = 0;
        continue;
      }
      if (line.startsWith(":")) continue;
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "id") id = value;
      else if (field === "event") event = value;
      else if (field === "data") {
        size += value.length;
        if (size <= LONGEST) data.push(value);
      }
    }
    return found;
  };
}

/** How long to wait before the next try: 0.5 s, doubled each time up to 30 s, of that between one half and all. */
export function backOff(failures: number, random: number): number {
  const most = Math.min(30_000, 500 * 2 ** Math.max(0, failures - 1));
  return Math.round(most / 2 + (most / 2) * random);
}
