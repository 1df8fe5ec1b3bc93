import { shortSelection } from "./selection.js";

/** @import { GroupSummary, PageName, Route, Selection } from "./types.d.ts" */

/**
 * Read an address: the part of it from `#`.
 *
 * @param {string} hash
 * @returns {Route}
 */
export function parseAddress(hash) {
  const [path, search = ""] = splitOnce(hash.replace(/^#/, ""), "?");
  const parts = path.split("/").filter(Boolean).map(decode);
  const query = Object.fromEntries(new URLSearchParams(search));
  const { validate, experiment, run, ...rest } = query;
  /** @type {Route} */
  const route = { page: "unknown", query: rest };
  if (validate === "1") route.validate = true;
  if (experiment !== undefined) route.experiment = experiment;
  if (run !== undefined) route.run = run;
  const [first, second, third, fourth, fifth, sixth] = parts;
  if (first === undefined) route.page = "run";
  else if (first === "search" || first === "live") route.page = first;
  else if (first === "sample" && second !== undefined) Object.assign(route, { page: "prompt", sample: second });
  else if (first === "trajectory" && second !== undefined)
    Object.assign(route, { page: "trajectory", traceId: second });
  else if (first === "step" && second !== undefined) {
    route.step = second;
    if (third === undefined) route.page = "step";
    else if (third === "timeline") route.page = "timeline";
    else if (third === "sample" && fourth !== undefined) {
      route.sample = fourth;
      if (fifth === undefined) route.page = "group";
      else if (fifth === "rollout" && sixth !== undefined) Object.assign(route, { page: "trajectory", rollout: sixth });
    }
  }
  return route;
}

/**
 * Return the address of a page; the opposite of `parseAddress`.
 *
 * @param {Partial<Route> & {page: PageName}} route
 */
export function addressOf(route) {
  const step = encodeURIComponent(route.step ?? "none");
  const sample = `#/step/${step}/sample/${encodeURIComponent(route.sample ?? "none")}`;
  const paths = {
    run: "#/",
    step: `#/step/${step}`,
    timeline: `#/step/${step}/timeline`,
    group: sample,
    trajectory:
      route.traceId === undefined
        ? `${sample}/rollout/${encodeURIComponent(route.rollout ?? "none")}`
        : `#/trajectory/${encodeURIComponent(route.traceId)}`,
    prompt: `#/sample/${encodeURIComponent(route.sample ?? "none")}`,
    search: "#/search",
    live: "#/live",
    unknown: "#/",
  };
  return paths[route.page] + queryOf({ ...selectionQuery(shortSelection(route)), ...route.query });
}

/**
 * Return the query parameters of a selection; what isn't chosen is left out.
 *
 * @param {Selection} selection
 * @returns {Record<string, string>}
 */
export function selectionQuery(selection) {
  /** @type {Record<string, string>} */
  const query = {};
  if (selection.validate) query.validate = "1";
  if (selection.experiment) query.experiment = selection.experiment;
  if (selection.run != null) query.run = selection.run;
  return query;
}

/**
 * Return `?a=b&c=d`, or nothing if there are no parameters; empty values are left out.
 *
 * @param {Record<string, string | number | null | undefined>} query
 */
export function queryOf(query) {
  const pairs = Object.entries(query).filter(([, value]) => value != null && value !== "");
  return pairs.length ? "?" + new URLSearchParams(pairs.map(([key, value]) => [key, String(value)])) : "";
}

/**
 * Return a number or null as it stands in an address.
 *
 * @param {number | string | null | undefined} value
 */
export function inAddress(value) {
  return value == null ? "none" : String(value);
}

/**
 * Return the selection that a summary of the server belongs to.
 *
 * @param {{validate: boolean, experiment_name: string | null, run_id: string | null}} summary
 * @returns {Selection}
 */
export function selectionOf(summary) {
  return {
    validate: summary.validate,
    experiment: summary.experiment_name,
    run: summary.run_id,
  };
}

/**
 * Return the route of a group of the server.
 *
 * @param {GroupSummary} group
 * @returns {Route}
 */
export function groupRoute(group) {
  return {
    page: "group",
    step: inAddress(group.step),
    sample: inAddress(group.sample_index),
    ...selectionOf(group),
    query: {},
  };
}

/**
 * Go to an address.
 *
 * @param {string} address from `#`
 * @param {{replace?: boolean}} [options] `replace`: Back leads to the page before this one
 */
export function navigate(address, { replace = false } = {}) {
  if (!replace) {
    location.hash = address;
    return;
  }
  history.replaceState(history.state, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/**
 * The address one level up: a trajectory's group, a group's step, a step's run.
 *
 * @param {Route} route
 * @returns {string | null}
 */
export function addressAbove(route) {
  const { step, sample, validate, experiment, run } = route;
  const selection = { validate, experiment, run, query: {} };
  if (route.page === "trajectory" && sample !== undefined)
    return addressOf({ page: "group", step, sample, ...selection });
  if (route.page === "group" || route.page === "timeline") return addressOf({ page: "step", step, ...selection });
  return route.page === "run" ? null : "#/";
}

/**
 * @param {string} text
 * @param {string} separator
 * @returns {[string] | [string, string]}
 */
function splitOnce(text, separator) {
  const at = text.indexOf(separator);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
