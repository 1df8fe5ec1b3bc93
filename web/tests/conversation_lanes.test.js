import assert from "node:assert/strict";
import { test } from "node:test";
import {
  inOrderOfLanes,
  layOutLanes,
  nearestTurn,
  turnCount,
} from "../../otel_rollout/look/view/static/data/conversation_lanes.js";

const part = (id, kind, parent, turns, more = {}) => ({
  id,
  kind,
  parent,
  turns,
  parent_turn: null,
  joined_turn: null,
  ...more,
});
const tree = [
  part(1, "main", null, [1, 5]),
  part(2, "subagent", 1, [2, 4], { parent_turn: 1, joined_turn: 5 }),
  part(3, "compacted", 1, [6], { parent_turn: 5 }),
  part(4, "subagent", 2, [3], { parent_turn: 2, joined_turn: 4 }),
];

test("Each conversation is a lane, below the one that it comes from", () => {
  assert.deepEqual(
    inOrderOfLanes(tree).map(({ conversation, depth }) => [conversation.id, depth]),
    [
      [1, 0],
      [2, 1],
      [4, 2],
      [3, 1],
    ],
  );
  assert.equal(turnCount(tree), 6);
});

test("A turn is a dot at its number, a line leads from the calling turn to the first, and from the last to the join", () => {
  const { lanes, edges, width, height } = layOutLanes(tree, { across: 10, down: 20 });
  assert.deepEqual([width, height], [60, 80]);
  assert.equal(lanes[0].dots, "M5 10h0M45 10h0");
  assert.equal(lanes[1].line, "M15 30H35");
  assert.deepEqual(
    edges.map(({ kind }) => kind),
    ["subagent", "join", "subagent", "join", "compacted"],
  );
  assert.match(edges[0].path, /^M5 10H5V25Q5 30 10 30H15$/);
  assert.match(edges[1].path, /^M35 30H40Q45 30 45 25V10$/);
});

test("A fork that shares only the prompt parts before its parent's first turn", () => {
  const [edge] = layOutLanes([part(1, "main", null, [1]), part(2, "fork", 1, [2])], { across: 9, down: 9 }).edges;
  assert.match(edge.path, /^M4.5 4.5H1.5V/);
});

test("Very many turns have the width that they are given", () => {
  const turns = Array.from({ length: 100_000 }, (_, at) => at + 1);
  assert.equal(Math.round(layOutLanes([part(1, "main", null, turns)], { across: 0.01, down: 20 }).width), 1000);
});

test("The nearest turn of a lane is found, also before its first and after its last", () => {
  const near = (turn) => nearestTurn({ turns: [2, 4, 9] }, turn);
  assert.deepEqual([0, 2, 2.9, 3.1, 6, 8, 100].map(near), [2, 2, 2, 4, 4, 9, 9]);
  assert.equal(nearestTurn({ turns: [] }, 1), null);
});
