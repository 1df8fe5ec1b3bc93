import { conversationCounts } from "../data/branches.js";
import { compact, decimal, duration, signed, visible, whole } from "../data/formats.js";
import { RewardBadge, StatusBadge } from "./badges.js";
import { html } from "./html.js";
import { SmallLanes } from "./turn_lanes.js";

/** @import { Conversation, TrajectorySummary } from "../data/types.d.ts" */

/**
 * The head of a rollout's column: how it ended, what it was given for that, and what it took.
 *
 * @param {object} props
 * @param {TrajectorySummary} props.summary
 * @param {Conversation[]} props.conversations
 * @param {Map<number, string>} props.conversationNames
 * @param {string} props.name
 * @param {string} props.address of its trajectory
 * @param {number | null} props.lowest of the rewards that are shown
 * @param {number | null} props.highest
 * @param {{isChosen: boolean, onChange: () => void} | null} props.comparing
 */
export function RolloutHead({ summary, conversations, conversationNames, name, address, lowest, highest, comparing }) {
  const { reward, advantage, fate, status } = summary;
  return html`<div class="rollout-head">
    <div class="rollout-name">
      <a href=${address} title="Its trajectory">rollout ${visible(name)}</a>
      ${
        comparing
          ? html`<label class="compare" title="Compare with another rollout">
              <input
                type="checkbox"
                checked=${comparing.isChosen}
                onChange=${comparing.onChange}
              />
              compare
              <span class="hidden-label">rollout ${visible(name)}</span>
            </label>`
          : null
      }
    </div>
    <div class="rollout-outcome">
      <${RewardBadge} reward=${reward} lowest=${lowest} highest=${highest} />
      <${StatusBadge}
        status=${status}
        hasRoot=${summary.has_root}
        error=${summary.error_type}
        finishReason=${summary.finish_reason}
      />
      ${advantage === null ? null : html`<span title="advantage">A ${signed(advantage)}</span>`}
      ${fate === null ? null : html`<span class="fate" title=${summary.fate_reason || "what training did with it"}>${visible(fate)}</span>`}
    </div>
    <div class="rollout-amounts">
      <span title="input and output tokens"
        >${`${compact(summary.input_tokens) || "?"} → ${compact(summary.output_tokens) || "?"} tokens`}</span
      >
      <span title="duration"
        >${duration((summary.end_time - summary.start_time) / 1e9)}</span
      >
      ${summary.turns === null ? null : html`<span>${whole(summary.turns)} ${summary.turns === 1 ? "turn" : "turns"}</span>`}
      ${conversationCounts(summary).map((each) => html`<span key=${each}>${each}</span>`)}
      <${ToolErrors} summary=${summary} />
      ${summary.prefix_breaks ? html`<span class="warning" title="turns whose prompt doesn't extend the turn before">⚠ prefix</span>` : null}
    </div>
    <${RewardParts} parts=${summary.reward_parts} />
    ${conversations.length > 1 ? html`<${SmallLanes} conversations=${conversations} names=${conversationNames} />` : null}
  </div>`;
}

/** @param {{parts: Record<string, number>}} props */
export function RewardParts({ parts }) {
  const named = Object.entries(parts ?? {});
  if (!named.length) return null;
  return html`<div class="reward-parts" aria-label="parts of the reward">
    ${named.map(([name, value]) => html`<span key=${name}>${visible(name)} <b>${decimal(value)}</b></span>`)}
  </div>`;
}

/** @param {{summary: TrajectorySummary}} props */
function ToolErrors({ summary }) {
  const errors = Object.values(summary.tools ?? {}).reduce((sum, tool) => sum + tool.errors, 0);
  if (!errors) return null;
  return html`<span class="failure"
    >${whole(errors)} tool ${errors === 1 ? "error" : "errors"}</span
  >`;
}
