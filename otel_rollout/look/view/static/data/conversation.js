import { isBranch } from "./branches.js";

/** @import { Branch, Said } from "./branches.js" */
/** @import { ToolCall, Utterance } from "./types.d.ts" */

/**
 * A call of a tool and its result; null for a result without a call, and for a call without a result.
 * @typedef {{call: ToolCall | null, result: Utterance | null}} Card
 */

/**
 * A message and the tools that it called.
 * @typedef {object} Item
 * @property {Utterance} utterance
 * @property {number} index its position in the conversation
 * @property {Card[]} cards
 */

/** @typedef {Item | {branch: Branch, index: number}} Entry */

/**
 * Put the results of tools beside their calls: by the call's id, else by the tool's name, else in order.
 *
 * @param {Said[]} conversation
 * @param {number} [from] the position of the first of them
 * @returns {Entry[]}
 */
export function pairCalls(conversation, from = 0) {
  /** @type {Entry[]} */
  const items = [];
  /** @type {Card[]} */
  let open = [];
  conversation.forEach((utterance, position) => {
    const index = from + position;
    if (isBranch(utterance)) {
      items.push({ branch: utterance, index });
      return;
    }
    if (utterance.role === "tool") {
      const card =
        open.find(({ call }) => call?.call_id && call.call_id === utterance.call_id) ??
        open.find(({ call }) => utterance.name && call?.name === utterance.name) ??
        open[0];
      if (card) {
        card.result = utterance;
        open = open.filter((each) => each !== card);
      } else
        items.push({
          utterance,
          index,
          cards: [{ call: utterance.calls[0] ?? null, result: utterance }],
        });
      return;
    }
    open = utterance.calls.map((call) => ({ call, result: null }));
    items.push({ utterance, index, cards: [...open] });
  });
  return items;
}

/**
 * A line of a chat: a message with its tools, or the head of a conversation.
 *
 * @typedef {object} Line
 * @property {string} key
 * @property {number} depth the number of branches that it is in
 * @property {Item | null} item
 * @property {Branch | null} branch
 */

/**
 * Return the lines of a chat; of a branch that isn't open, only its head.
 *
 * @param {Said[]} said
 * @param {Set<number>} open the ids of the open ones
 * @returns {Line[]}
 */
export function linesOf(said, open) {
  /** @type {Line[]} */
  const lines = [];
  /** @param {Said[]} part @param {string} above @param {number} depth */
  const add = (part, above, depth) => {
    for (const entry of pairCalls(part)) {
      const key = `${above}${entry.index}`;
      if ("branch" in entry) {
        const { branch } = entry;
        lines.push({ key, depth, item: null, branch });
        if (open.has(branch.conversation.id)) add(branch.said, `${key}.`, depth + 1);
      } else lines.push({ key, depth, item: entry, branch: null });
    }
  };
  add(said, "", 0);
  return lines;
}

/**
 * Return, for each span that said something in a branch, the ids of the branches around it.
 *
 * @param {Said[]} said
 * @returns {Map<string, number[]>}
 */
export function branchesAround(said) {
  /** @type {Map<string, number[]>} */
  const found = new Map();
  /** @param {Said[]} part @param {number[]} around */
  const add = (part, around) => {
    for (const each of part) {
      if (isBranch(each)) add(each.said, [...around, each.conversation.id]);
      else if (each.span_id !== null && around.length && !found.has(each.span_id)) found.set(each.span_id, around);
    }
  };
  add(said, []);
  return found;
}

/**
 * Return the messages that are in an item.
 *
 * @param {Item} item
 * @returns {Utterance[]}
 */
export function messagesOf({ utterance, cards }) {
  const results = cards.map(({ result }) => result).filter((result) => result !== null);
  return results.includes(utterance) ? results : [utterance, ...results];
}

/**
 * Return a value as indented JSON; a text that is JSON of an object or a list as well, another text as it is.
 *
 * @param {unknown} value
 * @returns {string}
 */
export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "";
  if (!/^\s*[[{]/.test(value)) return value;
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}

/** Arguments of a call up to which each stands in a line of its own. */
const MOST_LINES = 8;

/**
 * Return if a call's arguments are few plain values by name.
 *
 * @param {unknown} value
 * @returns {value is Record<string, string | number | boolean | null>}
 */
export function isPlain(value) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const values = Object.values(value);
  return (
    values.length > 0 &&
    values.length <= MOST_LINES &&
    values.every((each) => typeof each !== "object" || each === null)
  );
}

/**
 * Return a call's arguments as a text: a line for each if they are plain, else JSON.
 *
 * @param {unknown} value
 */
export function argumentsText(value) {
  if (!isPlain(value)) return pretty(value);
  return Object.entries(value)
    .map(([key, each]) => `${key} ${typeof each === "string" ? each : JSON.stringify(each)}`)
    .join("\n");
}

/**
 * Return a text in pieces that a browser lays out one by one, cut at ends of lines where there are any.
 *
 * @param {string} text
 * @param {number} size characters of a piece
 * @returns {string[]}
 */
export function pieces(text, size) {
  const found = [];
  for (let at = 0; at < text.length;) {
    const end = at + size;
    const line = end < text.length ? text.lastIndexOf("\n", end) : -1;
    const to = line > at ? line + 1 : end;
    found.push(text.slice(at, to));
    at = to;
  }
  return found;
}
