import { useMemo, useState } from "../vendor/preact_hooks.js";
import { isExported, paths } from "../data/client.js";
import { duration, visible, whole } from "../data/formats.js";
import { KINDS, orderLanes, stragglersOf } from "../data/lanes.js";
import { addressOf, navigate } from "../data/router.js";
import { runningOf, withRunning } from "../data/running_lanes.js";
import { html } from "../parts/html.js";
import { EmptyState, ErrorState, LoadingState } from "../parts/states.js";
import { TimelineCanvas } from "../parts/timeline_canvas.js";
import { activityName, TimelineTable } from "../parts/timeline_table.js";
import { useData } from "../parts/use_data.js";
import { usePolled } from "../parts/use_polled.js";

/** @import { LaneOrder, Stragglers, View } from "../data/lanes.js" */
/** @import { LiveAnswer, Route, TimelineAnswer, TimelineLane } from "../data/types.d.ts" */

const MILLISECONDS_BETWEEN = 2000;

/** @type {Record<LaneOrder, string>} */
const ORDERS = {
  end: "latest end",
  start: "start",
  duration: "longest",
  reward: "highest reward",
};
/** @type {Set<string>} */
const NOBODY = new Set();
/** Pixels of a lane by the name of its size. */
const HEIGHTS = { small: 3, medium: 8, large: 18 };

/** @param {{route: Route}} props */
export function TimelinePage({ route }) {
  const { data, error } = useData(paths.timeline(route.step ?? "none", route));
  const timeline = /** @type {TimelineAnswer | undefined} */ (data);
  if (timeline) return html`<${isExported() ? Timeline : LiveTimeline} timeline=${timeline} route=${route} />`;
  return error
    ? html`<${ErrorState} error=${error} />`
    : html`<${LoadingState}>Reading the timeline …</${LoadingState}>`;
}

/** @param {{timeline: TimelineAnswer, route: Route}} props */
function LiveTimeline({ timeline, route }) {
  const { data } = usePolled(paths.live(), MILLISECONDS_BETWEEN);
  const live = /** @type {LiveAnswer | undefined} */ (data);
  const shown = useMemo(
    () => withRunning(timeline, runningOf(live?.trajectories ?? [], route)),
    [timeline, live, route],
  );
  return html`<${Timeline} timeline=${shown} route=${route} />`;
}

/** @param {{timeline: TimelineAnswer, route: Route}} props */
function Timeline({ timeline, route }) {
  if (timeline.lanes.length) return html`<${Lanes} timeline=${timeline} route=${route} />`;
  return html`<${EmptyState} title="No trajectories">Nothing of this step has been written yet.</${EmptyState}>`;
}

/** @param {{timeline: TimelineAnswer, route: Route}} props */
function Lanes({ timeline, route }) {
  const { lanes, names } = timeline;
  const order = orderOf(route.query.sort);
  const size = sizeOf(route.query.lanes, lanes.length);
  const places = useMemo(() => orderLanes(lanes, order), [lanes, order]);
  const bounds = useMemo(
    () => ({
      from: 0,
      to: lanes.reduce((most, lane) => Math.max(most, lane.end), 1),
    }),
    [lanes],
  );
  const late = useMemo(() => stragglersOf(lanes, names), [lanes, names]);
  const [chosenView, setView] = useState(/** @type {View | null} */ (null));
  const view = chosenView ?? bounds;
  const setQuery = (/** @type {Record<string, string>} */ query) =>
    navigate(addressOf({ ...route, query: { ...route.query, ...query } }), {
      replace: true,
    });
  const addressOfLane = (/** @type {TimelineLane} */ lane) => addressOf({ page: "trajectory", traceId: lane.trace_id });
  return html`<div class="timeline-page">
    <header class="timeline-header">
      <${Waited}
        late=${late}
        lanes=${lanes}
        step=${route.step ?? "none"}
        addressOf=${addressOfLane}
      />
      <div class="timeline-controls">
        <ul class="legend" aria-label="colours">
          ${KINDS.map((kind) => html`<li key=${kind}><span class="swatch kind-${kind}"></span>${kind}</li>`)}
          <li><span class="swatch failed-swatch"></span>failed</li>
          ${late ? html`<li><span class="swatch late-swatch"></span>${late.isRunning ? "running" : "last 5%"}</li>` : null}
        </ul>
        <label>
          Sort by
          <select
            value=${order}
            onChange=${(/** @type {any} */ event) => setQuery({ sort: event.target.value })}
          >
            ${Object.entries(ORDERS).map(([name, words]) => html`<option key=${name} value=${name}>${words}</option>`)}
          </select>
        </label>
        <label>
          Lanes
          <select
            value=${size}
            onChange=${(/** @type {any} */ event) => setQuery({ lanes: event.target.value })}
          >
            ${Object.keys(HEIGHTS).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
          </select>
        </label>
        <button
          type="button"
          disabled=${chosenView === null}
          onClick=${() => setView(null)}
        >
          Whole time <kbd>0</kbd>
        </button>
        ${
          late
            ? html`<button
                type="button"
                onClick=${() => setView({ from: Math.max(0, late.since - (late.until - late.since) * 0.1), to: bounds.to })}
              >
                The end
              </button>`
            : null
        }
        <span class="weak hint">ctrl + wheel zooms, shift + wheel moves</span>
      </div>
    </header>
    <${TimelineCanvas}
      ...${{ lanes, names, bounds, view }}
      order=${places}
      laneHeight=${HEIGHTS[size]}
      since=${late?.since ?? null}
      late=${late?.traceIds ?? NOBODY}
      onView=${(/** @type {View} */ next) => setView(next.from === bounds.from && next.to === bounds.to ? null : next)}
      onOpen=${(/** @type {TimelineLane} */ lane) => navigate(addressOfLane(lane))}
    />
    <details class="timeline-table">
      <summary>As a table</summary>
      <${TimelineTable}
        ...${{ lanes, names }}
        addressOf=${addressOfLane}
        late=${late?.traceIds ?? NOBODY}
      />
    </details>
  </div>`;
}

/** @param {{late: Stragglers | null, lanes: TimelineLane[], step: string, addressOf: (lane: TimelineLane) => string}} props */
function Waited({ late, lanes, step, addressOf: addressOfLane }) {
  if (!late)
    return html`<h1>
      ${lanes.length === 1 ? "One trajectory" : `${whole(lanes.length)} trajectories`}
    </h1>`;
  const [first] = late.did;
  const last = lanes.reduce((most, lane) => (lane.end > most.end ? lane : most));
  return html`<h1 class="waited">
    ${`Step ${visible(step)} ${late.isRunning ? "waits" : "waited"} `}<b>${duration((late.until - late.since) / 1e6)}</b>${` for ${whole(late.count)} of ${whole(late.total)}: mostly `}<b
      >${activityName(first)}</b
    >${" "}<a class="waited-link" href=${addressOfLane(last)}>the last one</a>
  </h1>`;
}

/**
 * @param {string | undefined} name
 * @returns {LaneOrder}
 */
function orderOf(name) {
  return name !== undefined && Object.hasOwn(ORDERS, name) ? /** @type {LaneOrder} */ (name) : "end";
}

/**
 * @param {string | undefined} name
 * @param {number} lanes
 * @returns {keyof typeof HEIGHTS}
 */
function sizeOf(name, lanes) {
  if (name !== undefined && Object.hasOwn(HEIGHTS, name)) return /** @type {keyof typeof HEIGHTS} */ (name);
  if (lanes > 400) return "small";
  return lanes > 40 ? "medium" : "large";
}
