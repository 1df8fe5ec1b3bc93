/** The most that a point is moved, as a part of all rewards' span. */
const MOST = 0.04;
/** The same as a part of the distance between two rewards, so that a point stays with its own. */
const MOST_OF_GAP = 0.3;
/** The most different rewards that an axis names each, and the least distance between two of them. */
const NAMED = 5;
const NAMED_GAP = 0.15;
/** Space beyond the lowest and the highest reward, as a part of the span. */
const EDGE = 0.1;

/**
 * The places of rewards on an axis.
 *
 * @typedef {object} RewardPlaces
 * @property {number[]} places of each trajectory
 * @property {boolean} areSpread true if equal rewards have different places
 * @property {[number, number]} range of the axis
 * @property {number[] | null} names the rewards that the axis names; null: round numbers
 */

/**
 * Return where trajectories stand on an axis of rewards: those with equal rewards are spread around them by a little, the
 * same at each drawing, so that a line of them shows how many they are; the others stand at theirs.
 *
 * @param {readonly {trace_id: string, reward: number | null}[]} trajectories with a reward
 * @returns {RewardPlaces}
 */
export function rewardPlaces(trajectories) {
  const rewards = trajectories.map(({ reward }) => /** @type {number} */ (reward));
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const reward of rewards) counts.set(reward, (counts.get(reward) ?? 0) + 1);
  const different = [...counts.keys()].sort((one, other) => one - other);
  const [lowest, highest] = [different[0] ?? 0, different.at(-1) ?? 0];
  const span = highest - lowest || 1;
  const gap = different.slice(1).reduce((least, reward, at) => Math.min(least, reward - different[at]), span);
  const most = Math.min(MOST * span, MOST_OF_GAP * gap);
  return {
    places: trajectories.map(({ trace_id }, at) => {
      const isAlone = counts.get(rewards[at]) === 1;
      return isAlone ? rewards[at] : rewards[at] + (parseInt(trace_id.slice(-4), 16) / 0xffff - 0.5) * 2 * most;
    }),
    areSpread: different.length < rewards.length,
    range: [lowest - EDGE * span, highest + EDGE * span],
    names: different.length <= NAMED && gap >= NAMED_GAP * span ? different : null,
  };
}
