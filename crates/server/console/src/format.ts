// Texts for people.
export function size(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}
export const count = (value: number) => (value >= 10_000 ? `${(value / 1000).toFixed(value >= 100_000 ? 0 : 1)}K` : String(Math.round(value)));
/** A time in UTC, as the titles of columns say. */
export const time = (seconds: number | null | undefined) => (seconds ? new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 19) : "-");
/** A latency in seconds. */
export const latency = (seconds: number | null | undefined) => (!seconds ? "-" : seconds < 1e-3 ? `${Math.round(seconds * 1e6)} µs` : seconds < 1 ? `${(seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 1)} ms` : `${seconds.toFixed(2)} s`);
export const duration = (seconds: number | null | undefined) => (seconds == null ? "-" : seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`);
export const words = (name: string) => name.replace(/_/g, " ");
/** Parses a size such as 500G or 1.5TiB into bytes. Fails for other texts. */
export function parseSize(text: string | undefined): number {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?B)?\s*$/i.exec(text ?? "");
  if (!match) throw new Error(`'${text}' is not a size: use, for example, 500G`);
  const power = ["", "K", "M", "G", "T", "P"].indexOf((match[2] ?? "").toUpperCase());
  const base = match[3] && match[3].toUpperCase() === "B" && match[2] ? 1000 : 1024;
  return Math.round(Number(match[1]) * base ** power);
}
