import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "../../otel_rollout/look/view/static/data/client.js";

test("an answer that still holds is kept, with the folders' new version", async () => {
  const before = { version: "a", mark: "m", rows: [1] };
  /** @type {string[]} */
  const asked = [];
  /** @type {any[]} */
  const answers = [
    { version: "b", mark: "m" },
    { version: "c", mark: "n", rows: [2] },
  ];
  /** @type {any} */ (globalThis).window = {};
  /** @type {any} */ (globalThis).fetch = async (/** @type {string} */ address) => {
    asked.push(address);
    return { ok: true, json: async () => answers.shift() };
  };
  assert.equal(await load("step/1?run=r", { before }), before);
  assert.equal(before.version, "b");
  assert.deepEqual(await load("step/1", { before }), { version: "c", mark: "n", rows: [2] });
  assert.deepEqual(asked, ["api/step/1?run=r&known=m", "api/step/1?known=m"]);
});

test("an answer whose lists are sent as changes is that of the last one with them", async () => {
  const before = { mark: "m", rows: [["a"], ["b"], ["c"]], groups: [1] };
  const changes = {
    rows: { order: [1, [0, 1], [2, 3], 2], added: [["x"], ["y"], ["z"]] },
    groups: { order: [0], added: [] },
  };
  /** @type {any} */ (globalThis).window = {};
  /** @type {any} */ (globalThis).fetch = async () => ({ ok: true, json: async () => ({ mark: "n", changes }) });
  assert.deepEqual(await load("step/1", { before }), {
    mark: "n",
    rows: [["x"], ["a"], ["c"], ["y"], ["z"]],
    groups: [],
  });
});
