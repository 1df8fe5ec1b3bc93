// A step's timeline as numbers: which lanes are in view, what is under the pointer, whom the step waited for.

/** The kinds of a segment by number; what no segment covers is waiting. */
export const KINDS = /** @type {const} */ (["generating", "tool", "reward", "other", "waiting"]);
const OTHER = 3;
const WAITING = 4;
/** The whole numbers of one segment: kind, start, duration, name, status. */
export const SEGMENT = 5;
/** The status of a trajectory that has not ended. */
export const RUNNING = "running";
/** The part of the trajectories that the step is said to have waited for. */
const LAST = 0.05;
/** The shortest time that a view of the timeline shows, in microseconds. */
const SHORTEST = 1000;

/** @import { TimelineLane } from "./types.d.ts" */

/**
 * @typedef {{kind: number, start: number, duration: number, name: string, isError: boolean}} Segment
 * @typedef {{from: number, to: number}} View  Microseconds from the step's start.
 * @typedef {"end" | "start" | "duration" | "reward"} LaneOrder
 */

/**
 * Return a lane's segments.
 * @param {TimelineLane} lane
 * @param {string[]} names
 * @returns {Segment[]}
 */
export function segmentsOf(lane, names) {
  const found = [];
  for (let at = 0; at + SEGMENT <= lane.segments.length; at += SEGMENT) {
    const [kind, start, duration, name, status] = lane.segments.slice(at, at + SEGMENT);
    found.push({
      kind,
      start,
      duration,
      name: names[name] ?? "",
      isError: status === 2,
    });
  }
  return found;
}

/**
 * Return the positions of lanes in an order; the latest, longest and best are first.
 * @param {TimelineLane[]} lanes
 * @param {LaneOrder} order
 * @returns {number[]}
 */
export function orderLanes(lanes, order) {
  /** @type {Record<LaneOrder, (lane: TimelineLane) => number>} */
  const keys = {
    end: (lane) => -lane.end,
    start: (lane) => lane.start,
    duration: (lane) => lane.start - lane.end,
    reward: (lane) => -(lane.reward ?? Number.NEGATIVE_INFINITY),
  };
  const values = lanes.map(keys[order]);
  return lanes
    .map((_, position) => position)
    .sort((one, other) => {
      if (values[one] === values[other]) return one - other;
      return values[one] < values[other] ? -1 : 1;
    });
}

/**
 * Return the first lane that is in view, and the one after the last.
 * @param {number} top  Pixels that were scrolled.
 * @param {number} height  Pixels of the window.
 * @param {number} laneHeight
 * @param {number} count
 * @returns {[number, number]}
 */
export function visibleLanes(top, height, laneHeight, count) {
  const first = Math.max(0, Math.min(count, Math.floor(top / laneHeight)));
  return [first, Math.max(first, Math.min(count, Math.ceil((top + height) / laneHeight)))];
}

/**
 * Return the part of the bounds that is nearest to a view.
 * @param {View} view
 * @param {View} bounds
 * @returns {View}
 */
function within(view, bounds) {
  const whole = bounds.to - bounds.from;
  const length = Math.min(Math.max(view.to - view.from, Math.min(SHORTEST, whole)), whole);
  const from = Math.min(Math.max(view.from, bounds.from), bounds.to - length);
  return { from, to: from + length };
}

/**
 * Return a view with its time stretched; what is at a place of it stays there.
 * @param {View} view
 * @param {number} factor  Above 1 shows more detail.
 * @param {number} at  The place that stays, from 0 (left) to 1.
 * @param {View} bounds
 * @returns {View}
 */
export function zoomAt(view, factor, at, bounds) {
  const length = view.to - view.from;
  const fixed = view.from + length * at;
  const shown = Math.min(Math.max(length / factor, SHORTEST), bounds.to - bounds.from);
  return within({ from: fixed - shown * at, to: fixed + shown * (1 - at) }, bounds);
}

/**
 * Return a view moved by a part of its length.
 * @param {View} view
 * @param {number} part  Above 0 shows what is later.
 * @param {View} bounds
 * @returns {View}
 */
export function panBy(view, part, bounds) {
  const by = (view.to - view.from) * part;
  return within({ from: view.from + by, to: view.to + by }, bounds);
}

/**
 * Return the innermost segment of a lane at a time; null if there is none within the slack.
 * @param {TimelineLane} lane
 * @param {string[]} names
 * @param {number} time
 * @param {number} slack  Microseconds beside a segment that count as on it.
 * @returns {Segment | null}
 */
