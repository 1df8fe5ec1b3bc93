import {
  bytes,
  compact,
  decimal,
  duration,
  percent,
  percentOf,
  shortClass,
  tenth,
  visible,
  whole,
} from "../data/formats.js";
import { allToolCalls, groupsWithoutSignal, noSignalShare, toolErrorShare } from "../data/step_figures.js";
import { html } from "./html.js";

/** @import { Percentiles, StepSummary } from "../data/types.d.ts" */

/**
 * A figure of a step.
 *
 * @typedef {object} Tile
 * @property {string} title
 * @property {string} value
 * @property {Detail[]} [details]
 * @property {string} [help]
 * @property {string} [address] the place that it leads to
 */

/** @typedef {{text: string, address?: string}} Detail */

/**
 * The figures of a step; those that count trajectories lead to them.
 *
 * @param {object} props
 * @param {StepSummary} props.step
 * @param {(query: Record<string, string>) => string} props.addressOf the step's page with this filter
 * @param {string} props.timeline the address of the timeline
 */
export function StepTiles({ step, addressOf, timeline }) {
  const tiles = [...always(step, addressOf, timeline), ...ifThere(step, addressOf)].filter((tile) => tile !== null);
  return html`<div class="tiles">
    ${tiles.map(
      ({ title, value, details = [], help, address }) =>
        html`<div class="tile" key=${title} title=${help}>
          <span class="tile-title said">${title}</span>
          <span class="tile-value">${address ? html`<a href=${address}>${value}</a>` : value}</span>
          <span class="tile-details">
            ${details.map((detail, index) =>
              detail.address
                ? html`<a key=${index} href=${detail.address}>${detail.text}</a>`
                : html`<span key=${index} class="said">${detail.text}</span>`,
            )}
          </span>
        </div>`,
    )}
  </div>`;
}

/**
 * @param {StepSummary} step
 * @param {(query: Record<string, string>) => string} addressOf
 * @param {string} timeline
 * @returns {(Tile | null)[]}
 */
function always(step, addressOf, timeline) {
  const { zero_variance: zero, trajectories: all } = step;
  const calls = allToolCalls(step.tools);
  const truncated = { tab: "trajectories", status: "truncated" };
  return [
    {
      title: "Mean reward",
      value: decimal(step.reward_mean) || "–",
      details:
        step.reward_std == null
          ? []
          : [{ text: `± ${decimal(step.reward_std)}` }, { text: `${decimal(step.group_std) || "–"} in groups` }],
      help: "The mean of all rewards, their standard deviation, and the mean one within groups",
    },
    {
      title: "Groups without signal",
      value: percent(noSignalShare(step)) || "–",
      details: [
        ...some(zero.best, "all best", addressOf({ signal: "best" })),
        ...some(zero.worst, "all worst", addressOf({ signal: "worst" })),
        ...some(zero.other, "all equal", addressOf({ signal: "other" })),
      ],
      help: "Groups whose rewards are all equal teach nothing",
      address: groupsWithoutSignal(step) ? addressOf({ signal: "none" }) : undefined,
    },
    {
      title: "Truncated",
      value: percentOf(step.truncated, all),
      details: step.truncated
        ? [
            { text: `${whole(step.truncated)} of ${whole(all)}` },
            { text: "those with a reward", address: addressOf({ ...truncated, reward: "known" }) },
            ...some(step.truncated_with_worst_reward, "with the worst", addressOf({ ...truncated, reward: "worst" })),
          ]
        : [],
      help: "Trajectories that were cut off",
      address: step.truncated ? addressOf(truncated) : undefined,
    },
    {
      title: "Errors",
      value: percentOf(step.errors, all),
      details: step.errors ? [{ text: `${whole(step.errors)} of ${whole(all)}` }] : [],
      help: "Trajectories that ended in an error",
      address: step.errors ? addressOf({ tab: "trajectories", status: "error" }) : undefined,
    },
    calls.calls
      ? {
          title: "Tool errors",
          value: percent(toolErrorShare(step)),
          details: [{ text: `${whole(calls.errors)} of ${whole(calls.calls)} calls` }],
          address: calls.errors ? addressOf({ tab: "trajectories", tools: "errors" }) : undefined,
        }
      : null,
    spread("Turns", step.turns, tenth),
    spread("Output tokens", step.tokens, compact),
    spread("Duration", step.seconds, duration),
    step.last_5_percent_share == null
      ? null
      : {
          title: "Wait for the last 5%",
          value: percent(step.last_5_percent_share),
          details: [{ text: "who held it up", address: timeline }],
          help: "The share of the step's time after 95% of its trajectories had ended",
          address: timeline,
        },
  ];
}

