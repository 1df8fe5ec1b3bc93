/** The number of colors from the lowest reward to the highest; style/colors.css has them as --reward-0 and on. */
export const REWARD_COLORS = 7;

/**
 * Return the color class of a reward between a step's lowest and highest: `reward-0` is the lowest.
 *
 * @param {number | null | undefined} reward
 * @param {number | null | undefined} lowest
 * @param {number | null | undefined} highest
 */
export function rewardClass(reward, lowest, highest) {
  if (reward == null || Number.isNaN(reward)) return "reward-none";
  return `reward-${rewardLevel(reward, lowest, highest)}`;
}

/**
 * Return the color's number; the middle one if all rewards are equal and neither 0 nor 1.
 *
 * @param {number} reward
 * @param {number | null | undefined} lowest
 * @param {number | null | undefined} highest
 */
export function rewardLevel(reward, lowest, highest) {
  const top = REWARD_COLORS - 1;
  if (lowest == null || highest == null || lowest === highest) {
    if (reward >= 1) return top;
    return reward <= 0 ? 0 : top / 2;
  }
  const share = (reward - lowest) / (highest - lowest);
  return Math.max(0, Math.min(top, Math.round(share * top)));
}
