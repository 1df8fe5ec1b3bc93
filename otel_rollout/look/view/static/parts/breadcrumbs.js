import { visible } from "../data/formats.js";
import { addressOf } from "../data/router.js";

/** @import { Route } from "../data/types.d.ts" */

/**
 * Return the way from the run to a page.
 *
 * @param {Route} route
 * @param {string} [title] the run's
 * @returns {{text: string, address: string}[]}
 */
export function breadcrumbs(route, title = "Run") {
  const { step, sample, rollout, validate, experiment, run } = route;
  const selection = { validate, experiment, run };
  const way = [{ text: visible(title), address: "#/" }];
  if (route.page === "search") way.push({ text: "Search", address: addressOf({ page: "search" }) });
  if (route.page === "live") way.push({ text: "Live", address: addressOf({ page: "live" }) });
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
 * Return the document's title: the place first, since tabs show the beginning.
 *
 * @param {Route} route
 * @param {string} [title] the run's
 */
export function titleOf(route, title) {
  const texts = breadcrumbs(route, title ?? "").map(({ text }) => text);
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
