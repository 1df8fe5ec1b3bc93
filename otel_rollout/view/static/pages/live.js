import { paths } from "../data/client.js";
import { counted, duration, visible } from "../data/formats.js";
import { addressOf, inAddress } from "../data/router.js";
import { html } from "../parts/html.js";
import { EmptyState, ErrorState, LoadingState } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { useData } from "../parts/use_data.js";

/** @import { LiveAnswer, RunningTrajectory } from "../data/types.d.ts" */
/** @import { Column } from "../parts/table.js" */

const SECONDS_BETWEEN_LOOKS = 2;

/** The trajectories that run now, the oldest first. */
export function LivePage() {
  const { data, error } = useData(paths.live(), SECONDS_BETWEEN_LOOKS);
  if (!data) return error ? html`<${ErrorState} error=${error} />` : html`<${LoadingState} />`;
  const { trajectories, open, silent_workers: silent = [], why } = /** @type {LiveAnswer} */ (data);
  if (!trajectories.length) {
    return html`<${EmptyState} title="Nothing runs now">${why ? visible(why) : "Trajectories that run longer than a few seconds stand here."}</${EmptyState}>`;
  }
  const late = trajectories.filter(isLate).length;
  const text = `${counted(open ?? trajectories.length, "trajectory runs", "trajectories run")}; ${late} in an op for longer than 99% of its kind took`;
  return html`<div class="live-page">
    <div class="heading">
      <h1>Live</h1>
      <span class="weak" role="status">${text}</span>
    </div>
    ${silent.length ? html`<p class="weak">${`${counted(silent.length, "process", "processes")} of this folder don't say what runs: ${silent.map(visible).join(", ")}`}</p>` : null}
    <${Table}
      label="running trajectories"
      columns=${COLUMNS}
      rows=${trajectories}
      keyOf=${(/** @type {RunningTrajectory} */ each) => each.trace_id}
      addressOf=${address}
      rowName="trajectory"
    />
  </div>`;
}

/** @type {Column[]} */
const COLUMNS = [
  {
    key: "place",
    title: "Trajectory",
    width: "minmax(15rem, 1fr)",
    cell: (/** @type {RunningTrajectory} */ each) =>
      html`<a class="said" href=${address(each)}>${visible(placeOf(each))}</a>`,
  },
  {
    key: "age",
    title: "Runs for",
    width: "6rem",
    isNumber: true,
    cell: (/** @type {RunningTrajectory} */ each) => duration(each.seconds),
  },
  {
    key: "op",
    title: "Now in",
    width: "minmax(12rem, 1fr)",
    cell: (/** @type {RunningTrajectory} */ each) =>
      html`<span class="said">${visible(each.op ?? "between ops")}</span>`,
  },
  {
    key: "op-age",
    title: "for",
    width: "6rem",
    isNumber: true,
    cell: (/** @type {RunningTrajectory} */ each) =>
      html`<span class=${isLate(each) ? "status-error" : ""}>${`${duration(each.op_seconds)}${isLate(each) ? " late" : ""}`}</span>`,
  },
  {
    key: "p99",
    title: "p99 of the op",
    width: "7.5rem",
    isNumber: true,
    cell: (/** @type {RunningTrajectory} */ each) => duration(each.op_p99),
  },
  {
    key: "worker",
    title: "Process",
    width: "minmax(12rem, 1fr)",
    cell: (/** @type {RunningTrajectory} */ each) =>
      html`<span class="said">${visible(each.worker) + (each.is_alive ? "" : " (gone)")}</span>`,
  },
];

/** @param {RunningTrajectory} trajectory */
function isLate({ op_seconds, op_p99 }) {
  return op_seconds !== null && op_p99 !== null && op_seconds > op_p99;
}

/** @param {RunningTrajectory} trajectory */
function placeOf({ step, validate, sample_index, rollout_n, name }) {
  if (sample_index === null) return name;
  return `step ${inAddress(step)}${validate ? " validation" : ""} · sample ${sample_index} · rollout ${inAddress(rollout_n)}`;
}

/** @param {RunningTrajectory} trajectory */
function address({ trace_id }) {
  return addressOf({ page: "trajectory", traceId: trace_id, query: {} });
}
