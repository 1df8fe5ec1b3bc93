// The picture of a trajectory's conversations: a lane for each, turns as dots in their order, forks and joins as lines.

/** @import { Conversation } from "./types.d.ts" */

/**
 * @typedef {object} Lane
 * @property {Conversation} conversation
 * @property {number} depth the number of conversations that it comes from, one after another
 * @property {number} y
 * @property {string} line a path from its first turn to its last
 * @property {string} dots a path with a point for each turn
 * @property {number} end the place of its last turn
 */

/**
 * @typedef {object} Lanes
 * @property {Lane[]} lanes
 * @property {{path: string, kind: "fork" | "subagent" | "compacted" | "user" | "join"}[]} edges
 * @property {number} width
 * @property {number} height
 */

/**
 * Return conversations with those that come from each below it, and how far they are indented.
 *
 * @param {Conversation[]} conversations
 * @returns {{conversation: Conversation, depth: number}[]}
 */
export function inOrderOfLanes(conversations) {
  /** @type {Map<number | null, Conversation[]>} */
  const below = new Map();
  for (const each of conversations) below.set(each.parent, [...(below.get(each.parent) ?? []), each]);
  /** @type {{conversation: Conversation, depth: number}[]} */
  const found = [];
  /** @param {number | null} parent @param {number} depth */
  const add = (parent, depth) => {
    for (const conversation of below.get(parent) ?? []) {
      found.push({ conversation, depth });
      add(conversation.id, depth + 1);
    }
  };
  add(null, 0);
  return found;
}

/**
 * Return the number of turns that conversations have together.
 *
 * @param {Conversation[]} conversations
 */
export function turnCount(conversations) {
  return conversations.reduce((most, { turns }) => Math.max(most, turns.at(-1) ?? 0), 0);
}

/**
 * Lay out the lanes of conversations.
 *
 * @param {Conversation[]} conversations
 * @param {{across: number, down: number}} step the pixels from a turn to the next, and from a lane to the next
 * @returns {Lanes}
 */
export function layOutLanes(conversations, { across, down }) {
  const xOf = (/** @type {number} */ turn) => rounded((turn - 0.5) * across);
  const ordered = inOrderOfLanes(conversations);
  const lanes = ordered.map(({ conversation, depth }, at) => {
    const { turns } = conversation;
    const y = rounded((at + 0.5) * down);
    const [start, end] = [xOf(turns[0] ?? 0.5), xOf(turns.at(-1) ?? 0.5)];
    return {
      conversation,
      depth,
      y,
      line: `M${start} ${y}H${end}`,
      dots: turns.map((turn) => `M${xOf(turn)} ${y}h0`).join(""),
      end,
    };
  });
  /** @type {Lanes["edges"]} */
  const edges = [];
  const bend = Math.min(across, down) / 2;
  for (const { conversation, y, end } of lanes) {
    const { kind, parent, parent_turn: from, joined_turn: to, turns } = conversation;
    const above = lanes.find((each) => each.conversation.id === parent);
    if (!above || kind === "main" || !turns.length) continue;
    const first = xOf(turns[0]);
    if (from !== null || kind === "fork") {
      // A fork that shares only the prompt parts before its parent's first turn.
      const start = xOf(from ?? above.conversation.turns[0]);
      const x = from === null ? rounded(start - across / 3) : start;
      const path =
        first - x < bend
          ? `M${x} ${above.y}L${first} ${y}`
          : `M${start} ${above.y}H${x}V${rounded(y - bend)}Q${x} ${y} ${rounded(x + bend)} ${y}H${first}`;
      edges.push({ path, kind });
    }
    if (to !== null) {
      const x = xOf(to);
      const path =
        x - end < bend
          ? `M${end} ${y}L${x} ${above.y}`
          : `M${end} ${y}H${rounded(x - bend)}Q${x} ${y} ${x} ${rounded(y - bend)}V${above.y}`;
      edges.push({ path, kind: "join" });
    }
  }
  return { lanes, edges, width: rounded(turnCount(conversations) * across), height: ordered.length * down };
}

/**
 * Return the turn of a conversation that is nearest to a turn of the trajectory.
 *
 * @param {Conversation} conversation
 * @param {number} turn may lie between two
 * @returns {number | null}
 */
export function nearestTurn({ turns }, turn) {
  let low = 0;
  let high = turns.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (turns[middle] < turn) low = middle + 1;
    else high = middle;
  }
  const [before, after] = [turns[low - 1], turns[low]];
  if (before === undefined || after === undefined) return before ?? after ?? null;
  return turn - before <= after - turn ? before : after;
}

/** @param {number} value */
function rounded(value) {
  return Math.round(value * 100) / 100;
}