export function segmentAt(lane, names, time, slack) {
  /** @type {Segment | null} */
  let best = null;
  let distance = Number.POSITIVE_INFINITY;
  for (const each of segmentsOf(lane, names)) {
    const beside = Math.max(each.start - time, time - each.start - each.duration, 0);
    if (beside > slack || beside > distance) continue;
    const isInner = best === null || beside < distance || each.duration <= best.duration;
    if (isInner) [best, distance] = [each, beside];
  }
  return best;
}

/**
 * Return the microseconds of a lane by what it did in a time; overlapping segments count once, as the innermost.
 * @param {TimelineLane} lane
 * @param {string[]} names
 * @param {View} during
 * @returns {Map<string, {kind: number, name: string, time: number}>}
 */
export function activities(lane, names, during) {
  const from = Math.max(during.from, lane.start);
  const to = Math.min(during.to, lane.end);
  const inside = segmentsOf(lane, names).filter(
    (each) => each.kind !== OTHER && each.start < to && each.start + each.duration > from,
  );
  const edges = new Set([from, to]);
  for (const each of inside) {
    edges.add(Math.max(from, each.start));
    edges.add(Math.min(to, each.start + each.duration));
  }
  const times = [...edges].sort((one, other) => one - other);
  const open = inside.sort((one, other) => one.start - other.start);
  /** @type {Map<string, {kind: number, name: string, time: number}>} */
  const found = new Map();
  /** @type {Segment[]} */
  let running = [];
  let next = 0;
  for (let at = 0; at + 1 < times.length; at += 1) {
    const [begin, end] = [times[at], times[at + 1]];
    while (next < open.length && open[next].start <= begin) running.push(open[next++]);
    running = running.filter((each) => each.start + each.duration > begin);
    const inner = running[running.length - 1];
    const [kind, name] = inner ? [inner.kind, inner.name] : [WAITING, ""];
    const key = `${kind} ${name}`;
    const sum = found.get(key) ?? { kind, name, time: 0 };
    sum.time += end - begin;
    found.set(key, sum);
  }
  return found;
}

/**
 * @typedef {object} Stragglers
 * @property {number} since  The time by which the others had ended, in microseconds from the step's start.
 * @property {number} until  The time at which the last ended, or now.
 * @property {boolean} isRunning  True for those that run; else the last 5%.
 * @property {number} count  The number of trajectories that ended after it.
 * @property {number} total  The number of all.
 * @property {{kind: number, name: string, time: number}[]} did  What those did meanwhile, longest first.
 * @property {Set<string>} traceIds
 */

/**
 * Return whom the step waited for at its end, and what those did meanwhile; null if there is nothing to say.
 * @param {TimelineLane[]} lanes
 * @param {string[]} names
 * @returns {Stragglers | null}
 */
export function stragglersOf(lanes, names) {
  if (lanes.length < 2) return null;
  const ends = lanes.map((lane) => lane.end).sort((one, other) => one - other);
  const running = lanes.reduce((count, lane) => count + (lane.status === RUNNING ? 1 : 0), 0);
  if (running === lanes.length) return null;
  const count = running || Math.max(1, Math.floor(lanes.length * LAST));
  const since = ends[ends.length - count - 1];
  const until = ends[ends.length - 1];
  const late = lanes.filter((lane) => lane.end > since);
  if (!late.length) return null;
  /** @type {Map<string, {kind: number, name: string, time: number}>} */
  const sums = new Map();
  for (const lane of late) {
    for (const [key, each] of activities(lane, names, {
      from: since,
      to: until,
    })) {
      const sum = sums.get(key) ?? { ...each, time: 0 };
      sum.time += each.time;
      sums.set(key, sum);
    }
  }
  const did = [...sums.values()].sort((one, other) => other.time - one.time);
  const traceIds = new Set(late.map((lane) => lane.trace_id));
  return {
    since,
    until,
    isRunning: running > 0,
    count: late.length,
    total: lanes.length,
    did,
    traceIds,
  };
}

/**
 * Return round times for an axis.
 * @param {View} view
 * @param {number} most  The most of them.
 * @returns {number[]}
 */
export function ticks(view, most) {
  const length = Math.max(1, view.to - view.from);
  const least = length / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(least));
  const every = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least) ?? power * 10;
  const found = [];
  // By multiples: sums of fractions drift.
  for (let at = Math.ceil(view.from / every); at * every <= view.to; at++) found.push(at * every);
  return found;
}
