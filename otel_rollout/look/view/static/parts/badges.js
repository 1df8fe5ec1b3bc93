import { decimal, visible } from "../data/formats.js";
import { rewardClass } from "../data/reward_scale.js";
import { inAddress } from "../data/router.js";
import { html } from "./html.js";

/** @type {Record<string, {icon: string, text: string}>} */
const STATUSES = {
  completed: { icon: "✓", text: "completed" },
  error: { icon: "✕", text: "error" },
  truncated: { icon: "✂", text: "truncated" },
  cancelled: { icon: "⊘", text: "cancelled" },
  open: { icon: "…", text: "no end yet" },
};

/**
 * A trajectory's status: an icon with its word; its title begins with the status, too.
 *
 * @param {object} props
 * @param {string | null} props.status
 * @param {boolean} [props.hasRoot]
 * @param {string | null} [props.error] the class of the error that it ended with
 * @param {string | null} [props.finishReason] of its last generation: a cancelled trajectory may have `stop`
 */
export function StatusBadge({ status, hasRoot = true, error, finishReason }) {
  const name = hasRoot ? (status ?? "completed") : "open";
  const { icon, text } = STATUSES[name] ?? { icon: "?", text: visible(name) };
  const title = [
    error ? `${text}: ${visible(error)}` : text,
    ...(finishReason ? [`finish reason ${visible(finishReason)}`] : []),
  ].join(", ");
  return html`<span
    class="status status-${name in STATUSES ? name : "other"}"
    title=${title}
    ><span aria-hidden="true">${icon}</span> ${text}</span
  >`;
}

/**
 * A reward on the color of its place between a step's lowest and highest.
 *
 * @param {{reward: number | null, lowest?: number | null, highest?: number | null}} props
 */
export function RewardBadge({ reward, lowest, highest }) {
  const text = reward == null ? "none" : decimal(reward);
  return html`<span
    class="reward ${rewardClass(reward, lowest, highest)}"
    title=${`reward ${text}`}
    >${reward == null ? "–" : text}</span
  >`;
}

/**
 * The rewards of a group, a cell each; a cell leads to its trajectory.
 *
 * @param {object} props
 * @param {(number | null)[]} props.rewards
 * @param {(string | null)[]} props.statuses
 * @param {(number | string | null)[]} props.names the rollouts' numbers
 * @param {number | null} [props.lowest]
 * @param {number | null} [props.highest]
 * @param {(index: number) => string} props.addressOf the address that a cell leads to
 */
export function RewardStrip({ rewards, statuses, names, lowest, highest, addressOf }) {
  return html`<span class="strip">
    ${rewards.map((reward, index) => {
      const status = statuses[index];
      const words = `rollout ${visible(inAddress(names[index]))}: reward ${reward == null ? "none" : decimal(reward)}, ${status ?? "no end yet"}`;
      const mark = status === "completed" ? "" : (STATUSES[status ?? "open"]?.icon ?? "?");
      return html`<a
        key=${index}
        class="cell ${rewardClass(reward, lowest, highest)}"
        href=${addressOf(index)}
        title=${words}
        aria-label=${words}
        tabindex="-1"
        >${mark}</a
      >`;
    })}
  </span>`;
}
