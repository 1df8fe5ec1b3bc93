import assert from "node:assert/strict";
import { test } from "node:test";
import { stragglersOf } from "../../otel_rollout/look/view/static/data/lanes.js";
import { runningOf, withRunning } from "../../otel_rollout/look/view/static/data/running_lanes.js";
import { rememberSteps } from "../../otel_rollout/look/view/static/data/selection.js";

const START = 1_700_000_000_000_000_000;
const running = (id, more = {}) => ({
  trace_id: id,
  step: 4,
  sample_index: 7,
  rollout_n: 1,
  validate: false,
  experiment_name: "e",
  start_time: START + 2_000_000_000,
  seconds: 10,
  op: "search",
  op_kind: "TOOL",
  op_seconds: 3,
  is_alive: true,
  ...more,
});
const lane = (id, more = {}) => ({
  trace_id: id,
  sample_index: 7,
  rollout_n: 1,
  status: "completed",
  reward: 1,
  has_root: true,
  start: 0,
  end: 5_000_000,
  segments: [0, 1_000_000, 500_000, 0, 1],
  ...more,
});
const timeline = (lanes) => ({
  version: "1",
  start_time: String(START),
  end_time: String(START),
  names: ["generate"],
  lanes,
});

test("A trajectory that runs is a lane until now, with the op that it is in", () => {
  const { names, lanes } = withRunning(timeline([lane("a")]), [running("b")]);
  assert.deepEqual(names, ["generate", "search"]);
  assert.deepEqual(lanes[0], lane("a"));
  assert.equal(lanes[1].status, "running");
  assert.deepEqual([lanes[1].start, lanes[1].end], [2_000_000, 12_000_000]);
  assert.deepEqual(lanes[1].segments, [1, 9_000_000, 3_000_000, 1, 0]);
});

test("What is written of it stays, and between ops it waits", () => {
  const written = lane("a", { has_root: false, status: null, start: 2_000_000 });
  const [shown] = withRunning(timeline([written]), [running("a", { op: null, op_seconds: null })]).lanes;
  assert.deepEqual(shown, { ...written, status: "running", end: 12_000_000 });
});

test("A trajectory that began before those that are written moves them", () => {
  const { start_time, lanes } = withRunning(timeline([lane("a")]), [
    running("b", { start_time: START - 1_000_000_000 }),
  ]);
  assert.equal(Number(start_time), START - 1_000_000_000);
  assert.deepEqual(lanes[0], lane("a", { start: 1_000_000, end: 6_000_000, segments: [0, 2_000_000, 500_000, 0, 1] }));
  assert.equal(lanes[1].start, 0);
});

test("Where nothing is written yet, time begins with the first that runs", () => {
  const none = { ...timeline([]), start_time: "0" };
  assert.equal(withRunning(none, [running("b")]).lanes[0].start, 0);
});

test("A trajectory that has ended meanwhile stays as it is written", () => {
  const given = timeline([lane("a")]);
  assert.equal(withRunning(given, [running("a")]), given);
});

test("Only those of the step, of living processes and of the newest run are shown", () => {
  const step = { step: 4, validate: false, experiment_name: "e" };
  rememberSteps({
    steps: [
      { ...step, run_id: "old", start_time: 1 },
      { ...step, run_id: "new", start_time: 2 },
    ],
  });
  const all = [
    running("a"),
    running("b", { step: 5 }),
    running("c", { validate: true }),
    running("d", { experiment_name: "f" }),
    running("e", { is_alive: false }),
    running("f", { step: null }),
  ];
  const shown = (route) => runningOf(all, { page: "timeline", query: {}, ...route }).map((each) => each.trace_id);
  assert.deepEqual(shown({ step: "4" }), ["a"]);
  assert.deepEqual(shown({ step: "4", validate: true, experiment: "e" }), ["c"]);
  assert.deepEqual(shown({ step: "4", run: "old" }), []);
  assert.deepEqual(shown({ step: "none" }), ["f"]);
  rememberSteps({ steps: [] });
});

test("A step waits for those that run since the last of the others ended", () => {
  const { lanes, names } = withRunning(timeline([lane("a"), lane("b", { end: 3_000_000 })]), [
    running("c"),
    running("d"),
  ]);
  const { since, until, count, isRunning, did } = stragglersOf(lanes, names);
  assert.deepEqual([since, until, count, isRunning], [5_000_000, 12_000_000, 2, true]);
  assert.deepEqual(did[0], { kind: 4, name: "", time: 8_000_000 });
  assert.equal(stragglersOf(withRunning(timeline([]), [running("c"), running("d")]).lanes, names), null);
});
