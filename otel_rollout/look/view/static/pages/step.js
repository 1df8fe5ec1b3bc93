import { paths } from "../data/client.js";
import { counted, duration, whole } from "../data/formats.js";
import { FILTER_FIELDS, groupTest, rolloutsOf, rolloutTest } from "../data/rollouts.js";
import { addressOf, groupRoute, inAddress, navigate, selectionOf } from "../data/router.js";
import { parseSort, sorted, sortText } from "../data/sorting.js";
import { seriesKey, wallSeconds } from "../data/step_figures.js";
import { FilterBar } from "../parts/filter_bar.js";
import { Findings } from "../parts/findings.js";
import { groupColumns } from "../parts/groups_table.js";
import { RewardHistogram } from "../parts/histogram.js";
import { html } from "../parts/html.js";
import { useKeys } from "../parts/keys.js";
import { useSurroundings } from "../parts/place.js";
import { rolloutColumns, trajectoryAddress } from "../parts/rollouts_table.js";
import { RunningLink } from "../parts/running_link.js";
import { RewardScatter } from "../parts/scatter.js";
import { Segments } from "../parts/segments.js";
import { ErrorState, LoadingState } from "../parts/states.js";
import { StepTiles } from "../parts/step_tiles.js";
import { Table } from "../parts/table.js";
import { ToolsTable } from "../parts/tools_table.js";
import { useData } from "../parts/use_data.js";
import { useMemo } from "../vendor/preact_hooks.js";

/** @import { Filter, Rollout } from "../data/rollouts.js" */
/** @import { GroupSummary, Route, RunAnswer, StepAnswer, StepSummary } from "../data/types.d.ts" */

/**
 * A step: its figures, and its groups or trajectories as rows.
 *
 * @param {{route: Route}} props
 */
export function StepPage({ route }) {
  const { run } = useSurroundings();
  const { data, error } = useData(paths.step(route.step ?? "none", route));
  const rollouts = useMemo(() => (data ? rolloutsOf(data) : []), [data]);
  if (!data)
    return error ? html`<${ErrorState} error=${error} />` : html`<${LoadingState}>Reading the step …</${LoadingState}>`;
  const step = /** @type {StepSummary} */ (data.summary);
  /** @param {Record<string, string>} query */
  const withFilter = (query) => addressOf({ ...route, page: "step", query });
  const timeline = addressOf({ ...route, page: "timeline", query: {} });
  const open = (/** @type {string} */ address) => navigate(address);
  return html`<div class="step-page">
    <${Heading} route=${route} step=${step} run=${run} timeline=${timeline} />
    <${Findings} step=${route.step} selection=${selectionOf(step)} />
    <${StepTiles} step=${step} addressOf=${withFilter} timeline=${timeline} />
    <div class="charts step-charts">
      <${RewardHistogram}
        rollouts=${rollouts}
        lowest=${step.reward_lowest}
        highest=${step.reward_highest}
        addressOf=${(/** @type {any} */ bar) => withFilter({ tab: "trajectories", from: String(bar.from), to: String(bar.to) })}
      />
      <${RewardScatter}
        rollouts=${rollouts}
        onOpen=${(/** @type {Rollout} */ each) => open(trajectoryAddress(step, each))}
      />
      <${ToolsTable}
        tools=${step.tools}
        step=${inAddress(step.step)}
        selection=${selectionOf(step)}
      />
    </div>
    <${Rows} route=${route} data=${data} rollouts=${rollouts} />
  </div>`;
}

/**
 * The step's name, and the ways to its neighbours.
 *
 * @param {{route: Route, step: StepSummary, run: RunAnswer | undefined, timeline: string}} props
 */
function Heading({ route, step, run, timeline }) {
  const { previous, next, other } = useMemo(() => neighbours(step, run?.steps ?? []), [step, run]);
  useKeys([
    ...(previous
      ? [
          {
            key: "[",
            does: "previous step",
            run: () => navigate(stepAddress(previous, route)),
          },
        ]
      : []),
    ...(next
      ? [
          {
            key: "]",
            does: "next step",
            run: () => navigate(stepAddress(next, route)),
          },
        ]
      : []),
  ]);
  return html`<div class="heading">
    <h1>
      ${step.step == null ? "No step" : `Step ${step.step}`}${step.validate ? " validation" : ""}
    </h1>
    <span class="weak"
      >${`${counted(step.groups, "group")} · ${counted(step.trajectories, "rollout")} · `}<span
        title="from the start of the first to the end of the last"
        >${duration(wallSeconds(step))} wall time</span
      ></span
    >
 <${RunningLink} step=${step} />
    <nav aria-label="neighbours" class="step-ways">
      ${previous && html`<a href=${stepAddress(previous, route)} title="Previous step ([)">‹ ${previous.step}</a>`}
      ${next && html`<a href=${stepAddress(next, route)} title="Next step (])">${next.step} ›</a>`}
      ${other && html`<a href=${stepAddress(other, { query: {} })}>${other.validate ? "its validation" : "its training"}</a>`}
      <a href=${timeline}>Timeline <kbd>t</kbd></a>
    </nav>
  </div>`;
}

