import { firstDifference } from "../data/alignment.js";
import { plainName } from "../data/branches.js";
import { paths } from "../data/client.js";
import { counted, decimal, duration, percent, visible, whole } from "../data/formats.js";
import {
  differencesFrom,
  groupsBySteps,
  meanReward,
  namesOf,
  nestedRollouts,
  ORDERS,
  orderRollouts,
} from "../data/group_columns.js";
import { addressOf, inAddress, navigate, selectionOf } from "../data/router.js";
import { seriesName, seriesOf } from "../data/step_figures.js";
import { GroupColumns } from "../parts/group_columns.js";
import { html } from "../parts/html.js";
import { useKeys } from "../parts/keys.js";
import { RewardBadge } from "../parts/badges.js";
import { RolloutHead } from "../parts/rollout_head.js";
import { EmptyState, ErrorState, LoadingState } from "../parts/states.js";
import { useSurroundings } from "../parts/place.js";
import { StepStrip } from "../parts/step_strip.js";
import { useData } from "../parts/use_data.js";
import { NARROW, useMedia } from "../parts/use_media.js";
import { useMemo, useState } from "../vendor/preact_hooks.js";

/** @import { Rollout } from "../data/group_columns.js" */
/** @import { GroupAnswer, Route } from "../data/types.d.ts" */

/** @param {{route: Route}} props */
export function GroupPage({ route }) {
  const { data, error } = useData(paths.group(route.step ?? "none", route.sample ?? "none", route));
  const group = /** @type {GroupAnswer | undefined} */ (data);
  const other = useOther(route);
  const go = (/** @type {number | string | null | undefined} */ sample) => {
    if (sample != null)
      navigate(
        addressOf({
          ...route,
          sample: inAddress(sample),
          query: without(route.query, "compare"),
        }),
      );
  };
  useKeys([
    { key: "j", does: "next prompt", run: () => go(group?.next) },
    { key: "k", does: "previous prompt", run: () => go(group?.previous) },
    ...(route.query.compare
      ? [
          {
            key: "Escape",
            does: "all rollouts",
            run: () => navigate(addressOf({ ...route, query: without(route.query, "compare") })),
          },
        ]
      : []),
  ]);
  if (group) return html`<${Group} group=${group} route=${route} other=${other} />`;
  return error
    ? html`<${ErrorState} error=${error} />`
    : html`<${LoadingState}>Reading the rollouts …</${LoadingState}>`;
}

/**
 * The same prompt of the run that the address is against.
 *
 * @typedef {{name: string, group: GroupAnswer | undefined, error: Error | null}} Other
 */

/**
 * @param {Route} route
 * @returns {Other | null} null if it is against none
 */
function useOther({ step = "none", sample = "none", validate, query }) {
  const { run } = useSurroundings();
  const against = useMemo(
    () =>
      query.against === undefined ? undefined : seriesOf(run?.steps ?? []).find(({ key }) => key === query.against),
    [run, query.against],
  );
  const selection = against && { validate, experiment: against.experiment, run: against.run };
  const { data, error } = useData(selection ? paths.group(query.against_step ?? step, sample, selection) : null);
  return against ? { name: seriesName(against, run?.run_folders), group: data, error } : null;
}

