import { compact, decimal, duration, percent, tick } from "../data/formats.js";
import { noSignalShare, share, toolErrorShare } from "../data/step_figures.js";
import { useMemo } from "../vendor/preact_hooks.js";
import { LineChart } from "./chart.js";
import { html } from "./html.js";

/** @import { StepSummary } from "../data/types.d.ts" */
/** @import { Line } from "./chart.js" */

/**
 * A chart: its lines are a figure of each step, and a color.
 *
 * @typedef {object} Figure
 * @property {string} title
 * @property {(value: number | null | undefined) => string} format
 * @property {(value: number | null | undefined) => string} [formatTick]
 * @property {{label: string, color: string, value: (step: StepSummary) => number | null | undefined}[]} lines
 */

/** @type {Figure[]} */
const FIGURES = [
  {
    title: "Mean reward",
    format: decimal,
    formatTick: tick,
    lines: [{ label: "reward", color: "series-1", value: (step) => step.reward_mean }],
  },
  {
    title: "Groups without signal",
    format: percent,
    lines: [
      { label: "no signal", color: "series-1", value: noSignalShare },
      {
        label: "all worst",
        color: "series-2",
        value: (step) => share(step.zero_variance.worst ?? 0, step.comparable_groups),
      },
    ],
  },
  {
    title: "Truncated, errors",
    format: percent,
    lines: [
      {
        label: "truncated",
        color: "series-1",
        value: (step) => share(step.truncated, step.trajectories),
      },
      {
        label: "error",
        color: "series-2",
        value: (step) => share(step.errors, step.trajectories),
      },
    ],
  },
  {
    title: "Tool errors",
    format: percent,
    lines: [{ label: "of calls", color: "series-1", value: toolErrorShare }],
  },
  {
    title: "Output tokens",
    format: compact,
    lines: [
      { label: "p50", color: "series-1", value: (step) => step.tokens?.p50 },
      { label: "p99", color: "series-2", value: (step) => step.tokens?.p99 },
    ],
  },
  {
    title: "Duration",
    format: duration,
    lines: [
      { label: "p50", color: "series-1", value: (step) => step.seconds?.p50 },
      { label: "p99", color: "series-2", value: (step) => step.seconds?.p99 },
    ],
  },
];

/**
 * Charts over the steps of a run, and dashed over them those of another.
 *
 * @param {object} props
 * @param {StepSummary[]} props.steps
 * @param {StepSummary[]} [props.against]
 * @param {[string, string]} props.names of the two
 * @param {(step: StepSummary) => void} props.onOpen
 */
export function StepCharts({ steps, against = [], names, onOpen }) {
  const numbered = useMemo(() => byNumber(steps), [steps]);
  const others = useMemo(() => byNumber(against), [against]);
  const x = useMemo(
    () => [...new Set([...numbered.keys(), ...others.keys()])].sort((a, b) => a - b),
    [numbered, others],
  );
  if (x.length < 2) return null;
  return html`<section class="charts" aria-label="charts over steps">
    ${
      against.length
        ? html`<p class="charts-legend">
            <span
              ><i class="key key-line" aria-hidden="true"></i>${names[0]}</span
            >
            <span
              ><i class="key key-line is-dashed" aria-hidden="true"></i
              >${names[1]}</span
            >
          </p>`
        : null
    }
    ${FIGURES.map(({ title, format, formatTick, lines }) => {
      /** @type {Line[]} */
      const drawn = lines.map(({ label, color, value }) => ({
        label,
        color,
        values: values(x, numbered, value),
      }));
      if (against.length) {
        drawn.push(
          ...lines.map(({ label, color, value }) => ({
            label: `${label}, other`,
            color,
            isDashed: true,
            values: values(x, others, value),
          })),
        );
      }
      if (drawn.every((line) => line.values.every((each) => each == null))) return null;
      return html`<${LineChart}
        key=${title}
        title=${title}
        x=${x}
        lines=${drawn}
        format=${format}
        formatTick=${formatTick}
        onOpen=${(/** @type {number} */ index) => {
          const step = numbered.get(x[index]) ?? others.get(x[index]);
          if (step) onOpen(step);
        }}
      />`;
    })}
  </section>`;
}

/** @param {StepSummary[]} steps */
function byNumber(steps) {
  return new Map(steps.filter(({ step }) => step != null).map((step) => [/** @type {number} */ (step.step), step]));
}

/**
 * @param {number[]} x
 * @param {Map<number, StepSummary>} steps
 * @param {(step: StepSummary) => number | null | undefined} value
 */
function values(x, steps, value) {
  return x.map((number) => {
    const step = steps.get(number);
    return step ? (value(step) ?? null) : null;
  });
}
