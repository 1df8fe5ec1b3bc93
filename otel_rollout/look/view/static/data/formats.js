/** Numbers, durations and texts as the pages write them; what is unknown is an empty text. */

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/**
 * Write a whole number with its thousands apart: 16,384.
 *
 * @param {number | null | undefined} value
 */
export function whole(value) {
  return value == null ? "" : WHOLE.format(value);
}

/**
 * Write an amount in at most five characters: 950, 12.3k, 4.1M.
 *
 * @param {number | null | undefined} value
 */
export function compact(value) {
  if (value == null) return "";
  const size = Math.abs(value);
  if (size < 10 && !Number.isInteger(value)) return value.toFixed(1);
  for (const [limit, unit, letter] of /** @type {[number, number, string][]} */ ([
    [9999.5, 1, ""],
    [999_500, 1e3, "k"],
    [999_500_000, 1e6, "M"],
    [Infinity, 1e9, "G"],
  ])) {
    if (size >= limit) continue;
    const amount = value / unit;
    return (letter && Math.abs(amount) < 99.95 ? amount.toFixed(1) : WHOLE.format(amount)) + letter;
  }
  return String(value);
}

/**
 * Write a reward or an advantage: three decimals, the sign of a minus, whole numbers plainly.
 *
 * @param {number | null | undefined} value
 */
export function decimal(value) {
  if (value == null) return "";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return minus(String(value));
  const size = Math.abs(value);
  if (size >= 1e6 || size < 5e-4) return minus(value.toExponential(1));
  return minus(value.toFixed(size < 100 ? 3 : 1));
}

/**
 * Write an advantage: a reward with the sign of a plus, too.
 *
 * @param {number | null | undefined} value
 */
export function signed(value) {
  return (value != null && value > 0 ? "+" : "") + decimal(value);
}

/**
 * Write a mean of whole numbers with one decimal: 3.6.
 *
 * @param {number | null | undefined} value
 */
export function tenth(value) {
  return value == null ? "" : decimal(Math.round(value * 10) / 10).replace(/(\.\d)0+$/, "$1");
}

/**
 * Write a value of an axis: no more decimals than it has.
 *
 * @param {number | null | undefined} value
 */
export function tick(value) {
  return value == null ? "" : minus(String(Number(value.toFixed(6))));
}

/**
 * Write a share: 0%, 0.4%, 12%, 99.6%, 100%. Only none is 0% and only all is 100%.
 *
 * @param {number | null | undefined} share
 */
export function percent(share) {
  if (share == null) return "";
  const value = share * 100;
  if (value === 0 || value === 100) return `${value}%`;
  if (value > 0 && value < 0.1) return "<0.1%";
  if (value > 99.9 && value < 100) return ">99.9%";
  return `${value < 10 || value > 99 ? value.toFixed(1) : value.toFixed(0)}%`;
}

/**
 * Write a part of a whole as a share; nothing if the whole is empty.
 *
 * @param {number} part
 * @param {number} all
 */
export function percentOf(part, all) {
  return all ? percent(part / all) : "";
}

/**
 * Write a duration: 12 ms, 1.24 s, 12.4 s, 3m 05s, 2h 04m.
 *
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  if (seconds == null) return "";
  if (seconds === 0) return "0 s";
  if (seconds > 0 && seconds < 9.95e-5) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 0.0995) return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 99.95) return `${seconds.toFixed(1)} s`;
  const rounded = Math.round(seconds);
  if (rounded < 3600) return `${Math.floor(rounded / 60)}m ${two(rounded % 60)}s`;
  return `${Math.floor(rounded / 3600)}h ${two(Math.floor((rounded % 3600) / 60))}m`;
}

/**
 * Write a time of an axis, with the digits that tell it from the next one.
 *
 * @param {number} seconds
 * @param {number} every the seconds between two of the axis's times
 */
export function timeOnAxis(seconds, every) {
  if (!seconds) return "0";
  const [unit, name] = seconds < 1e-3 ? [1e-6, "µs"] : seconds < 1 ? [1e-3, "ms"] : [1, "s"];
  const digits = Math.max(0, Math.ceil(-Math.log10(every / unit) - 1e-9));
  if (seconds < 60) return `${(seconds / unit).toFixed(digits)} ${name}`;
  if (every >= 60) return duration(seconds);
  const minutes = Math.floor(seconds / 60 + 1e-9);
  const rest = Math.max(0, seconds - 60 * minutes).toFixed(digits);
  return `${minutes}m ${rest.padStart(digits ? digits + 3 : 2, "0")}s`;
}

/**
 * Write a size: 512 B, 12 kB, 653 MB.
 *
 * @param {number | null | undefined} value
 */
export function bytes(value) {
  if (value == null) return "";
  for (const [limit, unit, name] of /** @type {[number, number, string][]} */ ([
    [1e3, 1, "B"],
    [1e6, 1e3, "kB"],
    [1e9, 1e6, "MB"],
    [Infinity, 1e9, "GB"],
  ])) {
    if (value < limit)
      return `${value / unit < 10 && unit > 1 ? (value / unit).toFixed(1) : Math.round(value / unit)} ${name}`;
  }
  return "";
}

/**
 * Write a time of day, with its date, in the reader's zone: 2026-11-22 17:55:03.
 *
 * @param {number | null | undefined} nanoseconds since 1970
 */
export function clock(nanoseconds) {
  if (!nanoseconds) return "";
  const time = new Date(nanoseconds / 1e6);
  const date = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${date} ${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/**
 * Write a class without its module: TimeoutError.
 *
 * @param {string} name
 */
export function shortClass(name) {
  return name.slice(name.lastIndexOf(".") + 1) || name;
}

/**
 * Write a number with its noun: 1 group, 2 groups.
 *
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export function counted(count, one, many = `${one}s`) {
  return `${whole(count)} ${count === 1 ? one : many}`;
}

/**
 * Show what a text hides: control characters and those that turn the direction of writing stand as `‹U+202E›`.
 *
 * @param {string | null | undefined} text
 */
export function visible(text) {
  return (text ?? "").replace(HIDDEN, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
  });
}

/** C0 and C1 controls but tab and line feed; marks, embeddings, overrides and isolates of direction; tag characters. */
const HIDDEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff" +
    "\\u{e0000}-\\u{e007f}]",
  "gu",
);

/** @param {number} value */
function two(value) {
  return String(value).padStart(2, "0");
}

/** @param {string} text */
function minus(text) {
  return text.replace(/^-/, "−");
}

/**
 * Return a sentence with a capital letter at its beginning.
 *
 * @param {string} sentence
 */
export function capitalized(sentence) {
  return sentence.charAt(0).toUpperCase() + sentence.slice(1);
}
