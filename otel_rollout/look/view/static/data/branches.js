// The chat of a trajectory with several conversations: what a sub-agent or a fork says stands where its parent calls it.

import { counted } from "./formats.js";

/** @import { Conversation, TrajectorySummary, Utterance } from "./types.d.ts" */

/**
 * A conversation at its place in the chat of its parent; of a compacted one, which goes on in that chat, `said` is empty.
 *
 * @typedef {object} Branch
 * @property {Conversation} conversation
 * @property {Said[]} said
 */

/** @typedef {Utterance | Branch} Said */

/**
 * @param {Said} said
 * @returns {said is Branch}
 */
export function isBranch(said) {
  return "said" in said;
}

/**
 * Return the chat of the main conversation, with the others at their places in it.
 *
 * @param {Utterance[]} utterances in the order of time
 * @param {Conversation[]} conversations
 * @returns {Said[]}
 */
export function withBranches(utterances, conversations) {
  if (conversations.length < 2) return utterances;
  const byId = new Map(conversations.map((each) => [each.id, each]));
  /** @type {Said[]} */
  const main = [];
  /** @type {Map<number, Said[]>} */
  const chats = new Map();
  /** @param {number} id @returns {Said[]} */
  const chatOf = (id) => {
    const known = chats.get(id);
    if (known) return known;
    const conversation = byId.get(id);
    chats.set(id, main);
    if (!conversation || conversation.parent === null) return main;
    const above = chatOf(conversation.parent);
    /** @type {Said[]} */
    const said = [];
    above.push({ conversation, said });
    const chat = conversation.kind === "compacted" ? above : said;
    chats.set(id, chat);
    return chat;
  };
  for (const utterance of utterances) chatOf(utterance.conversation).push(utterance);
  return main;
}

/**
 * Return the number of messages in a chat and in its branches.
 *
 * @param {Said[]} said
 * @returns {number}
 */
export function messagesIn(said) {
  return said.reduce((sum, each) => sum + (isBranch(each) ? messagesIn(each.said) : 1), 0);
}

/** The name of the last conversation of very many, which has the turns of all further ones. */
const FURTHER = "…";

/**
 * Return a sub-agent's or a simulated user's name, else what a conversation is.
 *
 * @param {Conversation} conversation
 */
export function plainName({ kind, name }) {
  if (kind === "subagent" || name === FURTHER) return name || "sub-agent";
  if (kind === "user") return name || "simulated user";
  return kind;
}

/**
 * Return the names of conversations by id: what they are, or the sub-agent's own, with a number where several have one.
 *
 * @param {Conversation[]} conversations
 * @returns {Map<number, string>}
 */
export function conversationNames(conversations) {
  const own = conversations.map(plainName);
  /** @type {Map<string, number>} */
  const seen = new Map();
  return new Map(
    conversations.map(({ id }, at) => {
      const count = (seen.get(own[at]) ?? 0) + 1;
      seen.set(own[at], count);
      const isOnly = own.filter((each) => each === own[at]).length === 1;
      return [id, isOnly ? own[at] : `${own[at]} ${count}`];
    }),
  );
}

/**
 * Return how many conversations of each kind a trajectory has beside the main one; nothing for those that it has none of.
 *
 * @param {Pick<TrajectorySummary, "subagents" | "forks" | "compactions" | "user_turns">} summary
 * @returns {string[]}
 */
export function conversationCounts({ subagents, forks, compactions, user_turns: userTurns }) {
  return [
    subagents ? counted(subagents, "sub-agent") : "",
    forks ? counted(forks, "fork") : "",
    compactions ? counted(compactions, "compaction") : "",
    userTurns ? `${counted(userTurns, "turn")} of a simulated user` : "",
  ].filter(Boolean);
}
