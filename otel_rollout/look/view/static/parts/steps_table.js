import { clock, compact, decimal, duration, percent, percentOf, whole } from "../data/formats.js";
import { addressOf, inAddress, selectionOf } from "../data/router.js";
import {
  allToolCalls,
  groupsWithoutSignal,
  noSignalShare,
  share,
  toolErrorShare,
  wallSeconds,
} from "../data/step_figures.js";
import { html } from "./html.js";
import { numberColumn } from "./table.js";

/** @import { StepSummary } from "../data/types.d.ts" */
/** @import { Column } from "./table.js" */

/** @type {typeof numberColumn<StepSummary>} */
const number = numberColumn;

/**
 * A share as a number over a quiet bar, so that a column is read at a glance.
 *
 * @param {number | null} value
 * @param {string} [detail]
 * @param {"bad" | "accent"} [tone]
 */
export function shareCell(value, detail, tone = "bad") {
  if (value == null) return "";
  return html`<span class="share share-${tone}" title=${detail}
    ><i style=${{ width: `${Math.min(100, value * 100)}%` }}></i
    ><span>${percent(value)}</span></span
  >`;
}

/** @type {Column[]} */
const COLUMNS = [
  {
    key: "step",
    title: "Step",
    width: "3.6rem",
    value: (step) => step.step,
    cell: (step) =>
      html`<a
        href=${addressOf({ page: "step", step: inAddress(step.step), ...selectionOf(step), query: {} })}
        >${step.step ?? "none"}</a
      >`,
  },
  number("groups", "Groups", "4.9rem", (step) => step.groups, whole, "Prompts"),
  number("trajectories", "Rollouts", "5.5rem", (step) => step.trajectories, whole, "Trajectories"),
  number("reward", "Reward", "5.5rem", (step) => step.reward_mean, decimal, "Mean reward"),
  number(
    "spread",
    "In groups",
    "6rem",
    (step) => step.group_std,
    decimal,
    "Mean standard deviation within groups: what training learns from",
  ),
  {
    key: "signal",
    title: "No signal",
    help: "Groups whose rewards are all equal: they teach nothing",
    width: "6.3rem",
    isNumber: true,
    isDescendingFirst: true,
    value: noSignalShare,
    cell: (step) =>
      shareCell(
        noSignalShare(step),
        `${groupsWithoutSignal(step)} of ${step.comparable_groups} groups: ${step.zero_variance.best ?? 0} all best, ${step.zero_variance.worst ?? 0} all worst, ${step.zero_variance.other ?? 0} other`,
        "accent",
      ),
  },
  shareColumn(
    "truncated",
    "Truncated",
    "6.3rem",
    (step) => step.truncated,
    (step) => step.trajectories,
    "Trajectories that were cut off",
  ),
  shareColumn(
    "errors",
    "Errors",
    "5.3rem",
    (step) => step.errors,
    (step) => step.trajectories,
    "Trajectories that ended in an error",
  ),
  {
    key: "tools",
    title: "Tool errors",
    help: "Tool calls that failed",
    width: "6.9rem",
    isNumber: true,
    isDescendingFirst: true,
    value: toolErrorShare,
    cell: (step) => {
      const { calls, errors } = allToolCalls(step.tools);
      return shareCell(toolErrorShare(step), `${whole(errors)} of ${whole(calls)} calls`);
    },
  },
  number("turns", "Turns", "4.2rem", (step) => step.turns?.mean, decimalOrWhole, "Mean number of turns"),
  number("tokens", "Tokens p50", "7rem", (step) => step.tokens?.p50, compact, "Output tokens, median"),
  number("tokens99", "p99", "4.5rem", (step) => step.tokens?.p99, compact, "Output tokens, 99th percentile"),
  number("seconds", "Time p50", "6rem", (step) => step.seconds?.p50, duration, "Duration, median"),
  number("seconds99", "p99", "5.2rem", (step) => step.seconds?.p99, duration, "Duration, 99th percentile"),
  number(
    "wall",
    "Wall time",
    "6rem",
    wallSeconds,
    duration,
    "From the start of the first trajectory to the end of the last",
  ),
  {
    key: "last",
    title: "Last 5%",
    help: "The share of the step's time spent waiting for its last 5% of trajectories",
    width: "5.5rem",
    isNumber: true,
    isDescendingFirst: true,
    value: (step) => step.last_5_percent_share,
    cell: (step) => shareCell(step.last_5_percent_share, undefined, "accent"),
  },
  number(
    "open",
    "Open",
    "4rem",
    (step) => step.rootless || null,
    whole,
    "They run, or their process ended before they did",
  ),
  number("attempt", "Attempt", "5rem", (step) => step.attempt, whole, "The attempt of a resumed run"),
  {
    key: "end",
    title: "Ended",
    width: "9.1rem",
    isNumber: true,
    isDescendingFirst: true,
    value: (step) => step.end_time,
    // The year is the same in most tables, and there is little room.
    cell: (step) =>
      html`<span title=${`${clock(step.end_time)}, after ${duration(wallSeconds(step))}`}
        >${clock(step.end_time).slice(5)}</span
      >`,
  },
];

/**
 * The table of steps.
 *
 * @param {StepSummary[]} steps all of them: columns that say nothing of any are left out
 * @param {boolean} isWide there is room for the wall time, which the end's title has too
 * @returns {Column[]}
 */
export function stepColumns(steps, isWide) {
  return COLUMNS.filter(
    ({ key }) =>
      (key !== "open" || steps.some((step) => step.rootless)) &&
      (key !== "attempt" || steps.some((step) => step.attempt)) &&
      (key !== "wall" || isWide),
  ).map((column) => ({
    ...column,
    width: `minmax(${column.width}, 1fr)`,
  }));
}

/**
 * @param {string} key
 * @param {string} title
 * @param {string} width
 * @param {(step: StepSummary) => number} part
 * @param {(step: StepSummary) => number} all
 * @param {string} help
 * @returns {Column}
 */
function shareColumn(key, title, width, part, all, help) {
  /** @param {StepSummary} step */
  const value = (step) => share(part(step), all(step));
  return {
    key,
    title,
    help,
    width,
    isNumber: true,
    isDescendingFirst: true,
    value,
    cell: (step) =>
      shareCell(value(step), `${whole(part(step))} of ${whole(all(step))}: ${percentOf(part(step), all(step))}`),
  };
}

/** @param {number | null | undefined} value */
function decimalOrWhole(value) {
  return value == null ? "" : value.toFixed(1);
}
