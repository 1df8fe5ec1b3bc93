import { useEffect, useMemo } from "../vendor/preact_hooks.js";
import { messagesOf, pairCalls } from "../data/conversation.js";
import { html } from "./html.js";
import { Message } from "./message.js";
import { useWindowed } from "./windowed.js";

/** @import { Item } from "../data/conversation.js" */
/** @import { Span, Utterance } from "../data/types.d.ts" */

/** Pixels of a line, and of what stands around a message, for a guess of its height. */
const LINE = 19;
const AROUND = 64;
/** Characters in a line of the conversation. */
const WIDTH = 90;
/** Lines that a text has at most before "show all". */
const MOST_LINES = 50;

/**
 * A trajectory's conversation; of a long one, the part in view.
 *
 * @param {object} props
 * @param {Utterance[]} props.conversation
 * @param {(spanId: string | null) => Span | undefined} props.spanOf
 * @param {{spanId: string, from: "conversation" | "waterfall" | "address"} | null} props.chosen
 * @param {(spanId: string) => void} props.onSelect
 * @param {string[]} props.family the chosen span and those around it, the nearest first
 */
export function Conversation({ conversation, spanOf, chosen, onSelect, family }) {
  const items = useMemo(() => pairCalls(conversation), [conversation]);
  const places = useMemo(() => placesOf(items), [items]);
  const {
    scroller,
    items: shown,
    height,
    show,
    measure,
  } = useWindowed({
    count: items.length,
    sizeOf: (index) => guess(items[index]),
    keyOf: (index) => items[index].index,
  });
  const near = family.find((spanId) => places.has(spanId)) ?? null;
  useEffect(() => {
    if (near === null || chosen === null || chosen.from === "conversation") return;
    const place = places.get(near) ?? 0;
    show(place);
    // The entry is in the document in the next frame; only then is its height known.
    const frame = requestAnimationFrame(() => {
      show(place);
      scroller.current?.querySelector(`[data-span="${CSS.escape(near)}"]`)?.scrollIntoView({ block: "nearest" });
    });
    return () => cancelAnimationFrame(frame);
  }, [chosen?.spanId, chosen?.from, places]);
  const moreOf = (/** @type {string | null} */ spanId) => (spanId === null ? null : () => onSelect(spanId));
  return html`<div
    ref=${scroller}
    class="conversation"
    tabindex="0"
    role="region"
    aria-label="conversation"
  >
    ${items.length ? null : html`<p class="all-alike">No messages: its spans say what it did.</p>`}
    <div class="windowed" style=${{ height: `${height}px` }}>
      ${shown.map(
        ({ key, index, start }) =>
          html`<div
            key=${key}
            ref=${measure}
            data-index=${index}
            class="windowed-entry"
            style=${{ transform: `translateY(${start}px)` }}
          >
            <${Message}
              item=${items[index]}
              ...${{ spanOf, onSelect, moreOf }}
              selected=${near}
            />
          </div>`,
      )}
    </div>
  </div>`;
}

/**
 * Return the position of the message of each span.
 *
 * @param {Item[]} items
 * @returns {Map<string, number>}
 */
function placesOf(items) {
  const places = new Map();
  items.forEach((item, at) => {
    for (const { span_id: spanId } of messagesOf(item))
      if (spanId !== null && !places.has(spanId)) places.set(spanId, at);
  });
  return places;
}

/** @param {Item} item */
function guess(item) {
  const lines = (/** @type {string} */ text) =>
    Math.min(MOST_LINES, 1 + text.length / WIDTH + text.slice(0, 4000).split("\n").length - 1);
  const { role, text } = item.utterance;
  const own = role === "tool" ? 0 : AROUND + LINE * (role === "system" ? 1 : lines(text));
  return own + item.cards.reduce((sum, { result }) => sum + 2 * AROUND + LINE * (1 + lines(result?.text ?? "")), 0);
}
