// The rollouts of a prompt side by side: what all of them begin with, and after that a row for each turn.

import { isBranch, messagesIn } from "./branches.js";

/** @import { Said } from "./branches.js" */
/** @import { Conversation, Utterance } from "./types.d.ts" */

/**
 * The part of a rollout that is in one row.
 * @typedef {object} Cell
 * @property {Said[]} said
 * @property {number} from  The position of the first of them in the conversation.
 * @property {number | null} sameAs  An earlier column that says the same in this row.
 */

/**
 * @typedef {object} Row
 * @property {number} turn  From 1; 0 is the prompt.
 * @property {(Cell | null)[]} cells  A cell for each rollout; null for one that had ended.
 */

/**
 * @typedef {object} Alignment
 * @property {number} common  The number of messages and branches that all rollouts begin with.
 * @property {Row[]} rows  What comes after those.
 */

/**
 * Return what was said as a text: equal texts for equal messages, whatever ids and times they have.
 * @param {Said} said
 * @returns {string}
 */
export function whatWasSaid(said) {
  if (isBranch(said)) {
    const { kind, name, replaced } = said.conversation;
    return JSON.stringify([kind, name, replaced, said.said.map(whatWasSaid)]);
  }
  return whatAMessageSays(said);
}

/** @param {Utterance} utterance */
function whatAMessageSays(utterance) {
  const calls = (utterance.calls ?? []).map((call) => [call.name, call.arguments]);
  const { role, is_error: isError, cut } = utterance;
  return JSON.stringify([role, Boolean(isError), utterance.text.trim(), utterance.reasoning ?? "", calls, cut || 0]);
}

/**
 * Return the turn of each message: 0 for the prompt, then the number of the generation that it is of or follows.
 * @param {Said[]} conversation
 * @returns {number[]}
 */
export function turnsOf(conversation) {
  const hasSpans = conversation.some((each) => !isBranch(each) && each.role === "assistant" && each.span_id);
  let turn = 0;
  /** @type {Utterance | null} */
  let before = null;
  return conversation.map((utterance) => {
    if (isBranch(utterance)) return turn;
    const isGenerated = utterance.role === "assistant" && (!hasSpans || Boolean(utterance.span_id));
    const goesOn = before !== null && before.role === "assistant" && before.span_id === utterance.span_id;
    if (isGenerated && !goesOn) turn += 1;
    before = utterance;
    return turn;
  });
}

/**
 * Return the number of messages that all conversations begin with; one without any message doesn't count.
 * @param {string[][]} said
 * @returns {number}
 */
export function commonBeginning(said) {
  const [first, ...others] = said.filter((each) => each.length);
  if (!first || !others.length) return 0;
  let length = Math.min(first.length, ...others.map((each) => each.length));
  for (const each of others) {
    let at = 0;
    while (at < length && each[at] === first[at]) at += 1;
    length = at;
  }
  return length;
}

/**
 * Return the first message that two conversations don't have alike: its number from 1, its turn, and the branch that it is
 * in; null if they are alike.
 * @param {Said[]} one
 * @param {Said[]} other
 * @returns {{message: number, turn: number, branch: Conversation | null} | null}
 */
export function firstDifference(one, other) {
  const longest = Math.max(one.length, other.length);
  for (let index = 0; index < longest; index += 1) {
    if (index >= one.length || index >= other.length || whatWasSaid(one[index]) !== whatWasSaid(other[index])) {
      const longer = one.length > index ? one : other;
      const said = longer[index];
      const message = messagesIn(longer.slice(0, index)) + 1;
      return { message, turn: turnsOf(longer)[index], branch: isBranch(said) ? said.conversation : null };
    }
  }
  return null;
}

/**
 * Align conversations by turn.
 * @param {Said[][]} conversations
 * @returns {Alignment}
 */
export function align(conversations) {
  const said = conversations.map((each) => each.map(whatWasSaid));
  const common = commonBeginning(said);
  const turns = conversations.map(turnsOf);
  const last = Math.max(0, ...turns.map((each) => each.at(-1) ?? 0));
  /** @type {Row[]} */
  const rows = [];
  const at = conversations.map(() => common);
  for (let turn = 0; turn <= last; turn += 1) {
    /** @type {Map<string, number>} */
    const columns = new Map();
    const cells = conversations.map((conversation, column) => {
      const from = at[column];
      let to = from;
      while (to < conversation.length && turns[column][to] === turn) to += 1;
      if (to === from) return null;
      at[column] = to;
      const key = said[column].slice(from, to).join("\n");
      const sameAs = columns.get(key) ?? null;
      if (sameAs === null) columns.set(key, column);
      return { said: conversation.slice(from, to), from, sameAs };
    });
    if (cells.some(Boolean)) rows.push({ turn, cells });
  }
  return { common, rows };
}
