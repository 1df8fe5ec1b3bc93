// The places of a trajectory's spans: a row for each, children below their parent, bars in parts of the whole time.

/**
 * @typedef {object} TimedSpan
 * @property {string} span_id
 * @property {string | null} parent_id
 * @property {string} start_time  Nanoseconds since 1970 as text: a number of JavaScript loses digits.
 * @property {string} end_time
 */

/**
 * @template {TimedSpan} S
 * @typedef {object} WaterfallRow
 * @property {S} span
 * @property {number} depth
 * @property {number} left  From 0 to 1.
 * @property {number} width  From 0 to 1.
 * @property {number} start  Seconds from the first span's start.
 * @property {number} seconds
 */

/** The part of the width that a span takes that comes after the root. */
const EDGE = 0.005;

/**
 * Return the rows of a waterfall: depth first, children by start; a span without its parent is at the top.
 * @template {TimedSpan} S
 * @param {S[]} spans
 * @returns {{rows: WaterfallRow<S>[], seconds: number}}
 */
export function layOutWaterfall(spans) {
  if (!spans.length) return { rows: [], seconds: 0 };
  const starts = spans.map((span) => BigInt(span.start_time || 0));
  const origin = starts.reduce((least, each) => (each < least ? each : least));
  const times = spans.map((span, position) => {
    const start = Number(starts[position] - origin) / 1e9;
    const end = Number(BigInt(span.end_time || span.start_time || 0) - origin) / 1e9;
    return { start, seconds: Math.max(0, end - start) };
  });
  // What comes after the root is not the trajectory's time: its bar is at the edge.
  const roots = times.filter((_, position) => spans[position].parent_id === null);
  const total = (roots.length ? roots : times).reduce((most, each) => Math.max(most, each.start + each.seconds), 0);
  const known = new Map(spans.map((span, position) => [span.span_id, position]));
  /** @type {Map<number, number[]>} */
  const children = new Map();
  spans.forEach((span, position) => {
    const parent = span.parent_id === null ? undefined : known.get(span.parent_id);
    const above = parent === undefined || parent === position ? -1 : parent;
    const beside = children.get(above);
    if (beside) beside.push(position);
    else children.set(above, [position]);
  });
  for (const each of children.values()) each.sort((one, other) => times[one].start - times[other].start);
  /** @type {WaterfallRow<S>[]} */
  const rows = [];
  const placed = new Set();
  /** @param {number[]} roots */
  const place = (roots) => {
    const open = roots.map((position) => ({ position, depth: 0 })).reverse();
    for (let next = open.pop(); next; next = open.pop()) {
      const { position, depth } = next;
      if (placed.has(position)) continue;
      placed.add(position);
      const { start, seconds } = times[position];
      const left = total ? Math.min(start / total, 1 - EDGE) : 0;
      const width = total ? Math.min(seconds / total, 1 - left) : 1;
      rows.push({ span: spans[position], depth, left, width, start, seconds });
      const below = children.get(position) ?? [];
      for (let at = below.length - 1; at >= 0; at -= 1) open.push({ position: below[at], depth: depth + 1 });
    }
  };
  place(children.get(-1) ?? []);
  // Spans that are each other's parents have no way from the top.
  if (placed.size < spans.length) place(spans.map((_, position) => position));
  return { rows, seconds: total };
}
