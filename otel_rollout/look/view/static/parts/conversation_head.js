import { compact, counted, visible } from "../data/formats.js";
import { html } from "./html.js";

/** @import { Branch } from "../data/branches.js" */
/** @import { Conversation } from "../data/types.d.ts" */

/**
 * The head of a conversation in a chat: what it is, where it comes from, what it took, and if it isn't trained on.
 *
 * @param {object} props
 * @param {Conversation} props.conversation
 * @param {Map<number, string>} props.names of all conversations of the trajectory
 * @param {boolean} [props.isOpen]
 * @param {(() => void) | null} [props.onToggle] null: it doesn't fold
 * @param {(turn: number) => void} [props.onTurn] goes to a turn; without it, where the conversation begins isn't said
 * @param {string} [props.answer] the beginning of its last message
 * @param {{isOpen: boolean, onToggle: () => void} | null} [props.all] folds and unfolds all conversations
 */
export function ConversationHead({ conversation, names, isOpen, onToggle, onTurn, answer, all }) {
  const { kind, turns, input_tokens: input, output_tokens: output } = conversation;
  const title = titleOf(conversation, names);
  return html`<div class="conversation-head kind-${kind}">
    ${
      onToggle
        ? html`<button
            type="button"
            class="fold"
            aria-expanded=${isOpen}
            onClick=${onToggle}
          >
            <span aria-hidden="true">${isOpen ? "▾ " : "▸ "}</span>${title}
          </button>`
        : html`<span class="conversation-title">${title}</span>`
    }
    ${onTurn ? html`<${Origin} conversation=${conversation} onTurn=${onTurn} />` : null}
    <span>${counted(turns.length, "turn")}</span>
    <span>${`${compact(input) || "?"} → ${compact(output) || "?"} tokens`}</span>
    ${conversation.inferred ? html`<span title="Nothing marks this conversation: its messages tell it apart.">inferred</span>` : null}
    <${NotTrained} conversation=${conversation} />
    ${all ? html`<button type="button" class="link" onClick=${all.onToggle}>${all.isOpen ? "fold all" : "unfold all"}</button>` : null}
    ${answer && !isOpen ? html`<span class="conversation-answer">${visible(answer)}</span>` : null}
  </div>`;
}

/** @param {{conversation: Conversation}} props */
export function NotTrained({ conversation }) {
  if (conversation.trained !== false) return null;
  return html`<span class="untrained" title="Its turns are no training data."><span aria-hidden="true">×</span> <span class="words">not trained</span></span>`;
}

/**
 * @param {Conversation} conversation
 * @param {Map<number, string>} names
 */
function titleOf({ id, kind, name, parent, replaced }, names) {
  const own = html`<b>${visible(names.get(id))}</b>`;
  if (kind === "subagent") return name ? html`sub-agent ${own}` : own;
  if (kind === "user") return name ? html`simulated user ${own}` : own;
  if (kind !== "compacted") return own;
  const from = parent === null || names.get(parent) === "main" ? "" : ` of ${visible(names.get(parent))}`;
  return html`${own}${replaced === null ? "" : `: replaces ${counted(replaced, "message")}`}${from}`;
}

/**
 * Where a conversation begins, and where its parent goes on.
 *
 * @param {{conversation: Conversation, onTurn: (turn: number) => void}} props
 */
function Origin({ conversation, onTurn }) {
  const { kind, parent_turn: from, joined_turn: to } = conversation;
  const link = (/** @type {number} */ turn) =>
    html`<button type="button" class="link" onClick=${() => onTurn(turn)}>
      turn ${turn}
    </button>`;
  const beginning = from !== null ? html`from ${link(from)}` : kind === "fork" ? "from the prompt" : null;
  if (beginning === null && to === null) return null;
  return html`<span>${beginning}${to === null ? null : html`${beginning && ", "}back in ${link(to)}`}</span>`;
}

/**
 * Return the beginning of the last message of a branch.
 *
 * @param {Branch} branch
 */
export function lastSaid({ said }) {
  const last = said.at(-1);
  return last && "text" in last ? last.text.trim().slice(0, 200).split("\n", 1)[0] : "";
}
