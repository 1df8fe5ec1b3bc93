import assert from "node:assert/strict";
import { test } from "node:test";
import { rememberSteps, rewardRange } from "../../otel_rollout/look/view/static/data/selection.js";

test("the range of a reward is that of its step, experiment and run", () => {
  const step = { step: 7, validate: false, experiment_name: "a", run_id: null, reward_lowest: -1, reward_highest: 0 };
  const other = { ...step, experiment_name: "b", run_id: "2", reward_lowest: 0.2, reward_highest: 0.5 };
  rememberSteps(/** @type {any} */ ({ steps: [step, { ...other, run_id: "1", reward_lowest: 0 }, other] }));
  assert.deepEqual(rewardRange({ step: 7, validate: false, experiment_name: "a", run_id: "2" }), {
    lowest: -1,
    highest: 0,
  });
  assert.equal(rewardRange({ step: 7, validate: false, experiment_name: "b", run_id: "2" }).lowest, 0.2);
  const unknown = { lowest: null, highest: null };
  assert.deepEqual(rewardRange({ step: 7, validate: true, experiment_name: "a" }), unknown);
  assert.deepEqual(rewardRange({ step: 8, validate: false, experiment_name: "a" }), unknown);
});