/** @param {{group: GroupAnswer, route: Route, other: Other | null}} props */
function Group({ group, route, other }) {
  const { summary } = group;
  const isNarrow = useMedia(NARROW);
  const [single, setSingle] = useState(0);
  const order = route.query.sort ?? "rollout";
  const ours = useMemo(() => nestedRollouts(group), [group]);
  const theirs = useMemo(() => nestedRollouts(other?.group), [other?.group]);
  const all = useMemo(() => [...ours, ...theirs], [ours, theirs]);
  const rollouts = useMemo(
    () => interleaved(orderRollouts(ours, order), orderRollouts(theirs, order)),
    [ours, theirs, order],
  );
  const names = useMemo(
    () =>
      new Map([
        ...namesOf(ours),
        ...[...namesOf(theirs)].map(([each, name]) => /** @type {[Rollout, string]} */ ([each, `${name} of A`])),
      ]),
    [ours, theirs],
  );
  const chosen = chosenOf(route.query.compare, rollouts, names);
  const isComparing = chosen.length === 2;
  const columns = useMemo(() => (isComparing ? chosen : rollouts), [rollouts, isComparing, route.query.compare]);
  const rewards = [
    ...groupsBySteps(summary, group.other_steps).flatMap((each) => each.rewards),
    ...theirs.map((each) => each.summary.reward),
  ].filter((reward) => reward !== null);
  const [lowest, highest] = rewards.length ? [Math.min(...rewards), Math.max(...rewards)] : [null, null];

  const setQuery = (/** @type {Record<string, string>} */ query, replace = false) =>
    navigate(addressOf({ ...route, query }), { replace });
  const addressOfRollout = (/** @type {Rollout} */ rollout) =>
    trajectoryAddress(route, names.get(rollout) ?? "", rollout);
  const choose = (/** @type {Rollout} */ rollout) => {
    const others = chosen.filter((each) => each !== rollout);
    const next = chosen.includes(rollout) ? others : [...others, rollout].slice(-2);
    const query = without(route.query, "compare");
    setQuery(next.length ? { ...query, compare: next.map((each) => names.get(each)).join(",") } : query);
  };
  const headOf = (/** @type {Rollout} */ rollout) =>
    html`<${RolloutHead}
      summary=${rollout.summary}
      conversations=${rollout.conversations}
      conversationNames=${rollout.conversationNames}
      name=${names.get(rollout)}
      address=${addressOfRollout(rollout)}
      ...${{ lowest, highest }}
      comparing=${isNarrow || all.length < 2 ? null : { isChosen: chosen.includes(rollout), onChange: () => choose(rollout) }}
    />`;
  const at = Math.min(single, columns.length - 1);
  const shown = isNarrow ? [at] : columns.map((_, position) => position);
  return html`<div class="group-page">
    <${GroupHeader} group=${group} route=${route} />
    <div class="group-tools">
      <${StepStrip} here=${summary} others=${group.other_steps} />
      <div class="group-controls">
        <label>
          Sort by
          <select
            value=${order}
            onChange=${(/** @type {any} */ event) => setQuery({ ...route.query, sort: event.target.value }, true)}
          >
            ${Object.entries(ORDERS).map(([name, { words }]) => html`<option key=${name} value=${name}>${words}</option>`)}
          </select>
        </label>
      </div>
    </div>
    ${other ? html`<${OtherRun} other=${other} group=${group} route=${route} />` : null}
    ${group.left_out ? html`<p class="new-prompt">${`${whole(group.left_out)} more rollouts are not shown here; the step lists all.`}</p>` : null}
    <${CompareBar}
      chosen=${chosen}
      names=${names}
      rollouts=${all}
      onEnd=${() => setQuery(without(route.query, "compare"))}
    />
    ${
      isNarrow && columns.length > 1
        ? html`<div class="switcher" role="group" aria-label="which rollout">
            ${columns.map(
              (rollout, position) =>
                html`<button
                  key=${rollout.summary.trace_id}
                  type="button"
                  aria-pressed=${position === at}
                  onClick=${() => setSingle(position)}
                >
                  ${`${visible(names.get(rollout))} `}
                  <${RewardBadge}
                    reward=${rollout.summary.reward}
                    ...${{ lowest, highest }}
                  />
                </button>`,
            )}
          </div>`
        : null
    }
    ${
      columns.length
        ? html`<div
            class="columns-scroll"
            tabindex="0"
            role="region"
            aria-label="rollouts"
          >
            <${GroupColumns}
              rollouts=${columns}
              ...${{ shown, names, headOf, isComparing }}
              addressOf=${addressOfRollout}
            />
          </div>`
        : html`<${EmptyState} title="No rollouts">Nothing of this prompt has been written yet.</${EmptyState}>`
    }
  </div>`;
}

/**
 * Return two lists as one, in turn.
 *
 * @param {Rollout[]} one
 * @param {Rollout[]} other
 */
function interleaved(one, other) {
  const longest = Math.max(one.length, other.length);
  return Array.from({ length: longest }, (_, at) => [...one.slice(at, at + 1), ...other.slice(at, at + 1)]).flat();
}

/** @param {{other: Other, group: GroupAnswer, route: Route}} props */
function OtherRun({ other, group, route }) {
  const theirs = other.group;
  const known = theirs ? meanReward(theirs.summary) : null;
  const query = without(without(route.query, "against"), "against_step");
  return html`<p class="compare-bar" role="status">
    <span
      >${
        theirs
          ? html`Next to each rollout is one of A, <b>${visible(other.name)}</b>${`${
              theirs.summary.step === group.summary.step ? "" : `, step ${inAddress(theirs.summary.step)}`
            }: ${counted(theirs.rollouts.length, "rollout")}${known === null ? "" : `, mean reward ${decimal(known)}`}`}`
          : other.error
            ? `${visible(other.name)} has no such prompt here.`
            : `Reading the rollouts of ${visible(other.name)} …`
      }</span
    >
    ${theirs ? html`<a href=${addressOf({ page: "group", step: inAddress(theirs.summary.step), sample: inAddress(theirs.summary.sample_index), ...selectionOf(theirs.summary), query: {} })}>only A</a>` : null}
    <a href=${addressOf({ ...route, query })}>without A</a>
  </p>`;
}

