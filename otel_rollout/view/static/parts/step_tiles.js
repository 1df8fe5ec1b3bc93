import { bytes, compact, counted, decimal, duration, percent, percentOf, visible, whole } from "../data/formats.js";
import { allToolCalls, groupsWithoutSignal, noSignalShare, toolErrorShare } from "../data/step_figures.js";
import { html } from "./html.js";

/** @import { Percentiles, StepSummary } from "../data/types.d.ts" */

/**
 * A figure of a step.
 *
 * @typedef {object} Tile
 * @property {string} title
 * @property {string} value
 * @property {unknown} [detail]
 * @property {string} [help]
 * @property {string} [address] what it leads to
 */

/**
 * The figures of a step; those that count trajectories lead to them.
 *
 * @param {object} props
 * @param {StepSummary} props.step
 * @param {(query: Record<string, string>) => string} props.addressOf the step's page with this filter
 * @param {string} props.timeline the address of the timeline
 */
export function StepTiles({ step, addressOf, timeline }) {
  return html`<div class="tiles">
    ${tilesOf(step, addressOf, timeline).map(
      ({ title, value, detail, help, address }) =>
        html`<div class="tile" key=${title} title=${help}>
          <span class="tile-title">${title}</span>
          <span class="tile-value"
            >${address ? html`<a href=${address}>${value}</a>` : value}</span
          >
          <span class="tile-detail">${detail}</span>
        </div>`,
    )}
  </div>`;
}

/**
 * @param {StepSummary} step
 * @param {(query: Record<string, string>) => string} addressOf
 * @param {string} timeline
 * @returns {Tile[]}
 */
function tilesOf(step, addressOf, timeline) {
  const { zero_variance: zero, trajectories: all } = step;
  const tools = allToolCalls(step.tools);
  const trajectories = (/** @type {Record<string, string>} */ query) => addressOf({ tab: "trajectories", ...query });
  /** @type {(Tile | null)[]} */
  const tiles = [
    {
      title: "Mean reward",
      value: decimal(step.reward_mean) || "–",
      detail:
        step.reward_std == null
          ? "no reward yet"
          : `± ${decimal(step.reward_std)} · ${decimal(step.group_std) || "–"} in groups`,
      help: "The mean of all rewards, their standard deviation, and the mean one within groups",
    },
    {
      title: "Without signal",
      value: percent(noSignalShare(step)) || "–",
      detail: html`${link(zero.best, "all best", addressOf({ signal: "best" }))}
      ${link(zero.worst, "all worst", addressOf({ signal: "worst" }))}
      ${link(zero.other, "equal", addressOf({ signal: "other" }))}`,
      help: "Groups whose rewards are all equal",
      address: groupsWithoutSignal(step) ? addressOf({ signal: "none" }) : undefined,
    },
    {
      title: "Truncated",
      value: percentOf(step.truncated, all),
      detail: step.truncated
        ? html`${link(step.truncated, "in all", trajectories({ status: "truncated" }))}
            <a href=${trajectories({ status: "truncated", reward: "known" })}
              >with a reward</a
            >`
        : "none",
      help: `${step.truncated_with_worst_reward} of them have the step's lowest reward`,
      address: step.truncated ? trajectories({ status: "truncated" }) : undefined,
    },
    {
      title: "Errors",
      value: percentOf(step.errors, all),
      detail: errorsText(step),
      address: step.errors ? trajectories({ status: "error" }) : undefined,
    },
    tools.calls
      ? {
          title: "Tool errors",
          value: percent(toolErrorShare(step)),
          detail: `${whole(tools.errors)} of ${counted(tools.calls, "call")}`,
          address: tools.errors ? trajectories({ tools: "errors" }) : undefined,
        }
      : null,
    spread("Turns", step.turns, (value) => (value == null ? "" : decimal(Math.round(value * 10) / 10))),
    spread("Output tokens", step.tokens, compact),
    spread("Duration", step.seconds, duration),
    step.last_5_percent_share == null
      ? null
      : {
          title: "Waiting for the last 5%",
          value: percent(step.last_5_percent_share),
          detail: html`<a href=${timeline}>who held it up</a>`,
          help: "The share of the step's time after 95% of its trajectories had ended",
          address: timeline,
        },
    ...Object.entries(step.reward_parts).map(([name, mean]) => ({
      title: `Reward: ${visible(name)}`,
      value: decimal(mean),
      detail: "mean of the part",
    })),
    ...Object.entries(step.fates).map(([fate, count]) => ({
      title: visible(fate),
      value: percentOf(count, all),
      detail: html`<a href=${trajectories({ fate })}>${whole(count)}</a>`,
    })),
    spreadIf("Staleness", step.staleness, decimal),
    count("Prefix breaks", step.prefix_breaks, "trajectories whose prompt doesn't extend the turn before"),
    count("Duplicates", step.duplicates, "rollouts that equal an earlier one of their group"),
    step.rootless
      ? {
          title: "Open",
          value: whole(step.rootless),
          detail: "no end yet",
          address: trajectories({ status: "open" }),
        }
      : null,
    step.cancelled
      ? {
          title: "Cancelled",
          value: whole(step.cancelled),
          address: trajectories({ status: "cancelled" }),
        }
      : null,
    count("Spans dropped", step.dropped_spans, "tracing dropped them: the figures lack them"),
    step.truncated_bytes
      ? {
          title: "Payload cut",
          value: bytes(step.truncated_bytes),
          detail: "by tracing's limits",
        }
      : null,
  ];
  return tiles.filter((tile) => tile !== null);
}

/** @param {StepSummary} step */
function errorsText(step) {
  const types = Object.entries(step.error_types).sort(([, one], [, other]) => other - one);
  if (!step.errors) return "none";
  return html`<span
    class="said"
    title=${types.map(([type, number]) => `${visible(type)} ${number}`).join(", ")}
    >${
      types
        .slice(0, 2)
        .map(([type, number]) => `${visible(type)} ${number}`)
        .join(", ") || whole(step.errors)
    }</span
  >`;
}

/**
 * @param {number | undefined} number
 * @param {string} words
 * @param {string} address
 */
function link(number, words, address) {
  return number ? html`<a href=${address}>${whole(number)} ${words}</a>` : null;
}

/**
 * @param {string} title
 * @param {Percentiles | null} values
 * @param {(value: number | null | undefined) => string} format
 * @returns {Tile}
 */
function spread(title, values, format) {
  if (!values) return { title, value: "–" };
  return {
    title,
    value: format(values.p50),
    detail: `p99 ${format(values.p99)} · max ${format(values.highest)}`,
    help: `${title}: median, 99th percentile, highest`,
  };
}

/**
 * @param {string} title
 * @param {Percentiles | null} values
 * @param {(value: number | null | undefined) => string} format
 */
function spreadIf(title, values, format) {
  return values && values.highest ? spread(title, values, format) : null;
}

/**
 * @param {string} title
 * @param {number} number
 * @param {string} help
 * @returns {Tile | null}
 */
function count(title, number, help) {
  return number ? { title, value: whole(number), detail: help, help } : null;
}
