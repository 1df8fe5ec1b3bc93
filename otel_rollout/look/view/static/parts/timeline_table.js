import { decimal, duration, visible, whole } from "../data/formats.js";
import { activities, KINDS, RUNNING } from "../data/lanes.js";
import { html } from "./html.js";

/** @import { TimelineLane } from "../data/types.d.ts" */

/** Rows of the table. */
const SLOWEST = 50;

/**
 * The lanes that ended last as a table, with what each spent its time on.
 *
 * @param {{lanes: TimelineLane[], names: string[], addressOf: (lane: TimelineLane) => string, late: Set<string>}} props
 */
export function TimelineTable({ lanes, names, addressOf, late }) {
  const slowest = [...lanes].sort((one, other) => other.end - one.end).slice(0, SLOWEST);
  return html`<div
    class="plain-table-box"
    tabindex="0"
    role="region"
    aria-label="the trajectories that ended last"
  >
    <table class="plain-table">
      <caption>
        The ${whole(slowest.length)} trajectories that ended last
      </caption>
      <thead>
        <tr>
          ${["trajectory", "status", "reward", "ended at", "duration", "longest in"].map((name) => html`<th key=${name} scope="col">${name}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${slowest.map((lane) => {
          const [longest] = [
            ...activities(lane, names, {
              from: lane.start,
              to: lane.end,
            }).values(),
          ].sort((one, other) => other.time - one.time);
          return html`<tr key=${lane.trace_id}>
            <th scope="row">
              <a href=${addressOf(lane)}
                >${visible(`sample ${lane.sample_index ?? "none"}, rollout ${lane.rollout_n ?? "none"}`)}</a
              >
              ${late.has(lane.trace_id) && lane.status !== RUNNING ? html` <span class="warning">last 5%</span>` : null}
            </th>
            <td>${visible(lane.status ?? "no end yet")}</td>
            <td class="is-number">
              ${lane.reward === null ? "" : decimal(lane.reward)}
            </td>
            <td class="is-number">${lane.status === RUNNING ? "" : duration(lane.end / 1e6)}</td>
            <td class="is-number">
              ${duration((lane.end - lane.start) / 1e6)}
            </td>
            <td>
              ${longest ? `${activityName(longest)}, ${duration(longest.time / 1e6)}` : ""}
            </td>
          </tr>`;
        })}
      </tbody>
    </table>
  </div>`;
}

/**
 * Return words for an activity: `tool search`, `waiting`.
 *
 * @param {{kind: number, name: string}} activity
 */
export function activityName({ kind, name }) {
  return visible(KINDS[kind] === "waiting" || !name ? KINDS[kind] : `${KINDS[kind]} ${name}`);
}
