import { useEffect, useMemo, useRef, useState } from "../vendor/preact_hooks.js";
import { withBranches } from "../data/branches.js";
import { branchesAround, linesOf, messagesOf } from "../data/conversation.js";
import { ConversationHead, lastSaid } from "./conversation_head.js";
import { html } from "./html.js";
import { Message } from "./message.js";
import { useWindowed } from "./windowed.js";

/** @import { Branch, Said } from "../data/branches.js" */
/** @import { Line } from "../data/conversation.js" */
/** @import { Conversation as Part, Span, Utterance } from "../data/types.d.ts" */
/** @import { Chosen } from "../pages/trajectory.js" */

/** Pixels of a line, and of what stands around a message, for a guess of its height. */
const LINE = 19;
const AROUND = 64;
/** Characters in a line of the conversation. */
const WIDTH = 90;
/** Lines that a text has at most before "show all". */
const MOST_LINES = 50;

/** Pixels of a conversation's head. */
const HEAD = 36;
/** Branches up to which each is indented. */
const MOST_INDENTED = 6;

/**
 * What a trajectory's conversations say, in one chat; of a long one, the part in view.
 *
 * @param {object} props
 * @param {Utterance[]} props.conversation
 * @param {Part[]} props.conversations
 * @param {Map<number, string>} props.names of the conversations
 * @param {(spanId: string | null) => Span | undefined} props.spanOf
 * @param {Chosen | null} props.chosen
 * @param {(spanId: string) => void} props.onSelect
 * @param {(turn: number) => void} props.onTurn
 * @param {string[]} props.family the chosen span and those around it, the nearest first
 */
export function Conversation({ conversation, conversations, names, spanOf, chosen, onSelect, onTurn, family }) {
  const said = useMemo(() => withHead(conversation, conversations), [conversation, conversations]);
  const around = useMemo(() => branchesAround(said), [said]);
  const [open, setOpen] = useState(/** @type {Set<number>} */ (new Set()));
  const lines = useMemo(() => linesOf(said, open), [said, open]);
  const places = useMemo(() => placesOf(lines), [lines]);
  const {
    scroller,
    items: shown,
    height,
    show,
    measure,
  } = useWindowed({
    count: lines.length,
    sizeOf: (index) => guess(lines[index]),
    keyOf: (index) => lines[index].key,
  });
  const near = family.find((spanId) => places.has(spanId) || around.has(spanId)) ?? null;
  const reached = useRef(/** @type {Chosen | null} */ (null));
  useEffect(() => {
    if (near === null || chosen === null || chosen.from === "conversation" || reached.current === chosen) return;
    const place = places.get(near);
    if (place === undefined) {
      setOpen(new Set([...open, ...(around.get(near) ?? [])]));
      return;
    }
    // What is unfolded later leads nowhere.
    reached.current = chosen;
    show(place);
    // The entry is in the document in the next frame; only then is its height known.
    const frame = requestAnimationFrame(() => {
      show(place);
      scroller.current?.querySelector(`[data-span="${CSS.escape(near)}"]`)?.scrollIntoView({ block: "nearest" });
    });
    return () => cancelAnimationFrame(frame);
  }, [chosen?.spanId, chosen?.from, places]);
  const moreOf = (/** @type {string | null} */ spanId) => (spanId === null ? null : () => onSelect(spanId));
  const folding = conversations
    .filter(({ kind }) => kind === "subagent" || kind === "fork" || kind === "user")
    .map(({ id }) => id);
  const headOf = (/** @type {Branch | null} */ branch) => {
    if (!branch) return null;
    const { id, kind } = branch.conversation;
    const isAllOpen = folding.every((each) => open.has(each));
    const toggle = () => setOpen(new Set(open.has(id) ? [...open].filter((each) => each !== id) : [...open, id]));
    return html`<${ConversationHead}
      ...${{ conversation: branch.conversation, names, onTurn, answer: lastSaid(branch), isOpen: open.has(id) }}
      onToggle=${folding.includes(id) ? toggle : null}
      all=${kind === "main" && folding.length ? { isOpen: isAllOpen, onToggle: () => setOpen(new Set(isAllOpen ? [] : folding)) } : null}
    />`;
  };
  return html`<div
    ref=${scroller}
    class="conversation"
    tabindex="0"
    role="region"
    aria-label="conversation"
  >
    ${lines.length ? null : html`<p class="all-alike">No messages: its spans say what it did.</p>`}
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
            <${Indented} depth=${lines[index].depth}>
              ${
                lines[index].item
                  ? html`<${Message}
                      item=${lines[index].item}
                      ...${{ spanOf, onSelect, moreOf }}
                      selected=${near}
                    />`
                  : headOf(lines[index].branch)
              }
            </${Indented}>
          </div>`,
      )}
    </div>
  </div>`;
}

/**
 * Return the chat with the head of the main conversation, if there are others.
 *
 * @param {Utterance[]} conversation
 * @param {Part[]} conversations
 * @returns {Said[]}
 */
function withHead(conversation, conversations) {
  const said = withBranches(conversation, conversations);
  const main = conversations.find(({ kind }) => kind === "main");
  return main && conversations.length > 1 && said.length ? [{ conversation: main, said: [] }, ...said] : said;
}

/** @param {{depth: number, children?: any}} props */
function Indented({ depth, children }) {
  if (!depth) return children;
  return html`<div
    class="in-branch"
    style=${{ "--depth": String(Math.min(depth, MOST_INDENTED)) }}
  >
    ${children}
  </div>`;
}

/**
 * Return the position of the message of each span.
 *
 * @param {Line[]} lines
 * @returns {Map<string, number>}
 */
function placesOf(lines) {
  const places = new Map();
  lines.forEach(({ item }, at) => {
    if (!item) return;
    for (const { span_id: spanId } of messagesOf(item))
      if (spanId !== null && !places.has(spanId)) places.set(spanId, at);
  });
  return places;
}

/** @param {Line} line */
function guess({ item }) {
  if (!item) return HEAD;
  const lines = (/** @type {string} */ text) =>
    Math.min(MOST_LINES, 1 + text.length / WIDTH + text.slice(0, 4000).split("\n").length - 1);
  const { role, text } = item.utterance;
  const own = role === "tool" ? 0 : AROUND + LINE * (role === "system" ? 1 : lines(text));
  return own + item.cards.reduce((sum, { result }) => sum + 2 * AROUND + LINE * (1 + lines(result?.text ?? "")), 0);
}
