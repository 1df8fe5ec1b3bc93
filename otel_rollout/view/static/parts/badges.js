import { decimal, visible } from "../data/formats.js";
import { rewardClass } from "../data/reward_scale.js";
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
 * A trajectory's status: an icon with its word.
 *
 * @param {{status: string | null, hasRoot?: boolean, detail?: string | null}} props `detail`: such as the error's class
 */
export function StatusBadge({ status, hasRoot = true, detail }) {
  const name = hasRoot ? (status ?? "completed") : "open";
  const { icon, text } = STATUSES[name] ?? { icon: "?", text: visible(name) };
  return html`<span
    class="status status-${name in STATUSES ? name : "other"}"
    title=${visible(detail) || text}
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
 * @param {number | null} [props.lowest]
 * @param {number | null} [props.highest]
 * @param {(index: number) => string} props.addressOf the address that a cell leads to
 */
export function RewardStrip({ rewards, statuses, lowest, highest, addressOf }) {
  return html`<span class="strip">
    ${rewards.map((reward, index) => {
      const status = statuses[index];
      const words = `rollout ${index + 1}: reward ${reward == null ? "none" : decimal(reward)}, ${status ?? "no end yet"}`;
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