/** @param {{group: GroupAnswer, route: Route}} props */
function GroupHeader({ group, route }) {
  const { summary } = group;
  const mean = meanReward(summary);
  const signal =
    summary.zero_variance && { best: "all best", worst: "all worst", other: "all alike" }[summary.zero_variance];
  const neighbour = (
    /** @type {number | string | null} */ sample,
    /** @type {string} */ words,
    /** @type {string} */ key,
  ) =>
    sample === null
      ? html`<span class="button disabled" aria-disabled="true">${words}</span>`
      : html`<a
          class="button"
          href=${addressOf({ ...route, sample: inAddress(sample), query: without(route.query, "compare") })}
          >${words} <kbd>${key}</kbd></a
        >`;
  return html`<header class="group-header">
    <div class="group-title">
      <h1 title=${visible(summary.prompt)}>
        ${visible(summary.prompt) || `Sample ${inAddress(summary.sample_index)}`}
      </h1>
      <p class="facts">
        <span>${counted(summary.rewards.length, "rollout")}</span>
        ${mean === null ? null : html`<span>mean reward <b>${decimal(mean)}</b></span>`}
        ${summary.solved === null ? null : html`<span>${percent(summary.solved)} solved</span>`}
        ${signal ? html`<span class="warning" title="All rewards are equal: the group has no signal.">⚠ no signal: ${signal}</span>` : null}
        ${summary.duplicates ? html`<span class="warning">${counted(summary.duplicates, "duplicate")}</span>` : null}
        ${summary.tokens ? html`<span>${spread(summary.tokens, whole)} output tokens</span>` : null}
        ${summary.seconds ? html`<span>${spread(summary.seconds, duration)}</span>` : null}
        ${summary.tool_calls ? html`<span>${counted(summary.tool_calls, "tool call")}, ${whole(summary.tool_errors)} failed</span>` : null}
      </p>
    </div>
    <nav class="neighbours" aria-label="other prompts of this step">
      ${neighbour(group.previous, "← Previous", "k")}
      ${neighbour(group.next, "Next →", "j")}
    </nav>
  </header>`;
}

/** @param {{chosen: Rollout[], names: Map<Rollout, string>, rollouts: Rollout[], onEnd: () => void}} props */
function CompareBar({ chosen, names, rollouts, onEnd }) {
  if (!chosen.length) return null;
  const [first, second] = chosen.map((each) => visible(names.get(each)));
  if (chosen.length === 1) {
    const nameOf = (/** @type {Rollout} */ each) => visible(names.get(each));
    return html`<p class="compare-bar" role="status">
      <span>
        Rollout ${first}${" "}
        ${differencesFrom(chosen[0], rollouts).map(({ turn, rollouts: others }, at) => {
          const listed = others.map(nameOf).join(", ");
          return html`<span key=${turn}
            >${at ? "; " : ""}${
              turn === null
                ? `says the same as ${listed}`
                : html`${at ? "" : "first differs "}in <b>${turn ? `turn ${turn}` : "the prompt"}</b>${` from ${listed}`}`
            }</span
          >`;
        })}. Choose one of them to see the two alone.
      </span>
    </p>`;
  }
  const difference = firstDifference(chosen[0].said, chosen[1].said);
  const where = difference?.turn ? `turn ${difference.turn}` : "the prompt";
  const branch = difference?.branch && plainName(difference.branch);
  return html`<p class="compare-bar" role="status">
    <span
      >${`Rollouts ${first} and ${second} `}${
        difference === null
          ? "say the same."
          : html`first differ in <b>${where}</b>${`${branch ? `, in ${visible(branch)}` : ""}, message ${difference.message}.`}`
      }</span
    >
    <button type="button" onClick=${onEnd}>
      Show all ${whole(rollouts.length)} <kbd>Esc</kbd>
    </button>
  </p>`;
}

/**
 * @param {string | undefined} compare
 * @param {Rollout[]} rollouts
 * @param {Map<Rollout, string>} names
 */
function chosenOf(compare, rollouts, names) {
  const wanted = (compare ?? "").split(",").filter(Boolean);
  const found = wanted.map((name) => rollouts.find((each) => names.get(each) === name));
  return [...new Set(found)].filter((each) => each !== undefined).slice(0, 2);
}

/**
 * @param {Route} route
 * @param {string} name
 * @param {Rollout} rollout
 */
function trajectoryAddress(route, name, { summary }) {
  if (summary.rollout_n === null || name !== String(summary.rollout_n)) {
    return addressOf({ page: "trajectory", traceId: summary.trace_id });
  }
  const { step, sample, validate, experiment, run } = route;
  return addressOf({
    page: "trajectory",
    step,
    sample,
    rollout: name,
    validate,
    experiment,
    run,
  });
}

/**
 * @param {{lowest: number, highest: number}} spread
 * @param {(value: number) => string} format
 */
function spread({ lowest, highest }, format) {
  return lowest === highest ? format(lowest) : `${format(lowest)} – ${format(highest)}`;
}

/**
 * @param {Record<string, string>} query
 * @param {string} name
 * @returns {Record<string, string>}
 */
function without(query, name) {
  return Object.fromEntries(Object.entries(query).filter(([key]) => key !== name));
}
