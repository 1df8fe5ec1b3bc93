/** @import { RunAnswer, Selection, StepSummary } from "./types.d.ts" */

/**
 * The run's steps, which an address needn't name in full.
 *
 * @type {readonly StepSummary[]}
 */
let steps = [];

/**
 * Remember the steps of the run.
 *
 * @param {RunAnswer | undefined} run
 */
export function rememberSteps(run) {
  if (run) steps = run.steps;
}

/**
 * Return a selection without what goes without saying: the only experiment, if it has one run.
 *
 * @param {Selection} selection
 * @returns {Selection}
 */
export function shortSelection(selection) {
  const { validate, experiment, run } = selection;
  const isOnlyRun = steps.length > 0 && steps.every((step) => step.run_id === run);
  const isOnlyExperiment = isOnlyRun && steps.every((step) => step.experiment_name === experiment);
  return {
    validate,
    experiment: isOnlyExperiment ? undefined : experiment,
    run: isOnlyRun ? undefined : run,
  };
}

/**
 * Return a selection with what an address left out, as the server fills it in: that of the newest such step.
 *
 * @param {string} step as in an address
 * @param {Selection} selection
 * @returns {Selection}
 */
export function fullSelection(step, { validate = false, experiment, run }) {
  const found = steps
    .filter((each) => String(each.step ?? "none") === step && each.validate === validate)
    .filter((each) => experiment == null || (each.experiment_name ?? "") === experiment)
    .filter((each) => run == null || each.run_id === run)
    .sort((one, other) => other.start_time - one.start_time)[0];
  return found ? { validate, experiment: found.experiment_name, run: found.run_id } : { validate, experiment, run };
}

/**
 * Return the lowest and the highest reward of a trajectory's step, so that a reward has one color on all pages.
 *
 * @param {{step: number | null, validate: boolean, experiment_name?: string | null, run_id?: string | null}} trajectory
 * @returns {{lowest: number | null, highest: number | null}} null: not known
 */
export function rewardRange({ step, validate, experiment_name: experiment = null, run_id: run }) {
  const found = steps.find(
    (each) =>
      each.step === step &&
      each.validate === validate &&
      each.experiment_name === experiment &&
      (each.run_id === null || each.run_id === run),
  );
  return { lowest: found?.reward_lowest ?? null, highest: found?.reward_highest ?? null };
}
