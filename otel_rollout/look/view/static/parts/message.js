import { visible, whole } from "../data/formats.js";
import { html } from "./html.js";
import { LongText } from "./long_text.js";
import { TokenIds } from "./token_ids.js";
import { SpanButton, ToolCard, Traceback } from "./tool_card.js";

/** @import { Part } from "../data/bounded_difference.js" */
/** @import { Item } from "../data/conversation.js" */
/** @import { Span } from "../data/types.d.ts" */

/**
 * The changed parts of a message: of its text, and of each of its cards; `inside`: those of a branch's messages.
 * @typedef {{text?: Part[], cards: {arguments?: Part[], result?: Part[]}[], inside?: Differences[]}} Differences
 */

/**
 * A message of a conversation with the tools that it called.
 *
 * @param {object} props
 * @param {Item} props.item
 * @param {string} [props.heading] stands in the place of the role and amounts
 * @param {Differences} [props.differences]
 * @param {(spanId: string | null) => Span | undefined} [props.spanOf]
 * @param {string | null} [props.selected] the id of the chosen span
 * @param {(spanId: string) => void} [props.onSelect]
 * @param {(spanId: string | null) => (() => void) | null} [props.moreOf] shows what the server left out
 * @param {number} [props.first] characters of a text that are shown first
 */
export function Message({ item, heading, differences, spanOf, selected, onSelect, moreOf, first }) {
  const { utterance, cards } = item;
  const { role, text, reasoning, is_error: isError } = utterance;
  const isResult = role === "tool";
  const span = isResult ? undefined : spanOf?.(utterance.span_id);
  const isSelected = span !== undefined && span.span_id === selected;
  return html`<article
    class="message role-${roleClass(role)} ${isError && !isResult ? "failed" : ""} ${isSelected ? "selected" : ""}"
    data-span=${span?.span_id}
    aria-label=${visible(role)}
  >
    ${
      isResult || heading !== undefined
        ? heading && html`<p class="same-as">${heading}</p>`
        : html`<header>
            <span class="role">${visible(role)}</span>
            ${isError ? html`<span class="failure">failed</span>` : null}
            ${span && onSelect ? html`<${SpanButton} span=${span} onSelect=${onSelect} />` : null}
            ${utterance.tokens ? html`<span class="weak tokens">${tokensText(utterance.tokens)}</span>` : null}
          </header>`
    }
    ${
      reasoning
        ? html`<details class="reasoning">
            <summary>Reasoning · ${whole(reasoning.length)} characters</summary>
            <${LongText} text=${reasoning} first=${first} />
          </details>`
        : null
    }
    ${isResult ? null : html`<${Body} ...${{ role, text, utterance, parts: differences?.text, moreOf, first }} />`}
    ${span?.prefix_break ? html`<${PrefixBreak} prefixBreak=${span.prefix_break} />` : null}
    ${span && isError ? html`<${Traceback} span=${span} />` : null}
    ${cards.map(
      (card, at) =>
        html`<${ToolCard}
          key=${at}
          card=${card}
          argumentParts=${differences?.cards[at]?.arguments}
          resultParts=${differences?.cards[at]?.result}
          ...${{ spanOf, selected, onSelect, moreOf, first }}
        />`,
    )}
    ${utterance.token_ids?.length && spanOf ? html`<${TokenIds} ids=${utterance.token_ids} />` : null}
  </article>`;
}

/** @param {any} props */
function Body({ role, text, utterance, parts, moreOf, first }) {
  if (!text.trim() && !utterance.cut) {
    return utterance.calls.length || utterance.reasoning ? null : html`<p class="weak">no text</p>`;
  }
  const body = html`<${LongText}
    text=${text}
    parts=${parts}
    cut=${utterance.cut}
    onMore=${moreOf?.(utterance.span_id)}
    first=${first}
  />`;
  if (role !== "system" && role !== "developer") return body;
  return html`<details class="folded">
    <summary>
      ${`${visible(text.slice(0, 200).split("\n", 1)[0].slice(0, 90))} … `}
      <span class="weak">${`${whole(text.length)} characters`}</span>
    </summary>
    ${body}
  </details>`;
}

/**
 * @param {{prefixBreak: NonNullable<Span["prefix_break"]>}} props
 */
export function PrefixBreak({ prefixBreak }) {
  const { at, expected, got } = prefixBreak;
  return html`<p class="prefix-break">
    <span aria-hidden="true">⚠</span> Its prompt doesn't extend the turn before.
    ${
      at === null
        ? " The token ids that would show its first token were not recorded."
        : html`${" First at token "}<b>${whole(at)}</b>${": "}${tokenText(expected)}${" became "}${tokenText(got)}.`
    }
  </p>`;
}

/** @param {unknown} id */
function tokenText(id) {
  return id == null ? "the end" : html`<code>${String(id)}</code>`;
}

/** @param {{input: number | null, output: number | null}} tokens */
function tokensText({ input, output }) {
  return `${input == null ? "?" : whole(input)} → ${output == null ? "?" : whole(output)} tok`;
}

/** @param {string} role */
function roleClass(role) {
  return ["system", "developer", "user", "assistant", "tool"].includes(role) ? role : "other";
}
