import assert from "node:assert/strict";
import { test } from "node:test";
import { rewardClass, rewardLevel } from "../../otel_rollout/look/view/static/data/reward_scale.js";
import { groupTest, histogram, rolloutsOf, rolloutTest } from "../../otel_rollout/look/view/static/data/rollouts.js";

const STEP = /** @type {any} */ ({ reward_lowest: 0, reward_highest: 1 });
const COLUMNS = ["trace_id", "status", "has_root", "reward", "tool_errors", "fate", "prompt", "answer"];
const ROLLOUTS = rolloutsOf({
  columns: COLUMNS,
  rows: [
    ["a", "completed", true, 1, 0, "trained", "How much?", "Four"],
    ["b", "truncated", true, 0, 1, "filtered", "How much?", "It is"],
    ["c", "error", true, null, 0, null, "How far?", ""],
    ["d", null, false, null, 0, null, "How far?", ""],
    ["e", "completed", true, 0.5, 2, "trained", "How far?", "FIVE"],
  ],
});

/** @param {object} filter */
function found(filter) {
  return ROLLOUTS.filter(rolloutTest(filter, STEP))
    .map(({ trace_id }) => trace_id)
    .join("");
}

test("each field of a filter narrows the trajectories", () => {
  assert.equal(found({}), "abcde");
  assert.equal(found({ q: " fi " }), "e");
  assert.equal(found({ status: "truncated", reward: "known" }), "b");
  assert.equal(found({ status: "open" }), "d");
  assert.equal(found({ reward: "none" }), "cd");
  assert.equal(found({ reward: "best" }), "a");
  assert.equal(found({ reward: "worst" }), "b");
  assert.equal(found({ tools: "errors" }), "be");
  assert.equal(found({ fate: "trained" }), "ae");
});

test("a range has its lowest reward, and its highest only if that is the step's or the only one", () => {
  assert.equal(found({ from: "0", to: "0.5" }), "b");
  assert.equal(found({ from: "0.5", to: "1" }), "ae");
  assert.equal(found({ from: "0.5", to: "0.5" }), "e");
});

test("a group is found by its signal and by what one of its trajectories has", () => {
  const groups = /** @type {any[]} */ ([
    { trace_ids: ["a", "b"], zero_variance: null },
    { trace_ids: ["c", "e"], zero_variance: "best" },
  ]);
  const test = (/** @type {object} */ filter) =>
    groups.filter(groupTest(filter, STEP, ROLLOUTS)).map(({ trace_ids }) => trace_ids.join(""));
  assert.deepEqual(test({}), ["ab", "ce"]);
  assert.deepEqual(test({ signal: "none" }), ["ce"]);
  assert.deepEqual(test({ signal: "some" }), ["ab"]);
  assert.deepEqual(test({ status: "error" }), ["ce"]);
  assert.deepEqual(test({ status: "error", signal: "some" }), []);
});

test("a few different rewards have a bar each, many have ranges, and none is lost", () => {
  assert.deepEqual(histogram([1, 0, null, 1], 20), [
    { from: 0, to: 0, count: 1 },
    { from: 1, to: 1, count: 2 },
  ]);
  const many = histogram(
    Array.from({ length: 101 }, (_, index) => index / 100),
    20,
  );
  assert.equal(many.length, 20);
  assert.equal(
    many.reduce((sum, { count }) => sum + count, 0),
    101,
  );
  assert.deepEqual([many[0].from, many[19].to], [0, 1]);
  assert.deepEqual(histogram([null], 20), []);
});

test("colors go from the step's lowest reward to its highest", () => {
  assert.deepEqual(
    [-1, 0, 1].map((reward) => rewardLevel(reward, -1, 1)),
    [0, 3, 6],
  );
  assert.deepEqual(
    [0, 0.5, 1].map((reward) => rewardLevel(reward, reward, reward)),
    [0, 3, 6],
  );
  assert.equal(rewardClass(null, 0, 1), "reward-none");
});
