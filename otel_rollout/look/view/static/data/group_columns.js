import { firstDifference } from "./alignment.js";
import { conversationNames, withBranches } from "./branches.js";

/** @import { GroupAnswer, GroupSummary } from "./types.d.ts" */
/** @import { Cell } from "./alignment.js" */
/** @import { Said } from "./branches.js" */

/**
 * A rollout of a group; `said` is its chat with its branches.
 *
 * @typedef {GroupAnswer["rollouts"][number] & {said: Said[], conversationNames: Map<number, string>}} Rollout
 */

/**
 * Return the rollouts of an answer.
 *
 * @param {GroupAnswer | undefined} group
 * @returns {Rollout[]}
 */
export function nestedRollouts(group) {
  return (group?.rollouts ?? []).map((each) => ({
    ...each,
    said: withBranches(each.conversation, each.conversations),
    conversationNames: conversationNames(each.conversations),
  }));
}

/** The most columns that are named beside the first difference. */
const MOST_APART = 3;

/**
 * The orders of a group's columns: a name, its words, and what a rollout is sorted by; the highest is first but for `rollout`.
 *
 * @type {Record<string, {words: string, of: (rollout: Rollout) => number | null}>}
 */
export const ORDERS = {
  rollout: { words: "rollout", of: () => null },
  reward: { words: "highest reward", of: ({ summary }) => summary.reward },
  tokens: { words: "most tokens", of: ({ summary }) => summary.output_tokens },
  turns: { words: "most turns", of: ({ summary }) => summary.turns },
  duration: {
    words: "longest",
    of: ({ summary }) => summary.end_time - summary.start_time,
  },
};

/**
 * Return rollouts in an order; those that don't have its amount are last.
 *
 * @param {Rollout[]} rollouts
 * @param {string} order
 * @returns {Rollout[]}
 */
export function orderRollouts(rollouts, order) {
  const of = ORDERS[order]?.of ?? ORDERS.rollout.of;
  const amounts = new Map(rollouts.map((each) => [each, of(each) ?? Number.NEGATIVE_INFINITY]));
  return [...rollouts].sort((one, other) => {
    const [left, right] = [amounts.get(one) ?? 0, amounts.get(other) ?? 0];
    return left === right ? 0 : right - left;
  });
}

/**
 * Return the names of rollouts as they stand in an address: their numbers, or places where two have the same.
 *
 * @param {Rollout[]} rollouts
 * @returns {Map<Rollout, string>}
 */
export function namesOf(rollouts) {
  const numbers = rollouts.map(({ summary }) => (summary.rollout_n === null ? "none" : String(summary.rollout_n)));
  const isUnique = new Set(numbers).size === numbers.length;
  return new Map(rollouts.map((each, at) => [each, isUnique ? numbers[at] : `${numbers[at]} (${at + 1})`]));
}

/**
 * Return the columns that say something else than most in a row, if there are no more than three of them.
 *
 * @param {(Pick<Cell, "sameAs"> | null)[]} cells
 * @param {number[]} shown
 * @returns {number[]}
 */
export function columnsApart(cells, shown) {
  const kindAt = (/** @type {number} */ at) => (cells[at] ? (cells[at].sameAs ?? at) : null);
  const most = shown
    .map(kindAt)
    .find((kind, _, kinds) => 2 * kinds.filter((each) => each === kind).length > kinds.length);
  if (most === undefined) return [];
  const apart = shown.filter((at) => kindAt(at) !== most);
  return apart.length <= MOST_APART ? apart : [];
}

/**
 * Return the turns in which other rollouts first differ from one, and which: 0 is the prompt; null, for those that say
 * the same, is last.
 *
 * @param {Rollout} one
 * @param {Rollout[]} rollouts
 * @returns {{turn: number | null, rollouts: Rollout[]}[]}
 */
export function differencesFrom(one, rollouts) {
  /** @type {Map<number | null, Rollout[]>} */
  const found = new Map();
  for (const each of rollouts) {
    if (each === one) continue;
    const turn = firstDifference(one.said, each.said)?.turn ?? null;
    found.set(turn, [...(found.get(turn) ?? []), each]);
  }
  return [...found]
    .map(([turn, differing]) => ({ turn, rollouts: differing }))
    .sort((left, right) => (left.turn ?? Infinity) - (right.turn ?? Infinity));
}

/**
 * Return the mean of the rewards of a group; null if there are none.
 *
 * @param {{rewards: (number | null)[]}} group
 * @returns {number | null}
 */
export function meanReward({ rewards }) {
  const known = rewards.filter((reward) => reward !== null);
  return known.length ? known.reduce((sum, reward) => sum + reward, 0) / known.length : null;
}

/**
 * Return a prompt's groups by step: those of other steps and this one, once each.
 *
 * @param {GroupSummary} here
 * @param {GroupSummary[]} others
 * @returns {GroupSummary[]}
 */
export function groupsBySteps(here, others) {
  const isHere = (/** @type {GroupSummary} */ group) =>
    group.step === here.step && group.run_id === here.run_id && group.experiment_name === here.experiment_name;
  return [here, ...others.filter((group) => !isHere(group))].sort(
    (one, other) => (one.step ?? -1) - (other.step ?? -1),
  );
}
