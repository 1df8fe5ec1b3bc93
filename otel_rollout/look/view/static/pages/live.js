import { paths } from "../data/client.js";
import { capitalized, counted, duration, visible, whole } from "../data/formats.js";
import { addressOf } from "../data/router.js";
import { html } from "../parts/html.js";
import { EmptyState, ErrorState, LoadingState } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { usePolled } from "../parts/use_polled.js";
import { withCode } from "../parts/with_code.js";

/** @import { Column } from "../parts/table.js" */
/** @import { LiveAnswer, RunningTrajectory, StepWait } from "../data/types.d.ts" */

const MILLISECONDS_BETWEEN = 2000;
const BETWEEN_OPS = "between ops";

/** @type {Column[]} */
const COLUMNS = [
  column("seconds", "age", "5rem", (row) => duration(row.seconds)),
  column("step", "step", "5rem", (row) => `${row.step ?? "none"}${row.validate ? " val" : ""}`),
  column("sample_index", "sample", "minmax(5rem, 8rem)", (row) => visible(String(row.sample_index ?? "–"))),
  column("rollout_n", "rollout", "5rem", (row) => visible(String(row.rollout_n ?? "–"))),
  {
    ...column("op", "in", "minmax(8rem, 1fr)", (row) => visible(row.op ?? BETWEEN_OPS)),
    isNumber: false,
  },
  column("op_seconds", "for", "6rem", (row) =>
    row.is_late
      ? html`<strong class="bad" title="longer than 99% of such ops"
          >${duration(row.op_seconds)}</strong
        >`
      : duration(row.op_seconds),
  ),
  column("op_p99", "p99", "6rem", (row) => duration(row.op_p99)),
  column("ops", "open ops", "6rem", (row) => whole(row.ops)),
  {
    ...column("worker", "process", "minmax(8rem, 14rem)", (row) => visible(row.worker)),
    isNumber: false,
  },
  {
    ...column("is_alive", "alive", "12rem", (row) =>
      row.is_alive
        ? "yes"
        : html`<span class="bad"
            >no sign for ${duration(row.silent_seconds)}</span
          >`,
    ),
    isNumber: false,
  },
];

const EXPERIMENT = {
  ...column("experiment_name", "experiment", "minmax(8rem, 14rem)", (row) => visible(row.experiment_name ?? "–")),
  isNumber: false,
};
const COLUMNS_OF_SEVERAL = [COLUMNS[0], EXPERIMENT, ...COLUMNS.slice(1)];

/** The page of what runs now. */
export function LivePage() {
  const { data, error } = usePolled(paths.live(), MILLISECONDS_BETWEEN);
  const live = /** @type {LiveAnswer | undefined} */ (data);
  if (!live)
    return error
      ? html`<${ErrorState} error=${error} />`
      : html`<${LoadingState}>Looking what runs …</${LoadingState}>`;
  if (!live.trajectories.length)
    return html`<${EmptyState} title="Nothing to show">${withCode(capitalized(live.why))}</${EmptyState}>`;
  const hasSeveral = new Set(live.trajectories.map((row) => row.experiment_name)).size > 1;
  return html`<div class="live-page">
    <h1>${heading(live)}</h1>
    <ul class="waits">
      ${live.waits.map((wait) => html`<li key=${`${wait.step} ${wait.validate} ${wait.experiment_name}`}>${sentence(wait, hasSeveral)}</li>`)}
    </ul>
    <${Table}
      label="running trajectories, the longest first"
      columns=${hasSeveral ? COLUMNS_OF_SEVERAL : COLUMNS}
      rows=${live.trajectories}
      keyOf=${(/** @type {RunningTrajectory} */ row) => row.trace_id}
      addressOf=${(/** @type {RunningTrajectory} */ row) => addressOf({ page: "trajectory", traceId: row.trace_id })}
      rowName="trajectory"
    />
    ${live.open > live.trajectories.length ? html`<p class="weak">and ${whole(live.open - live.trajectories.length)} more</p>` : null}
  </div>`;
}

/** @param {LiveAnswer} live */
function heading({ open, trajectories }) {
  const left = trajectories.filter(({ is_alive: isAlive }) => !isAlive).length;
  if (open > left) {
    const running = counted(open - left, "running trajectory", "running trajectories");
    return left ? `${running}, ${whole(left)} left open` : running;
  }
  return `${counted(left, "trajectory", "trajectories")} left open: no process gives a sign of life`;
}

/**
 * @param {StepWait} wait
 * @param {boolean} hasExperiment
 */
function sentence(wait, hasExperiment) {
  const [[op, count]] = Object.entries(wait.ops);
  const { longest } = wait;
  const share = count === wait.running ? "all" : whole(count);
  const inOp = longest.op === null ? "" : `, ${duration(longest.op_seconds)} of it in ${visible(longest.op)}`;
  const usual = longest.op_p99 === null ? "" : ` (p99 ${duration(longest.op_p99)})`;
  const of = hasExperiment && wait.experiment_name !== null ? ` of ${visible(wait.experiment_name)}` : "";
  return `Step ${wait.step ?? "none"}${wait.validate ? " validation" : ""}${of} waits for ${whole(wait.running)} of ${whole(wait.running + wait.ended)}: ${share} ${op === BETWEEN_OPS ? op : `in ${visible(op)}`}; the longest runs for ${duration(longest.seconds)}${inOp}${usual}`;
}

/**
 * @param {string} key
 * @param {string} title
 * @param {string} width
 * @param {(row: RunningTrajectory) => unknown} cell
 * @returns {Column}
 */
function column(key, title, width, cell) {
  return { key, title, width, cell, isNumber: true };
}
