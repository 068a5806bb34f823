/** Numbers, times and durations as people read them. Local time; the UTC time is for the `title`. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** `182400` as `182,400`. */
export function count(value: number): string {
  return whole.format(value);
}

/** A number of unknown size with about four digits that matter. */
export function figure(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e12 || size < 1e-3) return value.toExponential(2);
  if (size >= 1e9) return `${figure(value / 1e9)} G`;
  if (size >= 1e6) return `${figure(value / 1e6)} M`;
  return new Intl.NumberFormat("en", { maximumSignificantDigits: 4 }).format(value);
}

/** How many of something: `1 rank`, `8 ranks`. */
export function some(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A ratio as a percentage with one decimal. */
export function percent(ratio: number): string {
  return `${(Math.round(ratio * 1000) / 10).toFixed(1)} %`;
}

/** A duration in the words of `trainyard status`; days from 48 h on. */
export function duration(millis: number): string {
  const seconds = millis / 1000;
  if (millis < 100) return `${Math.max(0, Math.round(millis))} ms`;
  if (millis < 9_950) return `${seconds.toFixed(1)} s`;
  if (millis < 120_000) return `${seconds.toFixed(0)} s`;
  if (millis < 7_200_000) return `${Math.floor(seconds / 60)} min`;
  if (millis < 172_800_000) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** A duration with two units: `5 d 22 h`. */
export function longDuration(millis: number): string {
  if (millis < 7_200_000) return duration(millis);
  const hours = Math.floor(millis / 3_600_000);
  const minutes = Math.floor(millis / 60_000) % 60;
  if (hours < 48) return minutes === 0 ? `${hours} h` : `${hours} h ${minutes} min`;
  return hours % 24 === 0 ? `${hours / 24} d` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** How long ago something was; what is later than `now` by a clock that differs is now. */
export function ago(millis: number, now: number): string {
  const past = now - millis;
  return past < 10_000 ? "now" : `${duration(past)} ago`;
}

/** A duration in hours with one decimal from two hours on, so that sums of one column compare. */
export function hours(millis: number): string {
  return millis < 7_200_000 ? duration(millis) : `${(millis / 3_600_000).toFixed(1)} h`;
}

/** Bytes in binary units. */
export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value;
  let at = 0;
  while (size >= 1024 && at < units.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${at === 0 || size >= 100 ? size.toFixed(0) : size.toFixed(1)} ${units[at]}`;
}

/** Milliseconds of what a document has as a time; nothing where it is none. */
export function millisOf(time: string | number | null | undefined): number | undefined {
  if (time === null || time === undefined) return undefined;
  const millis = typeof time === "number" ? time : Date.parse(time);
  return Number.isFinite(millis) ? millis : undefined;
}

const two = (value: number, length = 2) => String(value).padStart(length, "0");
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** The time of day, local. */
export function clock(millis: number, part: "minute" | "second" | "milli" = "second"): string {
  const date = new Date(millis);
  const minute = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (part === "minute") return minute;
  const second = `${minute}:${two(date.getSeconds())}`;
  return part === "second" ? second : `${second}.${two(date.getMilliseconds(), 3)}`;
}

/** From when to when: the day once where it is the same, and seconds where minutes would be equal. */
export function span(from: number, to: number): string {
  const part = to - from < 3_600_000 ? "second" : "minute";
  const end = day(from) === day(to) ? "" : `${day(to)} `;
  return `${day(from)} ${clock(from, part)} to ${end}${clock(to, part)}`;
}

/** The day, local. */
export function day(millis: number): string {
  const date = new Date(millis);
  return `${date.getDate()} ${MONTHS[date.getMonth()]}`;
}

/** Day and time; the day is left out where it is that of `now`. */
export function moment(millis: number, now = Date.now()): string {
  const same = new Date(millis).toDateString() === new Date(now).toDateString();
  return same ? clock(millis) : `${day(millis)} ${clock(millis, "minute")}`;
}

/** The UTC time, for a `title`. */
export function utc(millis: number): string {
  const date = new Date(millis);
  return Number.isFinite(date.getTime()) ? date.toISOString() : "";
}

/** Words with a capital at the start. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** `user_code_error` and `notObserved` as words. */
export function spaced(name: string): string {
  return name.replaceAll("_", " ").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
}
