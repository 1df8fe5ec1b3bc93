/** @import { GroupSummary, StepAnswer, StepSummary } from "./types.d.ts" */

/** @typedef {import("./types.d.ts").Rollout} Rollout */

/**
 * Return the trajectories of a step; the server sends their values without names.
 *
 * @param {Pick<StepAnswer, "columns" | "rows">} table
 * @returns {Rollout[]}
 */
export function rolloutsOf({ columns, rows }) {
  return rows.map((row) => {
    /** @type {any} */
    const rollout = {};
    for (let index = 0; index < columns.length; index += 1) rollout[columns[index]] = row[index];
    return rollout;
  });
}

/**
 * The filter of a step's trajectories or groups; fields of an address.
 *
 * @typedef {object} Filter
 * @property {string} [q] a text in the prompt or the answer
 * @property {string} [status] `open` has no end yet
 * @property {string} [reward] `known`, `none`, `best` or `worst`
 * @property {string} [from] the lowest reward
 * @property {string} [to] the reward below which it is; itself too if it is the step's highest or equals `from`
 * @property {string} [tools] `errors`
 * @property {string} [fate]
 * @property {string} [signal] of groups: `none`, `best`, `worst` or `some`
 */

/** The names of a filter's fields. */
export const FILTER_FIELDS = /** @type {const} */ (["q", "status", "reward", "from", "to", "tools", "fate", "signal"]);

/**
 * Return the function that says if a trajectory is looked for.
 *
 * @param {Filter} filter
 * @param {StepSummary} step
 * @returns {(rollout: Rollout) => boolean}
 */
export function rolloutTest(filter, step) {
  /** @type {((rollout: Rollout) => boolean)[]} */
  const tests = [];
  const text = filter.q?.trim().toLowerCase();
  if (text) tests.push((each) => each.prompt.toLowerCase().includes(text) || each.answer.toLowerCase().includes(text));
  if (filter.status) tests.push((each) => statusOf(each) === filter.status);
  if (filter.reward === "known") tests.push((each) => each.reward != null);
  if (filter.reward === "none") tests.push((each) => each.reward == null);
  if (filter.reward === "best") tests.push((each) => each.reward != null && each.reward === step.reward_highest);
  if (filter.reward === "worst") tests.push((each) => each.reward != null && each.reward === step.reward_lowest);
  const [from, to] = [numberOf(filter.from), numberOf(filter.to)];
  if (from !== null) tests.push((each) => each.reward != null && each.reward >= from);
  if (to !== null) {
    const isClosed = to === step.reward_highest || to === from;
    tests.push((each) => each.reward != null && (each.reward < to || (isClosed && each.reward === to)));
  }
  if (filter.tools === "errors") tests.push((each) => each.tool_errors > 0);
  if (filter.fate) tests.push((each) => each.fate === filter.fate);
  return (rollout) => tests.every((test) => test(rollout));
}

/**
 * Return the function that says if a group is looked for: it has a trajectory that is.
 *
 * @param {Filter} filter
 * @param {StepSummary} step
 * @param {readonly Rollout[]} rollouts of the step
 * @returns {(group: GroupSummary) => boolean}
 */
export function groupTest(filter, step, rollouts) {
  const { signal, ...rest } = filter;
  const isAny = !Object.values(rest).some(Boolean);
  const found = new Set(isAny ? [] : rollouts.filter(rolloutTest(rest, step)).map(({ trace_id }) => trace_id));
  return (group) => hasSignal(group, signal) && (isAny || group.trace_ids.some((id) => found.has(id)));
}

/**
 * Return a trajectory's status as the filter has it.
 *
 * @param {{status: string | null, has_root: boolean}} rollout
 */
export function statusOf({ status, has_root }) {
  return has_root ? (status ?? "completed") : "open";
}

/**
 * The bars of a histogram of rewards.
 *
 * @typedef {object} Bar
 * @property {number} from
 * @property {number} to
 * @property {number} count
 */

/**
 * Count rewards in ranges of the same width; up to a few different rewards have a bar each.
 *
 * @param {readonly (number | null)[]} rewards
 * @param {number} bins
 * @returns {Bar[]}
 */
export function histogram(rewards, bins) {
  const known = rewards.filter((reward) => reward != null);
  if (!known.length) return [];
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const reward of known) counts.set(reward, (counts.get(reward) ?? 0) + 1);
  if (counts.size <= Math.min(bins, 12)) {
    return [...counts]
      .sort(([one], [other]) => one - other)
      .map(([reward, count]) => ({ from: reward, to: reward, count }));
  }
  const lowest = known.reduce((least, reward) => Math.min(least, reward), Infinity);
  const highest = known.reduce((most, reward) => Math.max(most, reward), -Infinity);
  const width = (highest - lowest) / bins;
  const bars = Array.from({ length: bins }, (_, index) => ({
    from: lowest + index * width,
    to: index === bins - 1 ? highest : lowest + (index + 1) * width,
    count: 0,
  }));
  for (const reward of known) bars[Math.min(bins - 1, Math.floor((reward - lowest) / width))].count += 1;
  return bars;
}

/**
 * @param {GroupSummary} group
 * @param {string | undefined} signal
 */
function hasSignal({ zero_variance }, signal) {
  if (!signal) return true;
  if (signal === "none") return zero_variance !== null;
  return signal === "some" ? zero_variance === null : zero_variance === signal;
}

/** @param {string | undefined} text */
function numberOf(text) {
  const value = text ? Number(text) : NaN;
  return Number.isNaN(value) ? null : value;
}