/**
 * @param {StepSummary} step
 * @param {(query: Record<string, string>) => string} addressOf
 * @returns {(Tile | null)[]}
 */
function ifThere(step, addressOf) {
  const { trajectories: all } = step;
  const rewardParts = parts(step.reward_parts, decimal);
  const fates = Object.entries(step.fates);
  return [
    rewardParts.length
      ? {
          title: "Parts of the reward",
          value: whole(rewardParts.length),
          details: rewardParts,
          help: "The mean of each part",
        }
      : null,
    fates.length
      ? {
          title: "Fate",
          value: `${percentOf(fates[0][1], all)} ${visible(fates[0][0])}`,
          details: fates.map(([fate, count]) => ({
            text: `${visible(fate)} ${whole(count)}`,
            address: addressOf({ tab: "trajectories", fate }),
          })),
        }
      : null,
    step.staleness?.highest ? spread("Staleness", step.staleness, tenth) : null,
    Object.keys(step.error_types).length
      ? {
          title: "With a failed span",
          value: percentOf(total(step.error_types), all),
          details: parts(step.error_types, whole, shortClass),
          help: "Trajectories by the type of their first error, whatever they came to",
        }
      : null,
    count("Prefix breaks", step.prefix_breaks, "Trajectories whose prompt doesn't extend the turn before"),
    count("Duplicates", step.duplicates, "Rollouts that equal an earlier one of their group"),
    count(
      "No end yet",
      step.rootless,
      "They run, or their process ended before they did",
      addressOf({ tab: "trajectories", status: "open" }),
    ),
    count(
      "Cancelled",
      step.cancelled,
      "Trajectories that were cancelled",
      addressOf({ tab: "trajectories", status: "cancelled" }),
    ),
    count("Spans dropped", step.dropped_spans, "Tracing dropped them: the figures lack them"),
    step.truncated_bytes
      ? { title: "Payload cut", value: bytes(step.truncated_bytes), help: "Cut by tracing's limits" }
      : null,
    step.redacted ? { title: "Secrets replaced", value: whole(step.redacted), help: "Redaction replaced them" } : null,
  ];
}

/** @param {Record<string, number>} values */
function total(values) {
  return Object.values(values).reduce((sum, value) => sum + value, 0);
}

/**
 * @param {Record<string, number>} values
 * @param {(value: number) => string} format
 * @param {(name: string) => string} [short]
 * @returns {Detail[]} the largest first
 */
function parts(values, format, short = (name) => name) {
  return Object.entries(values)
    .sort(([, one], [, other]) => other - one)
    .map(([name, value]) => ({ text: `${visible(short(name)) || "no name"} ${format(value)}` }));
}

/**
 * @param {number | undefined} number
 * @param {string} words
 * @param {string} address
 * @returns {Detail[]}
 */
function some(number, words, address) {
  return number ? [{ text: `${whole(number)} ${words}`, address }] : [];
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
    details: [{ text: `p99 ${format(values.p99)}` }, { text: `max ${format(values.highest)}` }],
    help: `${title}: median, 99th percentile, highest`,
  };
}

/**
 * @param {string} title
 * @param {number} number
 * @param {string} help
 * @param {string} [address]
 * @returns {Tile | null}
 */
function count(title, number, help, address) {
  return number ? { title, value: whole(number), help, address } : null;
}
