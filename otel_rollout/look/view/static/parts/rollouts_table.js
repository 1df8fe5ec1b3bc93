import { compact, duration, signed, visible, whole } from "../data/formats.js";
import { addressOf, inAddress, selectionOf } from "../data/router.js";
import { statusOf } from "../data/rollouts.js";
import { RewardBadge, StatusBadge } from "./badges.js";
import { html } from "./html.js";
import { numberColumn } from "./table.js";

/** @import { Rollout } from "../data/rollouts.js" */
/** @import { StepSummary } from "../data/types.d.ts" */
/** @import { Column } from "./table.js" */

/** @type {typeof numberColumn<Rollout>} */
const number = numberColumn;

/** The columns that only some steps have. */
const RARE = [
  "service",
  "name",
  "sample",
  "rollout",
  "advantage",
  "fate",
  "breaks",
  "conversations",
  "subagents",
  "compactions",
  "forks",
];

/**
 * The table of a step's trajectories.
 *
 * @param {StepSummary} step
 * @param {Rollout[]} rollouts of the step: columns that all of them lack are left out
 * @returns {Column[]}
 */
export function rolloutColumns(step, rollouts) {
  /** @type {(Column | null)[]} */
  const columns = [
    {
      key: "service",
      title: "Service",
      width: "9rem",
      value: (each) => each.service,
      cell: (each) => html`<span class="said" title=${visible(each.service)}>${visible(each.service)}</span>`,
    },
    {
      key: "name",
      title: "Name",
      width: "12rem",
      value: (each) => each.name,
      cell: (each) =>
        html`<a class="said" href=${trajectoryAddress(step, each)} title=${visible(each.name)}
          >${visible(each.name)}</a
        >`,
    },
    {
      key: "sample",
      title: "Sample",
      width: "5rem",
      value: (each) => each.sample_index,
      cell: (each) =>
        html`<a class="said" href=${groupAddress(step, each)}
          >${visible(inAddress(each.sample_index))}</a
        >`,
    },
    {
      key: "rollout",
      title: "Rollout",
      width: "5.2rem",
      value: (each) => each.rollout_n,
      cell: (each) =>
        html`<a class="said" href=${trajectoryAddress(step, each)}
          >${visible(inAddress(each.rollout_n))}</a
        >`,
    },
    {
      key: "status",
      title: "Status",
      width: "7.5rem",
      value: statusOf,
      cell: (each) =>
        html`<${StatusBadge}
          status=${each.status}
          hasRoot=${each.has_root}
          error=${each.error_type}
          finishReason=${each.finish_reason}
        />`,
    },
    {
      key: "reward",
      title: "Reward",
      width: "5.5rem",
      isNumber: true,
      isDescendingFirst: true,
      value: (each) => each.reward,
      cell: (each) =>
        html`<${RewardBadge}
          reward=${each.reward}
          lowest=${step.reward_lowest}
          highest=${step.reward_highest}
        />`,
    },
    number("advantage", "Advantage", "6rem", (each) => each.advantage, signed),
    {
      key: "fate",
      title: "Fate",
      width: "6rem",
      value: (each) => each.fate,
      cell: (each) => html`<span class="said">${visible(each.fate)}</span>`,
    },
    number("turns", "Turns", "4.2rem", (each) => each.turns, whole),
    number("tokens", "Tokens", "5rem", (each) => each.output_tokens, compact, "Output tokens"),
    number("input", "Input", "5rem", (each) => each.input_tokens, compact, "Input tokens of all turns"),
    number("time", "Time", "5.5rem", (each) => each.seconds, duration, "Duration"),
    {
      ...number("tools", "Tool errors", "6.9rem", (each) => each.tool_errors, whole),
      cell: (each) =>
        each.tool_calls
          ? html`${whole(each.tool_errors)}<span class="weak">${` of ${whole(each.tool_calls)}`}</span>`
          : "",
    },
    number("breaks", "Prefix breaks", "7rem", (each) => each.prefix_breaks || null, whole),
    number("conversations", "Conversations", "7.6rem", ({ conversations: n }) => (n > 1 ? n : null), whole),
    number("subagents", "Sub-agents", "6.2rem", (each) => each.subagents || null, whole),
    number("compactions", "Compactions", "7rem", (each) => each.compactions || null, whole),
    number("forks", "Forks", "4.2rem", (each) => each.forks || null, whole),
    text("prompt", "Prompt", "minmax(12rem, 1fr)"),
    text("answer", "Answer", "minmax(14rem, 1.2fr)"),
  ];
  const isThere = (/** @type {Column} */ { key, value }) =>
    !RARE.includes(key) || rollouts.some((each) => value?.(each) != null);
  return columns.filter((column) => column !== null && isThere(column)).map((column) => /** @type {Column} */ (column));
}

/**
 * @param {StepSummary} step
 * @param {Rollout} rollout
 */
export function trajectoryAddress(step, rollout) {
  if (rollout.sample_index == null || rollout.rollout_n == null) {
    return addressOf({
      page: "trajectory",
      traceId: rollout.trace_id,
      query: {},
    });
  }
  return addressOf({
    page: "trajectory",
    step: inAddress(step.step),
    sample: inAddress(rollout.sample_index),
    rollout: inAddress(rollout.rollout_n),
    ...selectionOf(step),
    query: {},
  });
}

/**
 * @param {StepSummary} step
 * @param {Rollout} rollout
 */
function groupAddress(step, rollout) {
  return addressOf({
    page: "group",
    step: inAddress(step.step),
    sample: inAddress(rollout.sample_index),
    ...selectionOf(step),
    query: {},
  });
}

/**
 * @param {"prompt" | "answer"} key
 * @param {string} title
 * @param {string} width
 * @returns {Column}
 */
function text(key, title, width) {
  return {
    key,
    title,
    width,
    value: (each) => each[key],
    cell: (each) =>
      html`<span class="said" title=${visible(each[key])}
        >${visible(each[key])}</span
      >`,
  };
}
