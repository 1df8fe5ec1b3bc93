import { argumentsText, isPlain, pretty } from "../data/conversation.js";
import { duration, visible } from "../data/formats.js";
import { html } from "./html.js";
import { LongText } from "./long_text.js";

/** @import { Part } from "../data/bounded_difference.js" */
/** @import { Card } from "../data/conversation.js" */
/** @import { Span } from "../data/types.d.ts" */

/**
 * A call of a tool: its arguments and its result together.
 *
 * @param {object} props
 * @param {Card} props.card
 * @param {Part[]} [props.argumentParts] the arguments in parts, of which the changed ones are marked
 * @param {Part[]} [props.resultParts]
 * @param {(spanId: string | null) => Span | undefined} [props.spanOf]
 * @param {string | null} [props.selected] the id of the chosen span
 * @param {(spanId: string) => void} [props.onSelect]
 * @param {(spanId: string | null) => (() => void) | null} [props.moreOf] shows what the server left out
 * @param {number} [props.first] characters of a text that are shown first
 */
export function ToolCard({ card, argumentParts, resultParts, spanOf, selected, onSelect, moreOf, first }) {
  const { call, result } = card;
  const span = spanOf?.(result?.span_id ?? null);
  const name = call?.name || result?.name || span?.name || "tool";
  const isSelected = span !== undefined && span.span_id === selected;
  return html`<section
    class="tool-card ${result?.is_error ? "failed" : ""} ${isSelected ? "selected" : ""}"
    data-span=${span?.span_id}
    aria-label=${`tool ${visible(name)}`}
  >
    <header>
      <span class="tool-name"
        ><span aria-hidden="true">⚙</span> ${visible(name)}</span
      >
      ${result?.is_error ? html`<span class="failure">failed</span>` : null}
      ${span && onSelect ? html`<${SpanButton} span=${span} onSelect=${onSelect} />` : null}
    </header>
    ${call ? html`<${Arguments} value=${call.arguments} parts=${argumentParts} first=${first} />` : null}
    ${
      result
        ? html`<div class="result">
            ${
              result.text.trim() || result.cut
                ? html`<${LongText}
                    text=${resultParts ? result.text : pretty(result.text)}
                    parts=${resultParts}
                    cut=${result.cut}
                    onMore=${moreOf?.(result.span_id)}
                    first=${first}
                  />`
                : html`<span class="weak">no output</span>`
            }
            ${span ? html`<${Traceback} span=${span} />` : null}
          </div>`
        : html`<p class="weak">No result was traced.</p>`
    }
  </section>`;
}

/**
 * A button that chooses a message's span.
 *
 * @param {{span: Span, onSelect: (spanId: string) => void}} props
 */
export function SpanButton({ span, onSelect }) {
  const seconds = Number(BigInt(span.end_time) - BigInt(span.start_time)) / 1e9;
  return html`<button
    type="button"
    class="link span-link"
    title="Show its span"
    onClick=${() => onSelect(span.span_id)}
  >
    ${duration(seconds)}<span class="hidden-label">
      · show the span ${visible(span.name)}</span
    >
  </button>`;
}

/** @param {{span: Span}} props */
export function Traceback({ span }) {
  const stack = span.events.map((event) => event.attributes?.["exception.stacktrace"]).find((each) => each);
  if (typeof stack !== "string") return null;
  return html`<details class="traceback">
    <summary>Traceback</summary>
    <${LongText} text=${stack} />
  </details>`;
}

/** @param {{value: unknown, parts?: Part[], first?: number}} props */
function Arguments({ value, parts, first }) {
  if (parts)
    return html`<div class="arguments">
      <${LongText} text=${argumentsText(value)} parts=${parts} first=${first} />
    </div>`;
  if (!isPlain(value))
    return html`<div class="arguments">
      <${LongText} text=${pretty(value)} first=${first} />
    </div>`;
  return html`<dl class="arguments">
    ${Object.entries(value).map(
      ([key, each]) =>
        html`<div key=${key}>
          <dt>${visible(key)}</dt>
          <dd>
            <${LongText}
              text=${typeof each === "string" ? each : JSON.stringify(each)}
              first=${first}
            />
          </dd>
        </div>`,
    )}
  </dl>`;
}
