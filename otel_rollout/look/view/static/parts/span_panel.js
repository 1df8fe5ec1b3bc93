import { useEffect, useMemo, useState } from "../vendor/preact_hooks.js";
import { load, paths } from "../data/client.js";
import { pretty } from "../data/conversation.js";
import { duration, visible, whole } from "../data/formats.js";
import { objectOf, renderedPrompt } from "../data/rendered_prompt.js";
import { CopyButton } from "./copy_button.js";
import { html } from "./html.js";
import { LongText } from "./long_text.js";
import { PrefixBreak } from "./message.js";
import { TokenIds } from "./token_ids.js";

/** @import { Span } from "../data/types.d.ts" */

/** Payloads stand below the short attributes. */
const PAYLOAD = [
  "input.value",
  "output.value",
  "gen_ai.input.messages",
  "gen_ai.output.messages",
  "gen_ai.tool.definitions",
];
/** Payloads that are unfolded. */
const OPEN = ["input.value", "output.value", "gen_ai.output.messages"];
/** Characters of a value that stands beside its name. */
const SHORT = 80;

/**
 * A span as it was recorded: amounts, error, attributes, events.
 *
 * @param {{traceId: string, span: Span, spans: Span[], onClose: () => void}} props `spans`: all of the trajectory
 */
export function SpanPanel({ traceId, span: listed, spans, onClose }) {
  const [state, setState] = useState({
    spanId: "",
    whole: /** @type {Span | null} */ (null),
    said: "",
  });
  const isCurrent = state.spanId === listed.span_id;
  const span = (isCurrent && state.whole) || listed;
  useEffect(() => setState({ spanId: listed.span_id, whole: null, said: "" }), [listed.span_id]);
  const loadWhole = async () => {
    const found = /** @type {Span} */ (await load(paths.span(traceId, listed.span_id)));
    setState({ spanId: listed.span_id, whole: found, said: "" });
    return found;
  };
  const onMore = () => {
    setState({ spanId: listed.span_id, whole: null, said: "Reading …" });
    loadWhole().catch((error) => setState({ spanId: listed.span_id, whole: null, said: error.message }));
  };
  const copy = async () =>
    JSON.stringify((isCurrent && state.whole) || (await loadWhole().catch(() => listed)), null, 2);
  const seconds = Number(BigInt(span.end_time) - BigInt(span.start_time)) / 1e9;
  const entries = Object.entries(span.attributes);
  const ids = useMemo(() => tokenIdsOf(span), [span]);
  const prompt = useMemo(() => renderedPrompt(span, spans), [span, spans]);
  return html`<section class="span-panel" aria-label="span">
    <header>
      <h2>${visible(span.name)}</h2>
      <${CopyButton} text=${copy} title="The whole span as JSON">Copy JSON</${CopyButton}>
      <button type="button" class="icon-button" aria-label="Close the span" onClick=${onClose}>✕</button>
    </header>
    <p class="facts">
      ${span.kind ? html`<span>${visible(span.kind)}</span>` : null}
      <span class=${span.status === "error" ? "failure" : ""}>${span.status}</span>
      <span>${duration(seconds)}</span>
      ${span.turn === null ? null : html`<span>turn ${span.turn}</span>`}
      <span class="weak mono">${span.span_id}</span>
    </p>
    ${state.said && isCurrent ? html`<p role="status" class="warning">${state.said}</p>` : null}
    ${span.error ? html`<div class="span-error"><${LongText} text=${span.error} /></div>` : null}
    ${span.prefix_break ? html`<${PrefixBreak} prefixBreak=${span.prefix_break} />` : null}
    <dl class="attributes">
      ${entries.filter(([key]) => !PAYLOAD.includes(key)).map((entry) => html`<${Attribute} key=${entry[0]} ...${{ entry, span, onMore }} />`)}
    </dl>
    ${prompt ? html`<${RenderedPrompt} ...${prompt} />` : null}
    ${entries.filter(([key]) => PAYLOAD.includes(key)).map((entry) => html`<${Payload} key=${entry[0]} ...${{ entry, span, onMore }} />`)}
    ${ids.map(
      ({ name, values, marked }) =>
        html`<div key=${name}>
          <h3>${name}</h3>
          <${TokenIds} ids=${values} marked=${marked} />
        </div>`,
    )}
    ${span.events.map(
      (event, at) =>
        html`<details
          key=${at}
          class="event"
          open=${event.name === "exception"}
        >
          <summary>event ${visible(event.name)}</summary>
          <dl class="attributes">
            ${Object.entries(event.attributes ?? {}).map(
              ([key, value]) =>
                html`<div key=${key}>
                  <dt>${visible(key)}</dt>
                  <dd>
                    <${LongText}
                      text=${pretty(value)}
                      cut=${event.cut?.[key]}
                      onMore=${onMore}
                    />
                  </dd>
                </div>`,
            )}
          </dl>
        </details>`,
    )}
  </section>`;
}

/** @param {{entry: [string, unknown], span: Span, onMore: () => void}} props */
function Attribute({ entry: [key, value], span, onMore }) {
  const line = typeof value === "string" ? "" : JSON.stringify(value);
  const text = line && line.length <= SHORT ? line : pretty(value);
  const cut = span.cut?.[key];
  return html`<div class=${text.length > SHORT ? "long" : ""}>
    <dt>${visible(key)}</dt>
    <dd><${LongText} text=${text} cut=${cut} onMore=${onMore} /></dd>
  </div>`;
}

/** @param {{text: string, isWhole: boolean}} props */
function RenderedPrompt({ text, isWhole }) {
  return html`<details class="payload">
    <summary>
      rendered prompt
      <span class="weak">· ${whole(text.length)} characters${isWhole ? "" : ", the new part"}</span>
    </summary>
    <div class="payload-text"><${CopyButton} text=${text}>Copy</${CopyButton}><${LongText} text=${text} /></div>
  </details>`;
}

/** @param {{entry: [string, unknown], span: Span, onMore: () => void}} props */
function Payload({ entry: [key, value], span, onMore }) {
  const text = useMemo(() => pretty(value), [value]);
  const cut = span.cut?.[key];
  return html`<details class="payload" open=${OPEN.includes(key)}>
    <summary>${key} <span class="weak">· ${whole(text.length + (cut ?? 0))} characters</span></summary>
    <div class="payload-text"><${CopyButton} text=${String(value)}>Copy</${CopyButton}><${LongText} text=${text} cut=${cut} onMore=${onMore} /></div>
  </details>`;
}

/**
 * Return the lists of token ids in a span's payload, the position of a prefix break marked.
 *
 * @param {Span} span
 * @returns {{name: string, values: number[], marked: number | null}[]}
 */
function tokenIdsOf(span) {
  const found = [];
  for (const key of ["input.value", "output.value"]) {
    const value = objectOf(span.attributes[key]);
    for (const [name, ids] of Object.entries(value)) {
      if (!Array.isArray(ids) || !ids.length || !ids.every(Number.isInteger)) continue;
      const start = Number(value.prompt_ids_start ?? 0);
      const at = name.startsWith("prompt") && span.prefix_break?.at != null ? span.prefix_break.at - start : null;
      found.push({
        name: `${name}`,
        values: ids,
        marked: at !== null && at >= 0 && at < ids.length ? at : null,
      });
    }
  }
  return found;
}
