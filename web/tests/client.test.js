import assert from "node:assert/strict";
import { test } from "node:test";
import { asExported, exportedName } from "../../otel_rollout/look/view/static/data/client.js";

/** @param {Record<string, unknown>} fields @returns {any} */
const step = (fields) => ({ step: 7, validate: false, experiment_name: "a b", run_id: null, start_time: 1, ...fields });

test("an export has a step under the name of its newest experiment", () => {
  const steps = [step({}), step({ experiment_name: "later", start_time: 2 }), step({ validate: true })];
  const cases = {
    "step/7": "step/7?experiment=later",
    "step/7?experiment=a+b": "step/7?experiment=a+b",
    "step/7/group?validate=1&sample=x%2Fy": "step/7/group?validate=1&experiment=a+b&sample=x%2Fy",
    "step/7/group?sample=..%0A": "step/7/group?experiment=later&sample=..%0A",
    "findings?step=7": "findings?step=7&experiment=later",
    "step/8": "step/8",
    "step/7?experiment=other": "step/7?experiment=other",
    findings: "findings",
    "trajectory/ab": "trajectory/ab",
  };
  for (const [path, expected] of Object.entries(cases)) assert.equal(asExported(path, steps), expected);
});

test("a run of its own and steps without a number are found", () => {
  const steps = [step({ step: null, experiment_name: null }), step({ run_id: "r1" }), step({ run_id: "r2" })];
  assert.equal(asExported("step/none", steps), "step/none");
  assert.equal(asExported("step/7?run=r2", steps), "step/7?experiment=a+b&run=r2");
});

test("names of exported answers are those of files on any system", () => {
  assert.equal(exportedName("step/7?experiment=Ä b"), "step~2f7~3fexperiment~3d~c3~84~20b");
  assert.equal(exportedName("x".repeat(120)), "x".repeat(120));
  assert.equal(exportedName("x".repeat(121)), `${"x".repeat(80)}~d77cbbf2c7cf1f67`);
});
