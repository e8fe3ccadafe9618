// Reads values that a training has written, and writes them for people. Nothing about their type is taken for granted.

/** Return an object's fields; of anything else, none. */
export const fields = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});

/** Return the list; of anything else, an empty one. */
export const list = (value) => (Array.isArray(value) ? value : []);

/** Return the text of a value; undefined for null and for what is missing. */
export function text(value) {
  if (value === undefined || value === null) return undefined;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Return the number; null for anything else. Airflow's API has NaN and infinities as texts. */
export const number = (value) => (Number.isFinite(value) ? value : null);

/** Return the instant of an RFC 3339 text in epoch seconds; null if there is none. */
export const instant = (value) => number(Date.parse(text(value) ?? "") / 1000);

/** Return a number with at most four significant digits, and integers in full. */
export function digits(value) {
  if (number(value) === null) return text(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(4)));
}

/** Return seconds as `2 d 3 h`, `1 h 5 min`, `5 min 3 s` or `12 s`. */
export function duration(seconds) {
  if (number(seconds) === null) return undefined;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const whole = Math.max(0, Math.round(seconds));
  const first = units.findIndex(([, size]) => whole >= size || size === 1);
  const parts = units.slice(first, first + 2).map(([name, size], place) => {
    const count = Math.floor(place ? (whole % units[first][1]) / size : whole / size);
    return place && !count ? "" : `${count} ${name}`;
  });
  return parts.join(" ").trim();
}

/** Return bytes as `1.2 GiB`. */
export function size(bytes) {
  if (number(bytes) === null) return undefined;
  const unit = bytes < 1 ? 0 : Math.min(5, Math.floor(Math.log2(bytes) / 10));
  return `${digits(bytes / 1024 ** unit)} ${["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

/** Return an instant in the visitor's time zone, without seconds that nobody needs across days. */
export function moment(seconds) {
  if (number(seconds) === null) return undefined;
  return new Date(seconds * 1000).toLocaleString("sv"); // 2026-11-27 14:03:09: the same for everybody, and it sorts
}
