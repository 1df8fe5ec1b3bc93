import { isExported, paths } from "../data/client.js";
import { bytes, counted, visible } from "../data/formats.js";
import { addressOf, inAddress, navigate } from "../data/router.js";
import { rewardRange } from "../data/selection.js";
import { excerptParts, NO_RESULTS, search } from "../data/search_results.js";
import { RewardBadge, StatusBadge } from "../parts/badges.js";
import { html } from "../parts/html.js";
import { useSurroundings } from "../parts/place.js";
import { EmptyState, ErrorState } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { useEffect, useRef, useState } from "../vendor/preact_hooks.js";

/** @import { Results } from "../data/search_results.js" */
/** @import { Route, RunAnswer, SearchHit } from "../data/types.d.ts" */
/** @import { Column } from "../parts/table.js" */

const PLACES = [
  ["text", "anything said or returned"],
  ["tool", "names of tools"],
  ["failed", "names of tools whose call failed"],
  ["error", "errors and tracebacks"],
];

/**
 * The search of a step or of the run; results come while it goes on.
 *
 * @param {{route: Route}} props
 */
export function SearchPage({ route }) {
  const { q = "", step, in: within = "text", case: isCased } = route.query;
  const { validate, experiment, run: runId } = route;
  const path = q.trim()
    ? paths.search({ q, step, in: within, case: isCased }, { validate, experiment, run: runId })
    : null;
  const results = useResults(path);
  if (isExported()) {
    return html`<${EmptyState} title="An export can't be searched">Open the trace folder with otel-rollout view.</${EmptyState}>`;
  }
  return html`<div class="search-page">
    <h1 class="hidden-label">Search</h1>
    <${SearchForm} key=${JSON.stringify(route.query)} route=${route} />
    <${Progress} results=${results} isAsked=${path !== null} />
    ${results.error ? html`<${ErrorState} error=${results.error} />` : null}
    ${
      results.hits.length
        ? html`<${Table}
          label="hits"
          columns=${COLUMNS}
          rows=${results.hits}
          keyOf=${(/** @type {SearchHit} */ hit) => hit.trace_id}
          addressOf=${hitAddress}
          rowName="hit"
          rowHeight=${54}
        />`
        : null
    }
    ${
      path !== null && results.isDone && !results.hits.length && !results.error
        ? html`<p class="nothing">Nothing is found. Capital letters ${isCased ? "matter" : "don't matter"}.</p>`
        : null
    }
  </div>`;
}

/**
 * Return the results of a search; a new one ends that before.
 *
 * @param {string | null} path
 * @returns {Results}
 */
function useResults(path) {
  const [state, setState] = useState({ path, results: NO_RESULTS });
  useEffect(() => {
    if (path === null || isExported()) return;
    const stop = new AbortController();
    setState({ path, results: NO_RESULTS });
    search(path, (results) => !stop.signal.aborted && setState({ path, results }), stop.signal);
    return () => stop.abort();
  }, [path]);
  return state.path === path ? state.results : NO_RESULTS;
}

/** @param {{route: Route}} props */
function SearchForm({ route }) {
  const { run } = useSurroundings();
  const { q = "", step = "", in: within = "text", case: isCased } = route.query;
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  // Keys go through the hits once there is something to search for.
  useEffect(() => {
    if (!q) input.current?.focus();
  }, []);
  const submit = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const fields = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    const query = /** @type {Record<string, string>} */ (Object.fromEntries(fields));
    if (query.in === "text") query.in = "";
    const { validate, experiment, run: runId } = query.step ? route : /** @type {Partial<Route>} */ ({});
    navigate(addressOf({ page: "search", validate, experiment, run: runId, query }));
    input.current?.blur();
  };
  return html`<form class="search-form" role="search" onSubmit=${submit}>
    <input
      ref=${input}
      type="search"
      name="q"
      aria-label="text to search for"
      placeholder="text, tool or error"
      defaultValue=${q}
      autocomplete="off"
      required
    />
    <select name="in" aria-label="where" defaultValue=${within}>
      ${PLACES.map(([name, text]) => html`<option key=${name} value=${name} selected=${name === within}>${text}</option>`)}
    </select>
    <select name="step" aria-label="step">
      <option value="" selected=${!step}>in the run</option>
      ${stepsOf(run, step).map(
        (each) => html`<option key=${each} value=${each} selected=${each === step}>in step ${each}</option>`,
      )}
    </select>
    <label><input type="checkbox" name="case" value="1" defaultChecked=${!!isCased} /> match case</label>
    <button>Search</button>
  </form>`;
}

/** @param {{results: Results, isAsked: boolean}} props */
function Progress({ results, isAsked }) {
  const { hits, isDone, isCut, searchedBytes, unreadable, error } = results;
  if (!isAsked || error) return html`<p class="search-progress"></p>`;
  const searched = searchedBytes === null ? "" : ` in ${bytes(searchedBytes)}`;
  const found = `${counted(hits.length, "trajectory", "trajectories")}${searched}`;
  return html`<p class="search-progress" role="status">
    ${isDone ? found : html`<progress aria-label="search"></progress> ${found} so far`}
    ${isCut ? html`<b> There are more: narrow the search.</b>` : null}
    ${unreadable ? html`<b> ${counted(unreadable, "trajectory", "trajectories")} can't be read.</b>` : null}
  </p>`;
}

/** @type {Column[]} */
const COLUMNS = [
  {
    key: "where",
    title: "Trajectory",
    width: "12rem",
    cell: (/** @type {SearchHit} */ hit) =>
      html`<a class="said" href=${hitAddress(hit)}>${visible(placeOf(hit))}</a>
        <div class="weak said">${visible(hit.where)}</div>`,
  },
  {
    key: "excerpt",
    title: "Found",
    width: "minmax(18rem, 1fr)",
    cell: (/** @type {SearchHit} */ hit) => {
      const [before, match, after] = excerptParts(hit);
      return html`<span class="excerpt said">${visible(before)}<mark>${visible(match)}</mark>${visible(after)}</span>`;
    },
  },
  {
    key: "status",
    title: "Status",
    width: "7.5rem",
    cell: (/** @type {SearchHit} */ hit) =>
      html`<${StatusBadge} status=${hit.status} hasRoot=${hit.status !== null} />`,
  },
  {
    key: "reward",
    title: "Reward",
    width: "5.5rem",
    isNumber: true,
    cell: (/** @type {SearchHit} */ hit) => html`<${RewardBadge}
        reward=${hit.reward}
        ...${rewardRange(hit)}
      />`,
  },
];

/** @param {SearchHit} hit */
function placeOf({ step, validate, sample_index, rollout_n }) {
  const numbers = [sample_index, rollout_n].map(inAddress).join(" · ");
  return `step ${inAddress(step)}${validate ? " validation" : ""} · ${numbers}`;
}

/** @param {SearchHit} hit */
function hitAddress(hit) {
  const query = hit.span_id ? { span: hit.span_id } : {};
  return addressOf({ page: "trajectory", traceId: hit.trace_id, query: /** @type {any} */ (query) });
}

/**
 * Return the steps that can be chosen, as in an address.
 *
 * @param {RunAnswer | undefined} run
 * @param {string} step the chosen one
 */
function stepsOf(run, step) {
  return [...new Set([...(step ? [step] : []), ...(run?.steps ?? []).map((each) => inAddress(each.step))])].sort(
    (one, other) => one.localeCompare(other, "en", { numeric: true }),
  );
}
