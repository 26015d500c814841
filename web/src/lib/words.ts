import type { Json, Part } from "@holdfast/client";
import { stringifyJson } from "@holdfast/client";

const clock = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit" });
const exactClock = new Intl.DateTimeFormat(undefined, {
  hour: "numeric",
  minute: "2-digit",
  second: "2-digit",
});
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const counts = new Intl.NumberFormat();

/** A time as "14:05", or "3 Nov" when it is not today. */
export function shortTime(at: string, now: number): string {
  const time = new Date(at);
  return time.toDateString() === new Date(now).toDateString() ? clock.format(time) : day.format(time);
}

/** A time with its seconds. */
export function exactTime(at: string): string {
  return exactClock.format(new Date(at));
}

/** A date and a time. */
export function wholeTime(at: string): string {
  return whole.format(new Date(at));
}

/** A number with its separators. */
export function count(n: number): string {
  return counts.format(n);
}

/** How long it was: "4 ms", "0.4 s", "12 s", "3 min 5 s". */
export function duration(ms: number): string {
  if (ms < 100) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 === 0 ? `${minutes} min` : `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** How long until then, in whole seconds or more. Never negative. */
export function countdown(until: number, now: number): string {
  const seconds = Math.max(0, Math.ceil((until - now) / 1000));
  return seconds < 60 ? `${seconds} s` : duration(seconds * 1000);
}

/** The groups of a list of sessions: what is later comes first. */
export function dayGroup(at: string, now: number): string {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const time = Date.parse(at);
  if (time >= midnight) return "Today";
  if (time >= midnight - 86_400_000) return "Yesterday";
  if (time >= midnight - 6 * 86_400_000) return "The last 7 days";
  return "Earlier";
}

/** A size in bytes. */
export function byteSize(bytes: number): string {
  if (bytes < 1024) return `${bytes} bytes`;
  if (bytes < 1024 * 1024) return `${Math.round(bytes / 1024)} KB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

/** JSON for people: indented, integers whole. */
export function prettyJson(value: Json | undefined): string {
  if (value === undefined) return "";
  const text = stringifyJson(value);
  try {
    // Indenting needs a parse of its own, and that must not round what is long.
    return /\d{16}/.test(text) ? text : JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** JSON in a few words, for a line: `city: Lisbon, days: 3`. */
export function briefJson(value: Json | undefined): string {
  if (value === undefined || value === null) return "";
  if (typeof value !== "object") return String(value).slice(0, 200);
  if (Array.isArray(value)) return stringifyJson(value).slice(0, 200);
  return Object.entries(value)
    .map(([key, item]) => `${key}: ${typeof item === "string" ? item : stringifyJson(item)}`)
    .join(", ")
    .slice(0, 200);
}

/** What a message says, without its files and calls. */
export function textOf(message: { readonly parts: readonly Pick<Part, "type" | "text">[] }): string {
  return message.parts
    .filter((part) => part.type === "text")
    .map((part) => part.text ?? "")
    .join("\n\n");
}

/** "notes_delete" as "Notes delete": names are for programs. */
export function toolTitle(name: string): string {
  const words = name
    .replace(/[_-]+/g, " ")
    .replace(/([a-z])([A-Z])/g, "$1 $2")
    .trim();
  return words.charAt(0).toUpperCase() + words.slice(1).toLowerCase();
}
