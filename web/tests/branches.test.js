import assert from "node:assert/strict";
import { test } from "node:test";
import { align, firstDifference, turnsOf } from "../../otel_rollout/look/view/static/data/alignment.js";
import {
  conversationCounts,
  conversationNames,
  isBranch,
  messagesIn,
  withBranches,
} from "../../otel_rollout/look/view/static/data/branches.js";
import { branchesAround, linesOf } from "../../otel_rollout/look/view/static/data/conversation.js";

const part = (id, kind, parent, more = {}) => ({ id, kind, parent, name: "", turns: [], replaced: null, ...more });
const says = (conversation, text, more = {}) => ({
  role: "assistant",
  text,
  calls: [],
  name: "",
  call_id: "",
  span_id: null,
  conversation,
  ...more,
});

const tree = [
  part(1, "main", null),
  part(2, "subagent", 1, { name: "reader" }),
  part(3, "subagent", 1, { name: "reader" }),
  part(4, "subagent", 3, { name: "clerk" }),
  part(5, "compacted", 1, { replaced: 3 }),
  part(6, "fork", 5),
];
const call = { name: "read", arguments: {}, call_id: "1" };
const told = [
  says(1, "asks", { calls: [call], span_id: "m1" }),
  says(2, "reads", { span_id: "a1" }),
  says(3, "reads too", { span_id: "b1" }),
  says(4, "files", { span_id: "c1" }),
  says(2, "has read", { span_id: "a2" }),
  says(1, "it says so", { role: "tool", call_id: "1", span_id: "t1" }),
  says(1, "answers", { span_id: "m2" }),
  says(5, "goes on", { span_id: "m3" }),
  says(6, "goes elsewhere", { span_id: "f1" }),
];
const outline = (said) => said.map((each) => (isBranch(each) ? [each.conversation.id, outline(each.said)] : each.text));

test("A sub-agent or a fork is one block in its parent's chat, though others speak meanwhile; a compaction is a line", () => {
  assert.deepEqual(outline(withBranches(told, tree)), [
    "asks",
    [2, ["reads", "has read"]],
    [3, ["reads too", [4, ["files"]]]],
    "it says so",
    "answers",
    [5, []],
    "goes on",
    [6, ["goes elsewhere"]],
  ]);
  assert.equal(messagesIn(withBranches(told, tree)), told.length);
});

test("One conversation alone, or none, is its messages; what belongs to no known conversation is main's", () => {
  assert.equal(withBranches(told, []), told);
  assert.equal(withBranches(told, [tree[0]]), told);
  const [first, second] = [says(1, "a"), says(9, "b")];
  assert.deepEqual(withBranches([first, second], tree), [first, second]);
});

test("Parents that are each other's children lose no message", () => {
  const circle = [part(1, "subagent", 2), part(2, "subagent", 1)];
  assert.equal(messagesIn(withBranches([says(1, "a"), says(2, "b"), says(1, "c")], circle)), 3);
});

test("A folded chat has the heads of its branches, and a tool's result beside its call around them", () => {
  const said = withBranches(told, tree);
  const shown = (open) =>
    linesOf(said, new Set(open)).map(({ branch, item, depth }) => [
      depth,
      branch ? branch.conversation.id : item.utterance.text,
    ]);
  assert.deepEqual(shown([]), [
    [0, "asks"],
    [0, 2],
    [0, 3],
    [0, "answers"],
    [0, 5],
    [0, "goes on"],
    [0, 6],
  ]);
  assert.deepEqual(shown([3, 4]).slice(3, 6), [
    [1, "reads too"],
    [1, 4],
    [2, "files"],
  ]);
  const [first] = linesOf(said, new Set());
  assert.equal(first.item.cards[0].result.text, "it says so");
  const keys = linesOf(said, new Set([2, 3, 4, 6])).map(({ key }) => key);
  assert.equal(new Set(keys).size, keys.length);
});

test("The branches around a span are those to unfold", () => {
  const around = branchesAround(withBranches(told, tree));
  assert.deepEqual(around.get("c1"), [3, 4]);
  assert.equal(around.has("m1"), false);
});

test("Conversations are named by what they are, sub-agents by their name, with a number where several have one", () => {
  assert.deepEqual(
    [...conversationNames(tree).values()],
    ["main", "reader 1", "reader 2", "clerk", "compacted", "fork"],
  );
  assert.deepEqual([...conversationNames([part(1, "subagent", null)]).values()], ["sub-agent"]);
});

test("Only kinds of conversations that there are are counted", () => {
  const none = { forks: 0, compactions: 1, user_turns: null };
  assert.deepEqual(conversationCounts({ ...none, subagents: 2 }), ["2 sub-agents", "1 compaction"]);
  assert.deepEqual(conversationCounts({ ...none, subagents: 0, user_turns: 1 }), [
    "1 compaction",
    "1 turn of a simulated user",
  ]);
});

test("A branch is in the turn that called it, and its turns are none of main's", () => {
  assert.deepEqual(turnsOf(withBranches(told, tree)), [1, 1, 1, 1, 2, 2, 3, 3]);
});

test("Rollouts are aligned by main's turns; a difference inside a sub-agent is the first difference", () => {
  const other = told.map((each) => (each.text === "has read" ? { ...each, text: "has not read" } : each));
  const [one, two] = [told, other].map((each) => withBranches(each, tree));
  const { common, rows } = align([one, two]);
  assert.equal(common, 1);
  assert.deepEqual(
    rows.map(({ turn, cells }) => [turn, cells[1].sameAs]),
    [
      [1, null],
      [2, 0],
      [3, 0],
    ],
  );
  const found = firstDifference(one, two);
  assert.deepEqual([found.turn, found.message, found.branch.name], [1, 2, "reader"]);
});