/**
 * The groups or the trajectories, filtered and sorted as the address says.
 *
 * @param {{route: Route, data: StepAnswer, rollouts: Rollout[]}} props
 */
function Rows({ route, data, rollouts }) {
  const { summary: step, groups } = data;
  const { query } = route;
  const isOfGroups = query.tab !== "trajectories";
  /** @type {Filter} */
  const filter = Object.fromEntries(
    FILTER_FIELDS.filter((field) => query[field]).map((field) => [field, query[field]]),
  );
  if (!isOfGroups) delete filter.signal;
  const text = JSON.stringify(filter);
  const sort = parseSort(query.sort);
  const most = useMemo(() => groups.reduce((size, { trace_ids }) => Math.max(size, trace_ids.length), 1), [groups]);
  const columns = useMemo(
    () => (isOfGroups ? groupColumns(step, most) : rolloutColumns(step, rollouts)),
    [isOfGroups, step, most, rollouts],
  );
  const all = /** @type {(GroupSummary | Rollout)[]} */ (isOfGroups ? groups : rollouts);
  const rows = useMemo(() => {
    const test = /** @type {(row: any) => boolean} */ (
      isOfGroups ? groupTest(filter, step, rollouts) : rolloutTest(filter, step)
    );
    const found = all.filter(test);
    const value = columns.find(({ key }) => key === sort?.key)?.value;
    return value && sort ? sorted(found, value, sort.isDescending) : found;
  }, [all, columns, text, query.sort]);
  /** @param {Record<string, string | undefined>} changes */
  const change = (changes) => {
    const next = /** @type {Record<string, string>} */ ({
      ...query,
      ...changes,
    });
    navigate(addressOf({ ...route, query: next }), { replace: true });
  };
  const tab = (/** @type {string} */ name) => addressOf({ ...route, query: { ...filter, tab: name } });
  return html`<section aria-label=${isOfGroups ? "groups" : "trajectories"}>
    <div class="choices" id="rows">
      <${Segments}
        label="rows"
        options=${[
          {
            text: `Groups · ${whole(groups.length)}`,
            address: tab(""),
            isChosen: isOfGroups,
          },
          {
            text: `Trajectories · ${whole(rollouts.length)}`,
            address: tab("trajectories"),
            isChosen: !isOfGroups,
          },
        ]}
      />
      <${FilterBar}
        filter=${filter}
        onChange=${change}
        onClear=${() => change(Object.fromEntries(FILTER_FIELDS.map((field) => [field, undefined])))}
        isOfGroups=${isOfGroups}
        fates=${Object.keys(step.fates)}
        shown=${rows.length}
        all=${all.length}
      />
    </div>
    <${Table}
      key=${isOfGroups}
      label=${isOfGroups ? "groups" : "trajectories"}
      columns=${columns}
      rows=${rows}
      keyOf=${isOfGroups ? (/** @type {GroupSummary} */ each) => inAddress(each.sample_index) : (/** @type {Rollout} */ each) => each.trace_id}
      addressOf=${
        isOfGroups
          ? (/** @type {GroupSummary} */ each) => addressOf(groupRoute(each))
          : (/** @type {Rollout} */ each) => trajectoryAddress(step, each)
      }
      sort=${sort}
      onSort=${(/** @type {any} */ next) => change({ sort: sortText(next) })}
      rowName=${isOfGroups ? "group" : "trajectory"}
    />
    ${rows.length ? null : html`<p class="nothing">No ${isOfGroups ? "group" : "trajectory"} is like this.</p>`}
  </section>`;
}

/**
 * Return the steps before and after one in its series, and its validation or training.
 *
 * @param {StepSummary} step
 * @param {StepSummary[]} steps
 */
function neighbours(step, steps) {
  const key = seriesKey(step.experiment_name, step.run_id);
  const own = steps.filter((each) => seriesKey(each.experiment_name, each.run_id) === key && each.step != null);
  const like = sorted(
    own.filter((each) => each.validate === step.validate),
    (each) => each.step,
    false,
  );
  const at = like.findIndex((each) => each.step === step.step);
  return {
    previous: at > 0 ? like[at - 1] : undefined,
    next: at >= 0 ? like[at + 1] : undefined,
    other: own.find((each) => each.step === step.step && each.validate !== step.validate),
  };
}

/**
 * @param {StepSummary} step
 * @param {{query: Record<string, string>}} route what is kept: the tab, the filter, the order
 */
function stepAddress(step, { query }) {
  return addressOf({
    page: "step",
    step: inAddress(step.step),
    ...selectionOf(step),
    query,
  });
}
