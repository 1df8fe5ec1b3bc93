import { capitalized, counted, visible } from "../data/formats.js";
import { addressOf, inAddress, navigate, selectionOf } from "../data/router.js";
import { parseSort, sorted, sortText } from "../data/sorting.js";
import { seriesKey, seriesName, seriesOf } from "../data/step_figures.js";
import { Comparison } from "../parts/comparison.js";
import { Findings } from "../parts/findings.js";
import { html } from "../parts/html.js";
import { useSurroundings } from "../parts/place.js";
import { RunningLink } from "../parts/running_link.js";
import { Segments } from "../parts/segments.js";
import { EmptyState, ErrorState, LoadingState } from "../parts/states.js";
import { StepCharts } from "../parts/step_charts.js";
import { stepColumns } from "../parts/steps_table.js";
import { Table } from "../parts/table.js";
import { useMedia, WIDE } from "../parts/use_media.js";
import { useMemo } from "../vendor/preact_hooks.js";

/** @import { Route, StepSummary } from "../data/types.d.ts" */
/** @import { Series } from "../data/step_figures.js" */

/**
 * The run: charts over steps, and a row for each.
 *
 * @param {{route: Route}} props
 */
export function RunPage({ route }) {
  const { run, runError } = useSurroundings();
  const all = useMemo(() => seriesOf(run?.steps ?? []), [run]);
  if (!run) return runError ? html`<${ErrorState} error=${runError} />` : html`<${LoadingState} />`;
  const { progress } = run;
  if (!all.length) {
    if (progress)
      return html`<${LoadingState} ...${progress}>${progress.total ? `Reading the run: ${progress.done} of ${progress.total}` : "Reading the run …"}</${LoadingState}>`;
    return html`<${EmptyState} title="No trajectories yet">${capitalized(run.waiting ?? "this page fills as soon as one has ended.")} <a href="#/live">What runs now</a></${EmptyState}>`;
  }
  const wanted =
    route.experiment === undefined && route.run === undefined ? null : seriesKey(route.experiment, route.run);
  const chosen = all.find(({ key }) => key === wanted) ?? all[0];
  const against = all.find(({ key }) => key === route.query.against && key !== chosen.key);
  const nameOf = (/** @type {Series} */ series) => seriesName(series, run.run_folders);
  const part = route.validate || !chosen.training.length ? "validation" : "training";
  return html`<div class="run-page">
    <h1 class="hidden-label">${run.title}</h1>
    <${Problems} problems=${run.problems} />
    ${(run.attempts ?? []).map((note) => html`<p key=${note} class="weak" role="note">${capitalized(visible(note))}.</p>`)}
    ${progress?.total ? html`<p class="weak" role="status">Reading: ${progress.done} of ${progress.total} <progress aria-label="files read" value=${progress.done} max=${progress.total}></progress></p>` : null}
    <${Choices}
      route=${route}
      all=${all}
      chosen=${chosen}
      against=${against}
      part=${part}
      nameOf=${nameOf}
    />
    <${Findings}
      selection=${{ experiment: chosen.experiment, run: chosen.run }}
    />
    <${StepCharts}
      steps=${chosen[part]}
      against=${against?.[part]}
      names=${[nameOf(chosen), against ? nameOf(against) : ""]}
      onOpen=${openStep}
    />
    ${against ? html`<${Comparison} ...${{ chosen, against, part }} names=${[nameOf(chosen), nameOf(against)]} />` : null}
    <${Steps} steps=${chosen[part]} route=${route} part=${part} />
  </div>`;
}

/** @param {{problems: string[]}} props */
function Problems({ problems }) {
  if (!problems.length) return null;
  return html`<details class="finding finding-warning">
    <summary>
      <b>${counted(problems.length, "problem")}</b>
      <span class="weak">Something can't be read.</span>
    </summary>
    <ul class="plain-list">
      ${problems.map((problem) => html`<li key=${problem}>${problem}</li>`)}
    </ul>
  </details>`;
}

/**
 * The choice of training or validation, of the experiment, and of one to lay over it.
 *
 * @param {{route: Route, all: Series[], chosen: Series, against: Series | undefined, part: "training" | "validation",
 *   nameOf: (series: Series) => string}} props
 */
function Choices({ route, all, chosen, against, part, nameOf }) {
  /** @param {Partial<Route>} changes */
  const address = (changes) =>
    addressOf({
      ...route,
      experiment: chosen.experiment,
      run: chosen.run,
      ...changes,
      page: "run",
    });
  const others = all.filter(({ key }) => key !== chosen.key);
  return html`<div class="choices">
    <${Segments}
      label="part of the run"
      options=${[
        {
          text: `Training · ${chosen.training.length}`,
          address: address({ validate: false }),
          isChosen: part === "training",
        },
        ...(chosen.validation.length
          ? [
              {
                text: `Validation · ${chosen.validation.length}`,
                address: address({ validate: true }),
                isChosen: part === "validation",
              },
            ]
          : []),
      ]}
    />
    ${
      all.length > 1 &&
      html`<label
          >Experiment
          <select
            value=${chosen.key}
            onChange=${(/** @type {any} */ event) => {
              const next = all.find(({ key }) => key === event.target.value);
              if (next) navigate(address({ experiment: next.experiment, run: next.run }));
            }}
          >
            ${all.map((each) => html`<option key=${each.key} value=${each.key}>${nameOf(each)}</option>`)}
          </select></label
        >
        <label
          >Against
          <select
            value=${against?.key ?? ""}
            onChange=${(/** @type {any} */ event) => navigate(address({ query: { ...route.query, against: event.target.value } }))}
          >
            <option value="">none</option>
            ${others.map((each) => html`<option key=${each.key} value=${each.key}>${nameOf(each)}</option>`)}
          </select></label
        >`
    }
    <${RunningLink} />
  </div>`;
}

/**
 * @param {{steps: StepSummary[], route: Route, part: string}} props
 */
function Steps({ steps, route, part }) {
  const sort = parseSort(route.query.sort);
  const isWide = useMedia(WIDE);
  const columns = useMemo(() => stepColumns(steps, isWide), [steps, isWide]);
  const column = columns.find(({ key }) => key === sort?.key);
  const rows = useMemo(
    () => (column?.value && sort ? sorted(steps, column.value, sort.isDescending) : steps),
    [steps, sort?.key, sort?.isDescending],
  );
  return html`<${Table}
    label="steps of ${part}"
    columns=${columns}
    rows=${rows}
    keyOf=${(/** @type {StepSummary} */ step) => inAddress(step.step)}
    addressOf=${stepAddress}
    sort=${sort ?? { key: "step", isDescending: false }}
    onSort=${(/** @type {any} */ next) =>
      navigate(
        addressOf({
          ...route,
          query: { ...route.query, sort: sortText(next) },
        }),
        { replace: true },
      )}
    rowName="step"
  />`;
}

/** @param {StepSummary} step */
function stepAddress(step) {
  return addressOf({
    page: "step",
    step: inAddress(step.step),
    ...selectionOf(step),
    query: {},
  });
}

/** @param {StepSummary} step */
function openStep(step) {
  navigate(stepAddress(step));
}
