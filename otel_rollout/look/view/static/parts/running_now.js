import { isExported, paths } from "../data/client.js";
import { pretty } from "../data/conversation.js";
import { duration, visible, whole } from "../data/formats.js";
import { html } from "./html.js";
import { usePolled } from "./use_polled.js";

/** @import { LiveAnswer, RunningTrajectory } from "../data/types.d.ts" */

const MILLISECONDS_BETWEEN = 2000;

/**
 * What a trajectory does now: its age, the op that it is in and for how long; nothing if it doesn't run.
 *
 * @param {{traceId: string}} props
 */
export function RunningNow({ traceId }) {
  return isExported() ? null : html`<${Now} traceId=${traceId} />`;
}

/** @param {{traceId: string}} props */
function Now({ traceId }) {
  const { data } = usePolled(paths.live(), MILLISECONDS_BETWEEN);
  const live = /** @type {LiveAnswer | undefined} */ (data);
  const found = live?.trajectories.find((each) => each.trace_id === traceId);
  if (!found) return null;
  return html`<p class="running-now ${found.is_late || !found.is_alive ? "warning" : ""}" role="status">
    <b>${found.is_alive ? `Runs for ${duration(found.seconds)}` : `Ran for ${duration(found.seconds)}`}</b>
    <span>${place(found)}</span>
    ${found.is_alive ? null : html`<span>no sign of its process for ${duration(found.silent_seconds)}</span>`}
    <span class="weak">${visible(found.worker)}</span>
  </p>
  ${found.op_input ? html`<pre class="running-input" tabindex="0" aria-label="input of the running op">${visible(pretty(found.op_input))}</pre>` : null}`;
}

/** @param {RunningTrajectory} trajectory */
function place({ op, op_seconds: seconds, op_p99: usual, ops }) {
  if (op === null) return "between ops";
  const known = usual === null ? "" : ` (99% of such ops took ${duration(usual)} or less)`;
  return `in ${visible(op)} for ${duration(seconds)}${known}${ops > 1 ? `, ${whole(ops)} ops open` : ""}`;
}
