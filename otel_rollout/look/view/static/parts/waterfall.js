import { useEffect, useMemo } from "../vendor/preact_hooks.js";
import { duration, visible } from "../data/formats.js";
import { layOutWaterfall } from "../data/waterfall.js";
import { html } from "./html.js";
import { useWindowed } from "./windowed.js";

/** @import { Span } from "../data/types.d.ts" */

/** Pixels of a row. */
const ROW = 24;
/** Levels of the tree that are indented. */
const MOST_INDENTED = 12;

/** @type {Record<string, string>} */
const KINDS = { LLM: "generating", TOOL: "tool", EVALUATOR: "reward" };

/**
 * A trajectory's spans over time: a tree, and a bar for each.
 *
 * @param {object} props
 * @param {Span[]} props.spans
 * @param {Map<number, string>} props.names of the conversations
 * @param {import("../pages/trajectory.js").Chosen | null} props.chosen
 * @param {(spanId: string) => void} props.onSelect
 */
export function Waterfall({ spans, names, chosen, onSelect }) {
  const { rows, seconds } = useMemo(() => layOutWaterfall(spans), [spans]);
  const places = useMemo(() => new Map(rows.map((row, at) => [row.span.span_id, at])), [rows]);
  const { scroller, items, height, show } = useWindowed({
    count: rows.length,
    sizeOf: () => ROW,
  });
  const at = chosen === null ? undefined : places.get(chosen.spanId);
  useEffect(() => {
    if (at !== undefined) show(at);
  }, [at]);
  const step = (/** @type {number} */ by) => {
    const next = rows[Math.max(0, Math.min(rows.length - 1, (at ?? -1) + by))];
    if (next) onSelect(next.span.span_id);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    step(event.key === "ArrowDown" ? 1 : -1);
  };
  return html`<div class="waterfall-box">
    <div class="waterfall-axis weak" aria-hidden="true">
      <span>0</span><span>${duration(seconds / 2)}</span
      ><span>${duration(seconds)}</span>
    </div>
    <div
      ref=${scroller}
      class="waterfall"
      role="listbox"
      tabindex="0"
      aria-label="spans"
      aria-activedescendant=${at === undefined ? undefined : `span-${chosen?.spanId}`}
      onKeyDown=${onKeyDown}
    >
      <div
        class="windowed"
        role="presentation"
        style=${{ height: `${height}px` }}
      >
        ${items.map(({ index, start }) => {
          const { span, depth, left, width, seconds: took } = rows[index];
          const isSelected = index === at;
          return html`<div
            key=${span.span_id}
            id=${`span-${span.span_id}`}
            class="waterfall-row ${isSelected ? "selected" : ""} ${span.status === "error" ? "failed" : ""}"
            role="option"
            aria-selected=${isSelected}
            style=${{ transform: `translateY(${start}px)` }}
            title=${`${visible(span.name)} · ${duration(took)}${span.error ? ` · ${visible(span.error)}` : ""}`}
            onClick=${() => onSelect(span.span_id)}
          >
            <span
              class="waterfall-name"
              style=${{ paddingLeft: `${Math.min(depth, MOST_INDENTED) * 0.8}rem` }}
            >
              ${span.status === "error" ? html`<span class="failure" aria-label="failed">✕ </span>` : null}${visible(span.name)}${detailOf(span, names) ? html` <span class="weak">${detailOf(span, names)}</span>` : null}
            </span>
            <span class="waterfall-time">
              <span
                class="waterfall-bar kind-${KINDS[span.kind] ?? "other"}"
                style=${{ left: `${left * 100}%`, width: `${width * 100}%` }}
              ></span>
            </span>
            <span class="waterfall-took weak">${duration(took)}</span>
          </div>`;
        })}
      </div>
    </div>
  </div>`;
}

/**
 * Return what a span's name doesn't say: a generation's turn, and its conversation if there are several; a call's tool.
 *
 * @param {Span} span
 * @param {Map<number, string>} names
 */
function detailOf(span, names) {
  if (span.turn !== null) {
    const name = names.size > 1 && span.conversation !== null ? names.get(span.conversation) : undefined;
    return name === undefined ? `turn ${span.turn}` : `turn ${span.turn}, ${visible(name)}`;
  }
  const tool = span.attributes["gen_ai.tool.name"];
  return typeof tool === "string" && tool !== span.name ? visible(tool) : "";
}
