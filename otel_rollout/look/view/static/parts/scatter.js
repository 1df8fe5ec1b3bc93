import { compact, decimal, tick, visible } from "../data/formats.js";
import { rewardPlaces } from "../data/reward_places.js";
import { inAddress } from "../data/router.js";
import { statusOf } from "../data/rollouts.js";
import { sorted } from "../data/sorting.js";
import UPlot from "../vendor/uplot.js";
import { useEffect, useMemo, useRef, useState } from "../vendor/preact_hooks.js";
import { html } from "./html.js";
import { themeColor, useThemeVersion } from "./theme.js";

/** @import { Rollout } from "../data/rollouts.js" */

/** Pixels from the pointer to a point that it means. */
const REACH = 12;
const HEIGHT = 190;
const KINDS = [
  { label: "completed", color: "series-1" },
  { label: "truncated", color: "series-2" },
  { label: "error, cancelled, open", color: "series-3" },
];

/**
 * Reward over output tokens, a point for each trajectory; a click on one leads to it.
 *
 * @param {object} props
 * @param {Rollout[]} props.rollouts
 * @param {(rollout: Rollout) => void} props.onOpen
 */
export function RewardScatter({ rollouts, onOpen }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const [near, setNear] = useState(/** @type {Rollout | null} */ (null));
  const theme = useThemeVersion();
  const points = useMemo(
    () =>
      sorted(
        rollouts.filter(({ reward, output_tokens }) => reward != null && output_tokens != null),
        ({ output_tokens }) => output_tokens,
        false,
      ),
    [rollouts],
  );
  const { places, areSpread, range, names } = useMemo(() => rewardPlaces(points), [points]);
  const data = useMemo(() => drawn(points, places), [points, places]);
  const latest = useRef({ points, data, onOpen, range, names });
  latest.current = { points, data, onOpen, range, names };
  const isEmpty = !points.length;

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const made = new UPlot(
      options(element.clientWidth || 300, latest),
      /** @type {any} */ (latest.current.data),
      element,
    );
    plot.current = made;
    const find = (/** @type {MouseEvent} */ event) => {
      const box = made.over.getBoundingClientRect();
      const index = nearest(made, latest.current.data, event.clientX - box.left, event.clientY - box.top);
      const found = index === null ? null : latest.current.points[index];
      made.over.style.cursor = found ? "pointer" : "";
      setNear(found);
      return found;
    };
    made.over.addEventListener("mousemove", find);
    made.over.addEventListener("mouseleave", () => setNear(null));
    made.over.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      const found = find(event);
      if (found) latest.current.onOpen(found);
    });
    const resize = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme, isEmpty, names === null]);
  useEffect(() => plot.current?.setData(data), [data]);
  if (isEmpty) return null;
  return html`<figure class="chart">
    <figcaption>
      <span class="chart-title"
        >Reward over output
        tokens${areSpread ? html` <span class="chart-note">equal rewards are spread</span>` : null}</span
      >
      <span class="chart-values is-stacked">
        <span class="scatter-kinds ${near ? "is-hidden" : ""}"
          >${KINDS.map(
            ({ label, color }) =>
              html`<span key=${label}
                ><i class="dot dot-${color}" aria-hidden="true"></i
                >${label}</span
              >`,
          )}</span
        >
        ${
          near &&
          html`<span class="scatter-point"
            >sample ${visible(inAddress(near.sample_index))} rollout
            ${visible(inAddress(near.rollout_n))}: reward
            <b>${decimal(near.reward)}</b>, ${compact(near.output_tokens)}
            tokens, ${visible(statusOf(near))}</span
          >`
        }
      </span>
    </figcaption>
    <div
      ref=${place}
      role="img"
      aria-label="Reward over output tokens of ${points.length} trajectories. The table of trajectories has the numbers."
    ></div>
  </figure>`;
}

/**
 * @param {number} width
 * @param {{current: {range: [number, number], names: number[] | null}}} latest
 */
function options(width, latest) {
  const text = themeColor("text-weak");
  const grid = { stroke: themeColor("line"), width: 1 };
  const axis = {
    stroke: text,
    grid,
    ticks: grid,
    font: "11px system-ui, sans-serif",
  };
  return {
    width,
    height: HEIGHT,
    padding: /** @type {any} */ ([8, 14, 0, 0]),
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false, range: wider }, y: { range: () => latest.current.range } },
    axes: [
      {
        ...axis,
        size: 26,
        values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map((value) => compact(value)),
      },
      {
        ...axis,
        size: 40,
        splits: latest.current.names ? () => latest.current.names ?? [] : undefined,
        values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map(tick),
      },
    ],
    series: [
      {},
      ...KINDS.map(({ color }) => ({
        paths: () => null,
        points: {
          show: true,
          size: 5,
          width: 0,
          fill: themeColor(color) + "99",
          stroke: "transparent",
        },
      })),
    ],
  };
}

/**
 * Return what uPlot draws: tokens, and the places of rewards by kind.
 *
 * @param {Rollout[]} points by tokens
 * @param {number[]} places
 */
function drawn(points, places) {
  const kinds = points.map((point) => ["completed", "truncated"].indexOf(statusOf(point)));
  return [
    points.map(({ output_tokens }) => /** @type {number} */ (output_tokens)),
    ...[0, 1, -1].map((kind) => places.map((place, index) => (kinds[index] === kind ? place : null))),
  ];
}

/**
 * Return the position of the point that the pointer means.
 *
 * @param {any} plot
 * @param {(number | null)[][]} data
 * @param {number} left
 * @param {number} top
 */
function nearest(plot, data, left, top) {
  const [tokens, ...rewards] = data;
  let best = null;
  let least = REACH ** 2;
  for (let index = firstFrom(tokens, plot.posToVal(left - REACH, "x")); index < tokens.length; index += 1) {
    const across = plot.valToPos(tokens[index], "x") - left;
    if (across > REACH) break;
    const reward = rewards.reduce((found, kind) => found ?? kind[index], /** @type {number | null} */ (null));
    const distance = across ** 2 + (plot.valToPos(reward, "y") - top) ** 2;
    if (distance < least) [best, least] = [index, distance];
  }
  return best;
}

/**
 * Return a range that is wider than the values: uPlot draws one of several points on its edges.
 *
 * @param {unknown} _
 * @param {number} lowest
 * @param {number} highest
 * @returns {[number, number]}
 */
function wider(_, lowest, highest) {
  const edge = (highest - lowest) * 0.02 || 1;
  return [lowest - edge, highest + edge];
}

/**
 * Return the position of the first of sorted values that isn't below a value.
 *
 * @param {(number | null)[]} values
 * @param {number} value
 */
function firstFrom(values, value) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (Number(values[middle]) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
