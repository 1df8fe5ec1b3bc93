import { compact, duration, percent, tenth, visible, whole } from "../data/formats.js";
import { addressOf, groupRoute, inAddress } from "../data/router.js";
import { RewardStrip } from "./badges.js";
import { html } from "./html.js";

/** @import { GroupSummary, Spread, StepSummary } from "../data/types.d.ts" */
/** @import { Column } from "./table.js" */

const NO_SIGNAL = /** @type {Record<string, string>} */ ({
  best: "all best",
  worst: "all worst",
  other: "all equal",
});

/**
 * The table of a step's groups.
 *
 * @param {StepSummary} step
 * @param {number} most the largest number of rollouts of a group
 * @returns {Column[]}
 */
export function groupColumns(step, most) {
  return [
    {
      key: "sample",
      title: "Sample",
      width: "5rem",
      value: (group) => group.sample_index,
      cell: (group) =>
        html`<a class="said" href=${addressOf(groupRoute(group))}
          >${visible(inAddress(group.sample_index))}</a
        >`,
    },
    {
      key: "rewards",
      title: "Rewards",
      help: "A cell for each rollout",
      width: `${Math.max(6, Math.min(20, most * 1.55 + 1.2))}rem`,
      isDescendingFirst: true,
      value: (group) => mean(group),
      cell: (group) =>
        html`<${RewardStrip}
          rewards=${group.rewards}
          statuses=${group.statuses}
          names=${group.rollout_ns}
          lowest=${step.reward_lowest}
          highest=${step.reward_highest}
          addressOf=${(/** @type {number} */ index) => rolloutAddress(group, index)}
        />`,
    },
    {
      key: "solved",
      title: "Solved",
      help: "The share of rewards in the upper half of the run's rewards",
      width: "4.5rem",
      isNumber: true,
      isDescendingFirst: true,
      value: (group) => group.solved,
      cell: (group) => percent(group.solved),
    },
    {
      key: "signal",
      title: "Signal",
      help: "Groups whose rewards are all equal teach nothing",
      width: "5.5rem",
      value: (group) => group.zero_variance ?? "~",
      cell: (group) =>
        group.zero_variance
          ? html`<span class="no-signal"
              >${NO_SIGNAL[group.zero_variance] ?? group.zero_variance}</span
            >`
          : "",
    },
    ...amount("tokens", "Tokens", ["4.8rem", "4.8rem"], (group) => group.tokens, compact, "Output tokens"),
    ...amount("turns", "Turns", ["4.2rem", "3.5rem"], (group) => group.turns, tenth, "Turns"),
    ...amount("time", "Time", ["5rem", "5rem"], (group) => group.seconds, duration, "Duration"),
    {
      key: "tools",
      title: "Tool errors",
      width: "6.9rem",
      isNumber: true,
      isDescendingFirst: true,
      value: (group) => group.tool_errors,
      cell: (group) =>
        group.tool_calls
          ? html`${whole(group.tool_errors)}<span class="weak">${` of ${whole(group.tool_calls)}`}</span>`
          : "",
    },
    {
      key: "parts",
      title: "Differ",
      help: "The first turn that not all rollouts have alike; how many rollouts equal an earlier one",
      width: "9.5rem",
      value: (group) => group.first_divergence,
      cell: (group) =>
        html`${group.first_divergence == null ? (group.trace_ids.length > 1 ? "alike" : "") : `turn ${group.first_divergence}`}${
          group.duplicates ? html`<span class="weak"> · ${group.duplicates} same</span>` : null
        }`,
    },
    {
      key: "prompt",
      title: "Prompt",
      width: "minmax(14rem, 1fr)",
      value: (group) => group.prompt,
      cell: (group) =>
        html`<span class="said" title=${visible(group.prompt)}
          >${visible(group.prompt)}</span
        >`,
    },
  ];
}

/**
 * Return the address of a rollout of a group; by its trace if it has no number or shares it.
 *
 * @param {GroupSummary} group
 * @param {number} index
 */
export function rolloutAddress(group, index) {
  const number = group.rollout_ns[index];
  if (number == null || group.rollout_ns.indexOf(number) !== group.rollout_ns.lastIndexOf(number)) {
    return addressOf({
      page: "trajectory",
      traceId: group.trace_ids[index],
      query: {},
    });
  }
  return addressOf({
    ...groupRoute(group),
    page: "trajectory",
    rollout: String(number),
  });
}

/** @param {GroupSummary} group */
function mean({ rewards }) {
  const known = rewards.filter((reward) => reward != null);
  return known.length ? known.reduce((sum, reward) => sum + reward, 0) / known.length : null;
}

/**
 * The columns of an amount: its mean, and the highest.
 *
 * @param {string} key
 * @param {string} title
 * @param {[string, string]} widths
 * @param {(group: GroupSummary) => Spread | null} spreadOf
 * @param {(value: number | null | undefined) => string} format
 * @param {string} help
 * @returns {Column[]}
 */
function amount(key, title, widths, spreadOf, format, help) {
  const number = { isNumber: true, isDescendingFirst: true };
  return [
    {
      ...number,
      key,
      title,
      help: `${help}: mean of the group`,
      width: widths[0],
      value: (group) => spreadOf(group)?.mean,
      cell: (group) => format(spreadOf(group)?.mean),
    },
    {
      ...number,
      key: `${key}-max`,
      title: "max",
      help: `${help}: highest of the group`,
      width: widths[1],
      value: (group) => spreadOf(group)?.highest,
      cell: (group) => html`<span class="weak">${format(spreadOf(group)?.highest)}</span>`,
    },
  ];
}
