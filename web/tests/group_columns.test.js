import assert from "node:assert/strict";
import { test } from "node:test";
import {
  columnsApart,
  differencesFrom,
  groupsBySteps,
  meanReward,
  namesOf,
  orderRollouts,
} from "../../otel_rollout/look/view/static/data/group_columns.js";
import { showCommand } from "../../otel_rollout/look/view/static/data/show_command.js";

const rollout = (number, more = {}) => ({
  summary: { rollout_n: number, reward: null, output_tokens: null, turns: null, start_time: 0, end_time: 0, ...more },
  said: [],
});

test("Rollouts are sorted by an amount, the highest first; those without it are last, and ties keep their order", () => {
  const all = [rollout(0), rollout(1, { reward: 0 }), rollout(2, { reward: 1 }), rollout(3, { reward: 1 })];
  const order = (by) => orderRollouts(all, by).map((each) => each.summary.rollout_n);
  assert.deepEqual(order("reward"), [2, 3, 1, 0]);
  assert.deepEqual(order("rollout"), [0, 1, 2, 3]);
  assert.deepEqual(order("constructor"), [0, 1, 2, 3]);
});

test("A rollout is named by its number, with its place if two have the same", () => {
  assert.deepEqual([...namesOf([rollout(4), rollout(null)]).values()], ["4", "none"]);
  assert.deepEqual([...namesOf([rollout(4), rollout(4)]).values()], ["4 (1)", "4 (2)"]);
});

test("The mean reward is of the known ones", () => {
  assert.equal(meanReward({ rewards: [1, null, 0] }), 0.5);
  assert.equal(meanReward({ rewards: [null] }), null);
});

test("A prompt's groups are in the order of steps, this one once", () => {
  const at = (step) => ({ step, run_id: null, experiment_name: "a" });
  const here = at(3);
  const found = groupsBySteps(here, [at(10), at(3), at(1)]);
  assert.deepEqual(
    found.map((group) => group.step),
    [1, 3, 10],
  );
  assert.equal(found[1], here);
});

test("The command names the folder if there is one, quoted for a shell", () => {
  assert.equal(showCommand({ trace_id: "ab" }, ["it's here"]), "otel-rollout show 'it'\\''s here' --trace ab --chat");
  assert.equal(showCommand({ trace_id: "ab" }, ["/a/b", "/c"]), "otel-rollout show --trace ab --chat");
});

test("The few columns that say something else than most are named; none if there is no majority, or if they are many", () => {
  const same = { sameAs: 0 };
  const own = { sameAs: null };
  const [all, ended] = [[0, 1, 2, 3, 4], null];
  assert.deepEqual(columnsApart([own, same, same, own, same], all), [3]);
  assert.deepEqual(columnsApart([own, own, { sameAs: 1 }, { sameAs: 1 }, ended], all), [0, 4]);
  assert.deepEqual(columnsApart([own, own, same], [0, 1]), []);
  assert.deepEqual(columnsApart([own, own, own], [0, 1, 2]), []);
  const nine = [own, same, same, same, same, own, own, own, own];
  assert.deepEqual(columnsApart(nine, [0, 1, 2, 3, 4, 5, 6, 7, 8]), []);
});

test("The turns in which others differ from a rollout stand in order, with those that say the same at the end", () => {
  const said = (...texts) => ({
    ...rollout(0),
    said: texts.map((text, turn) => ({
      role: turn ? "assistant" : "user",
      text,
      calls: [],
      span_id: turn ? String(turn) : null,
    })),
  });
  const one = said("how much?", "a", "b");
  const [same, late, early, short] = [
    said("how much?", "a", "b"),
    said("how much?", "a", "c"),
    said("how far?"),
    said("how much?", "a"),
  ];
  assert.deepEqual(differencesFrom(one, [same, late, one, early, short]), [
    { turn: 0, rollouts: [early] },
    { turn: 2, rollouts: [late, short] },
    { turn: null, rollouts: [same] },
  ]);
});
