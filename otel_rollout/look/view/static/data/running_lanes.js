// The trajectories that run now, on a step's timeline.
import { RUNNING, SEGMENT } from "./lanes.js";
import { fullSelection } from "./selection.js";

/** @import { Route, RunningTrajectory, Selection, TimelineAnswer, TimelineLane } from "./types.d.ts" */

/** The numbers of a segment's kind by the kind of an op, as the server gives them. */
const KIND_NUMBERS = new Map([
  ["LLM", 0],
  ["TOOL", 1],
  ["EVALUATOR", 2],
]);
const OTHER = 3;
/** The microseconds of a second. */
const SECOND = 1e6;

/**
 * Return the trajectories of a step that run now; none for a run that was followed by another one.
 * @param {RunningTrajectory[]} trajectories
 * @param {Route} route
 * @returns {RunningTrajectory[]}
 */
export function runningOf(trajectories, { step = "none", ...selection }) {
  const asked = fullSelection(step, selection);
  /** @type {Selection} */
  const newest = fullSelection(step, { validate: asked.validate, experiment: asked.experiment });
  if (newest.run !== asked.run) return [];
  return trajectories.filter(
    (each) =>
      each.is_alive &&
      String(each.step ?? "none") === step &&
      each.validate === (asked.validate ?? false) &&
      (asked.experiment == null || (each.experiment_name ?? "") === asked.experiment),
  );
}

/**
 * Return a timeline whose lanes of running trajectories go on until now, with the op that each is in.
 * @param {TimelineAnswer} timeline
 * @param {RunningTrajectory[]} running
 * @returns {TimelineAnswer} the same one if nothing runs
 */
export function withRunning(timeline, running) {
  const lanes = new Map(timeline.lanes.map((lane) => [lane.trace_id, lane]));
  const open = running.filter((each) => !lanes.get(each.trace_id)?.has_root);
  if (!open.length) return timeline;
  const own = lanes.size ? Number(timeline.start_time) : Number.POSITIVE_INFINITY;
  const origin = open.reduce((least, each) => Math.min(least, each.start_time), own);
  if (origin < own) for (const [id, lane] of lanes) lanes.set(id, moved(lane, (own - origin) / 1000));
  const names = new Map(timeline.names.map((name, number) => [name, number]));
  for (const each of open) {
    const start = (each.start_time - origin) / 1000;
    const end = start + each.seconds * SECOND;
    const lane = lanes.get(each.trace_id) ?? laneOf(each, start);
    const segments = [...lane.segments];
    if (each.op !== null && each.op_seconds !== null) {
      const name = names.get(each.op) ?? names.size;
      names.set(each.op, name);
      const lasted = each.op_seconds * SECOND;
      segments.push(KIND_NUMBERS.get(each.op_kind) ?? OTHER, end - lasted, lasted, name, 0);
    }
    lanes.set(each.trace_id, { ...lane, status: RUNNING, end: Math.max(lane.end, end), segments });
  }
  return { ...timeline, start_time: String(origin), names: [...names.keys()], lanes: [...lanes.values()] };
}

/**
 * @param {RunningTrajectory} trajectory
 * @param {number} start
 * @returns {TimelineLane}
 */
function laneOf({ trace_id, sample_index, rollout_n }, start) {
  return { trace_id, sample_index, rollout_n, status: RUNNING, reward: null, start, end: start, segments: [] };
}

/**
 * Return a lane that begins later.
 * @param {TimelineLane} lane
 * @param {number} by  Microseconds.
 * @returns {TimelineLane}
 */
function moved(lane, by) {
  const segments = lane.segments.map((value, at) => (at % SEGMENT === 1 ? value + by : value));
  return { ...lane, start: lane.start + by, end: lane.end + by, segments };
}
