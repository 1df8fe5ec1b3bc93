/** @import { OpenAnswer, OpenCounts, StepSummary, ToolCounts } from "./types.d.ts" */

/**
 * Return a part of a whole; null if the whole is empty.
 *
 * @param {number} part
 * @param {number} all
 */
export function share(part, all) {
  return all ? part / all : null;
}

/**
 * Return the number of groups whose rewards are all equal.
 *
 * @param {StepSummary} step
 */
export function groupsWithoutSignal(step) {
  return Object.values(step.zero_variance).reduce((sum, count) => sum + count, 0);
}

/**
 * Return the share of groups without signal, of those that could have one.
 *
 * @param {StepSummary} step
 */
export function noSignalShare(step) {
  return share(groupsWithoutSignal(step), step.comparable_groups);
}

/**
 * Return the calls of all tools.
 *
 * @param {Record<string, ToolCounts>} tools
 * @returns {ToolCounts}
 */
export function allToolCalls(tools) {
  const counts = { calls: 0, errors: 0 };
  for (const { calls, errors } of Object.values(tools)) {
    counts.calls += calls;
    counts.errors += errors;
  }
  return counts;
}

/**
 * Return the seconds from the start of a step's first trajectory to the end of its last.
 *
 * @param {StepSummary} step
 */
export function wallSeconds(step) {
  return (step.end_time - step.start_time) / 1e9;
}

/**
 * Return the share of tool calls that failed.
 *
 * @param {StepSummary} step
 */
export function toolErrorShare(step) {
  const { calls, errors } = allToolCalls(step.tools);
  return share(errors, calls);
}

/**
 * Return how many trajectories are open: all, or those of a step.
 *
 * @param {OpenAnswer | undefined} answer
 * @param {StepSummary} [step]
 * @returns {OpenCounts}
 */
export function openCounts(answer, step) {
  if (!answer) return { open: 0, left: 0 };
  if (!step) return answer;
  return (
    answer.steps.find(
      (each) =>
        each.step === step.step && each.validate === step.validate && each.experiment_name === step.experiment_name,
    ) ?? { open: 0, left: 0 }
  );
}

/**
 * A part of a run whose steps are one line of a chart: an experiment, and its run if several have the same steps.
 *
 * @typedef {object} Series
 * @property {string} key as in an address
 * @property {string | null} experiment
 * @property {string | null} run
 * @property {StepSummary[]} training by step
 * @property {StepSummary[]} validation by step
 */

/**
 * Return the series of a run, the newest first.
 *
 * @param {StepSummary[]} steps
 * @returns {Series[]}
 */
export function seriesOf(steps) {
  /** @type {Map<string, Series>} */
  const found = new Map();
  for (const step of steps) {
    const key = seriesKey(step.experiment_name, step.run_id);
    let series = found.get(key);
    if (!series) {
      series = {
        key,
        experiment: step.experiment_name,
        run: step.run_id,
        training: [],
        validation: [],
      };
      found.set(key, series);
    }
    series[step.validate ? "validation" : "training"].push(step);
  }
  const all = [...found.values()];
  for (const series of all) {
    series.training.sort(byStep);
    series.validation.sort(byStep);
  }
  return all.sort((one, other) => newest(other) - newest(one));
}

/**
 * @param {string | null | undefined} experiment
 * @param {string | null | undefined} run
 */
export function seriesKey(experiment, run) {
  return run ? `${experiment ?? ""} ${run}` : (experiment ?? "");
}

/**
 * Return the name of a series for a person: of several runs of an experiment, with the folder, else with the run's id.
 *
 * @param {Series} series
 * @param {Record<string, string>} [folders] by run
 */
export function seriesName({ experiment, run }, folders = {}) {
  const own = run && shortPaths(Object.values(folders)).get(folders[run]);
  return (experiment || "no name") + (run ? ` · ${own || run.slice(0, 8)}` : "");
}

/**
 * Return paths without what all of them begin and end with.
 *
 * @param {string[]} paths
 * @returns {Map<string, string>} by path
 */
export function shortPaths(paths) {
  const split = paths.map((path) => path.split("/"));
  const [first = []] = split;
  const least = split.reduce((shortest, { length }) => Math.min(shortest, length), first.length);
  let before = 0;
  while (before < least - 1 && split.every((parts) => parts[before] === first[before])) before += 1;
  let after = 0;
  while (after < least - 1 - before && split.every((parts) => parts.at(-1 - after) === first.at(-1 - after)))
    after += 1;
  return new Map(paths.map((path, at) => [path, split[at].slice(before, split[at].length - after).join("/")]));
}

/**
 * @param {StepSummary} one
 * @param {StepSummary} other
 */
function byStep(one, other) {
  return (one.step ?? Infinity) - (other.step ?? Infinity);
}

/** @param {Series} series */
function newest({ training, validation }) {
  return [...training, ...validation].reduce((time, step) => Math.max(time, step.end_time), 0);
}
