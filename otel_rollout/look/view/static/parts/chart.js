import { useEffect, useRef, useState } from "../vendor/preact_hooks.js";
import UPlot from "../vendor/uplot.js";
import { html } from "./html.js";
import { themeColor, useThemeVersion } from "./theme.js";

/** Pixels of the axis of y: the least; beside a text; of a character. */
const AXIS_WIDTH = 52;
const AXIS_EDGE = 18;
const CHARACTER_WIDTH = 7;

/**
 * A line of a chart.
 *
 * @typedef {object} Line
 * @property {string} label
 * @property {string} color of style/colors.css
 * @property {boolean} [isDashed]
 * @property {(number | null)[]} values one for each x
 */

/**
 * Lines over steps; a click leads to the step.
 *
 * @param {object} props
 * @param {string} props.title
 * @param {number[]} props.x
 * @param {Line[]} props.lines
 * @param {(value: number | null | undefined) => string} props.format
 * @param {(value: number | null | undefined) => string} [props.formatTick] of the axis
 * @param {(index: number) => void} [props.onOpen] gets the position in `x`
 * @param {[number, number]} [props.range] of y, if it is known before
 * @param {number} [props.height]
 */
export function LineChart({ title, x, lines, format, formatTick = format, onOpen, range, height = 130 }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const open = useRef(onOpen);
  open.current = onOpen;
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const theme = useThemeVersion();
  const shape = JSON.stringify([
    theme,
    title,
    range,
    height,
    lines.map(({ label, color, isDashed }) => [label, color, isDashed]),
  ]);
  const data = [x, ...lines.map(({ values }) => values)];

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const text = themeColor("text-weak");
    const grid = { stroke: themeColor("line"), width: 1 };
    const font = "11px system-ui, sans-serif";
    const made = new UPlot(
      {
        width: element.clientWidth || 300,
        height,
        padding: [8, 14, 0, 0],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        scales: { x: { time: false }, y: { range: range ?? rangeOf } },
        axes: [
          {
            stroke: text,
            grid,
            ticks: grid,
            font,
            size: 26,
            incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000],
          },
          {
            stroke: text,
            grid,
            ticks: grid,
            font,
            size: axisSize,
            values: (/** @type {any} */ _, /** @type {number[]} */ ys) => ys.map((y) => formatTick(y)),
          },
        ],
        series: [
          {},
          ...lines.map(({ label, color, isDashed }) => ({
            label,
            stroke: themeColor(color),
            width: 1.5,
            dash: isDashed ? [5, 4] : undefined,
            spanGaps: true,
            points: { size: 4, fill: themeColor(color), show: isShort },
          })),
        ],
        hooks: {
          setCursor: [(/** @type {any} */ self) => setAt(self.cursor.idx ?? null)],
        },
      },
      /** @type {any} */ (data),
      element,
    );
    plot.current = made;
    const click = () => {
      if (made.cursor.idx != null) open.current?.(made.cursor.idx);
    };
    made.over.addEventListener("click", click);
    const resize = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [JSON.stringify(data)]);

  const shown = at ?? x.length - 1;
  return html`<figure class="chart ${onOpen ? "is-link" : ""}">
    <figcaption>
      <span class="chart-title">${title}</span>
      <span class="chart-values"
        ><span class="chart-step">step ${x[shown]}</span>${lines.map(
          ({ label, color, isDashed, values }) =>
            html`<span key=${label}
              ><i
                class="key key-${color} ${isDashed ? "is-dashed" : ""}"
                aria-hidden="true"
              ></i
              >${label} <b>${format(values[shown]) || "–"}</b></span
            >`,
        )}</span
      >
    </figcaption>
    <div
      ref=${place}
      role="img"
      aria-label=${describe(title, x, lines, format)}
    ></div>
  </figure>`;
}

/**
 * Return the range of y; uPlot draws zeros alone on an axis to 100.
 *
 * @param {unknown} _
 * @param {number | null} lowest null: there are no values
 * @param {number | null} highest
 * @returns {any}
 */
function rangeOf(_, lowest, highest) {
  if (lowest === null || highest === null || (lowest === 0 && highest === 0)) return [0, 1];
  return UPlot.rangeNum(lowest, highest, 0.1, true);
}

/**
 * Return the width of an axis that has its longest text.
 *
 * @param {unknown} _
 * @param {string[] | null} texts
 */
function axisSize(_, texts) {
  const longest = (texts ?? []).reduce((most, text) => Math.max(most, text.length), 0);
  return Math.max(AXIS_WIDTH, AXIS_EDGE + longest * CHARACTER_WIDTH);
}

/** @param {any} self */
function isShort(self) {
  return self.data[0].length < 60;
}

/**
 * @param {string} title
 * @param {number[]} x
 * @param {Line[]} lines
 * @param {(value: number | null | undefined) => string} format
 */
function describe(title, x, lines, format) {
  const ends = lines.map(
    ({ label, values }) => `${label} from ${format(values[0]) || "unknown"} to ${format(values.at(-1)) || "unknown"}`,
  );
  return `${title} over ${x.length} steps: ${ends.join("; ")}. The table has the numbers.`;
}
