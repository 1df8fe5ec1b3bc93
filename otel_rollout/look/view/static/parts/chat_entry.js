import { pairCalls } from "../data/conversation.js";
import { useState } from "../vendor/preact_hooks.js";
import { ConversationHead, lastSaid } from "./conversation_head.js";
import { html } from "./html.js";
import { Message } from "./message.js";

/** @import { Branch } from "../data/branches.js" */
/** @import { Entry } from "../data/conversation.js" */
/** @import { Differences } from "./message.js" */

/**
 * A message of a chat, or a conversation that is called there, which unfolds.
 *
 * @param {object} props
 * @param {Entry} props.entry
 * @param {Map<number, string>} props.names of the conversations
 * @param {string} [props.heading] of a message: as in `Message`
 * @param {Differences} [props.differences]
 * @param {(spanId: string | null) => (() => void) | null} [props.moreOf]
 * @param {number} [props.first]
 */
export function ChatEntry({ entry, names, heading, differences, moreOf, first }) {
  if (!("branch" in entry)) return html`<${Message} item=${entry} ...${{ heading, differences, moreOf, first }} />`;
  return html`<${UnfoldingBranch} branch=${entry.branch} ...${{ names, moreOf, first }} differences=${differences?.inside} />`;
}

/** @param {any} props @returns {any} */
function UnfoldingBranch({ branch, names, differences, moreOf, first }) {
  const [isOpen, setOpen] = useState(false);
  const { conversation, said } = /** @type {Branch} */ (branch);
  return html`<div class="branch">
    <${ConversationHead}
      ...${{ conversation, names, isOpen, answer: lastSaid(branch) }}
      onToggle=${conversation.kind === "compacted" ? null : () => setOpen(!isOpen)}
    />
    ${
      isOpen
        ? html`<div class="in-branch" style=${{ "--depth": "1" }}>
            ${pairCalls(said).map((entry, nth) => html`<${ChatEntry} key=${entry.index} ...${{ entry, names, moreOf, first }} differences=${differences?.[nth]} />`)}
          </div>`
        : null
    }
  </div>`;
}
