import { visible } from "../data/formats.js";
import { addressOf, selectionOf } from "../data/router.js";

/** @import { Route, StepSummary } from "../data/types.d.ts" */

/**
 * Return the way from the run to a page.
 *
 * @param {Route} route
 * @param {string} [title] the run's
 * @param {StepSummary[]} [steps] its steps: the experiment and the run of the page are those of the newest such step
 * @returns {{text: string, address: string}[]}
 */
export function breadcrumbs(route, title = "Run", steps = []) {
  const { step, sample, rollout, validate, experiment, run } = route;
  const selection = { validate, experiment, run };
  const way = [{ text: visible(title), address: "#/" }, ...ofRun(route, steps)];
  if (route.page === "search") way.push({ text: "Search", address: addressOf({ page: "search" }) });
  if (route.page === "live") way.push({ text: "Live", address: addressOf({ page: "live" }) });
  if (route.page === "prompt" && sample !== undefined)
    way.push({
      text: visible(`Sample ${sample}, all steps`),
      address: addressOf({ page: "prompt", sample, ...selection }),
    });
  if (step === undefined || route.page === "search") return withTrace(way, route);
  const text = visible(step === "none" ? "No step" : `Step ${step}`) + (validate ? " validation" : "");
  way.push({ text, address: addressOf({ page: "step", step, ...selection }) });
  if (route.page === "timeline")
    way.push({
      text: "Timeline",
      address: addressOf({ page: "timeline", step, ...selection }),
    });
  if (sample !== undefined) {
    way.push({
      text: visible(`Sample ${sample}`),
      address: addressOf({ page: "group", step, sample, ...selection }),
    });
    if (rollout !== undefined) {
      way.push({
        text: visible(`Rollout ${rollout}`),
        address: addressOf({
          page: "trajectory",
          step,
          sample,
          rollout,
          ...selection,
        }),
      });
    }
  }
  return withTrace(way, route);
}

/**
 * Return the crumb with the experiment and the run of a page; none if they have no names.
 *
 * @param {Route} route
 * @param {StepSummary[]} steps
 */
function ofRun({ page, step, validate = false, experiment, run }, steps) {
  if (page === "live" || page === "unknown" || (step === undefined && experiment == null)) return [];
  const found = steps
    .filter((each) => step === undefined || (String(each.step ?? "none") === step && each.validate === validate))
    .filter((each) => experiment == null || (each.experiment_name ?? "") === experiment)
    .filter((each) => run == null || each.run_id === run)
    .reduce(
      (newest, each) => (newest && newest.end_time >= each.end_time ? newest : each),
      /** @type {StepSummary | null} */ (null),
    );
  if (!found) return [];
  const id = found.run_id ?? found.sole_run_id;
  const text = [found.experiment_name, id && `run ${id.slice(0, 8)}`].filter(Boolean).join(" · ");
  if (!text) return [];
  return [{ text: visible(text), address: addressOf({ page: "run", ...selectionOf(found), validate: false }) }];
}

/**
 * Return the document's title: the place first, since tabs show the beginning.
 *
 * @param {Route} route
 * @param {string} [title] the run's
 * @param {StepSummary[]} [steps]
 */
export function titleOf(route, title, steps) {
  const texts = breadcrumbs(route, title ?? "", steps).map(({ text }) => text);
  return [...texts.slice(1).reverse(), texts[0], "otel-rollout"].filter(Boolean).join(" · ");
}

/**
 * @param {{text: string, address: string}[]} way
 * @param {Route} route
 */
function withTrace(way, { traceId, rollout }) {
  if (traceId === undefined || rollout !== undefined) return way;
  return [
    ...way,
    {
      text: visible(`Trajectory ${traceId.slice(0, 8)}`),
      address: addressOf({ page: "trajectory", traceId }),
    },
  ];
}
