import { paths } from "../data/client.js";
import { counted, decimal, duration, percent, visible, whole } from "../data/formats.js";
import { meanReward } from "../data/group_columns.js";
import { addressOf, groupRoute, inAddress } from "../data/router.js";
import { RewardBadge } from "../parts/badges.js";
import { html } from "../parts/html.js";
import { ErrorState, LoadingState } from "../parts/states.js";
import { numberColumn, Table } from "../parts/table.js";
import { useData } from "../parts/use_data.js";
import { useMemo } from "../vendor/preact_hooks.js";

/** @import { GroupSummary, PromptAnswer, PromptStep, Route } from "../data/types.d.ts" */
/** @import { Column } from "../parts/table.js" */

/** Rewards of a row; a group may have thousands. */
const MOST_REWARDS = 16;

/** @type {typeof numberColumn<PromptStep>} */
const number = numberColumn;

/**
 * A prompt over the steps of its run: when it was first solved, and if it was forgotten.
 *
 * @param {{route: Route}} props
 */
export function PromptPage({ route }) {
  const { data, error } = useData(paths.prompt(route.sample ?? "none", route));
  const prompt = /** @type {PromptAnswer | undefined} */ (data);
  const columns = useMemo(() => (prompt ? columnsOf(prompt) : []), [prompt]);
  if (!prompt)
    return error
      ? html`<${ErrorState} error=${error} />`
      : html`<${LoadingState}>Reading the prompt …</${LoadingState}>`;
  const rollouts = prompt.steps.reduce((sum, { group }) => sum + group.rewards.length, 0);
  return html`<div class="prompt-page">
    <header class="group-title">
      <h1 title=${visible(prompt.prompt)}>${visible(prompt.prompt) || `Sample ${visible(inAddress(prompt.sample_index))}`}</h1>
      <p class="facts">
        <span>${counted(rollouts, "rollout")} in ${counted(prompt.steps.length, "step")}</span>
        <span>${prompt.first_solved === null ? "never solved" : `first solved in step ${prompt.first_solved}`}</span>
        ${prompt.forgotten === null ? null : html`<span class="warning">forgotten: not solved from step ${prompt.forgotten} on</span>`}
        <span class="weak">${`solved: a reward above ${decimal(prompt.solved_above)}`}</span>
      </p>
    </header>
    <${Table}
      label="steps of this prompt"
      columns=${columns}
      rows=${prompt.steps}
      keyOf=${(/** @type {PromptStep} */ { group }) => inAddress(group.step)}
      addressOf=${(/** @type {PromptStep} */ { group }) => addressOf(groupRoute(group))}
      rowName="step"
    />
  </div>`;
}

/**
 * @param {PromptAnswer} prompt
 * @returns {Column[]}
 */
function columnsOf({ lowest, highest }) {
  return [
    {
      key: "step",
      title: "Step",
      width: "4rem",
      cell: (/** @type {PromptStep} */ { group }) =>
        html`<a href=${addressOf(groupRoute(group))}>${group.step ?? "none"}</a>`,
    },
    number(
      "solved",
      "Solved",
      "5rem",
      ({ solved }) => solved,
      percent,
      "Rollouts in the upper half of the run's rewards",
    ),
    number("reward", "Reward", "5rem", ({ group }) => meanReward(group), decimal, "Mean reward"),
    {
      key: "rewards",
      title: "Rollouts",
      width: "minmax(14rem, 3fr)",
      cell: (/** @type {PromptStep} */ { group }) => rewards(group, lowest, highest),
    },
    number("tokens", "Tokens", "6rem", ({ group }) => group.tokens?.mean, whole, "Mean output tokens"),
    number(
      "turns",
      "Turns",
      "5rem",
      ({ group }) => group.turns?.mean,
      (value) => (value == null ? "" : value.toFixed(1)),
    ),
    number("seconds", "Time", "6rem", ({ group }) => group.seconds?.mean, duration, "Mean duration"),
    number("errors", "Tool errors", "6rem", ({ group }) => group.tool_errors, whole),
  ];
}

/**
 * The rewards of a step's rollouts; each leads to its trajectory.
 *
 * @param {GroupSummary} group
 * @param {number | null} lowest
 * @param {number | null} highest
 */
function rewards(group, lowest, highest) {
  const more = group.trace_ids.length - MOST_REWARDS;
  return html`<span class="rewards">
    ${group.trace_ids.slice(0, MOST_REWARDS).map(
      (traceId, at) =>
        html`<a
          key=${traceId}
          href=${addressOf({ page: "trajectory", traceId })}
          aria-label=${`rollout ${visible(inAddress(group.rollout_ns[at]))}, reward ${decimal(group.rewards[at]) || "unknown"}`}
          ><${RewardBadge} reward=${group.rewards[at]} ...${{ lowest, highest }}
        /></a>`,
    )}
    ${more > 0 ? html`<span class="weak">and ${whole(more)} more</span>` : null}
  </span>`;
}
