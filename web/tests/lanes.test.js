import assert from "node:assert/strict";
import { test } from "node:test";
import {
  activities,
  orderLanes,
  panBy,
  segmentAt,
  stragglersOf,
  ticks,
  visibleLanes,
  zoomAt,
} from "../../otel_rollout/look/view/static/data/lanes.js";

const names = ["generate", "search"];
const lane = (id, start, end, segments = []) => ({
  trace_id: id,
  sample_index: 0,
  rollout_n: 0,
  status: "completed",
  reward: null,
  start,
  end,
  segments,
});
const whole = { from: 0, to: 1_000_000 };

test("Only the lanes of the window are visible, whatever their number", () => {
  assert.deepEqual(visibleLanes(0, 100, 10, 16_384), [0, 10]);
  assert.deepEqual(visibleLanes(163_835, 100, 10, 16_384), [16_383, 16_384]);
  assert.deepEqual(visibleLanes(55, 10, 10, 3), [3, 3]);
});

test("Lanes are ordered by their latest end, their start, the longest duration and the best reward", () => {
  const lanes = [{ ...lane("a", 0, 5), reward: 1 }, lane("b", 1, 9), { ...lane("c", 2, 4), reward: 3 }];
  assert.deepEqual(orderLanes(lanes, "end"), [1, 0, 2]);
  assert.deepEqual(orderLanes(lanes, "start"), [0, 1, 2]);
  assert.deepEqual(orderLanes(lanes, "duration"), [1, 0, 2]);
  assert.deepEqual(orderLanes(lanes, "reward"), [2, 0, 1]);
});

test("What is under the pointer stays there while the time is zoomed, and the view stays inside the step", () => {
  const near = zoomAt(whole, 4, 0.25, whole);
  assert.equal(near.from + (near.to - near.from) * 0.25, 250_000);
  assert.deepEqual(zoomAt(near, 1e-9, 0.5, whole), whole);
  assert.equal(zoomAt(whole, 1e12, 0.5, whole).to - zoomAt(whole, 1e12, 0.5, whole).from, 1000);
  assert.deepEqual(panBy({ from: 0, to: 100_000 }, -3, whole), { from: 0, to: 100_000 });
  assert.deepEqual(panBy({ from: 0, to: 100_000 }, 0.5, whole), { from: 50_000, to: 150_000 });
});

test("The innermost segment is under the pointer, and a short one within the slack", () => {
  const one = lane("a", 0, 100, [0, 0, 100, 0, 1, 1, 40, 1, 1, 2]);
  assert.equal(segmentAt(one, names, 40.5, 0)?.name, "search");
  assert.equal(segmentAt(one, names, 41.5, 0)?.name, "generate");
  assert.equal(segmentAt(lane("b", 0, 100, [1, 40, 1, 1, 2]), names, 43, 3)?.isError, true);
  assert.equal(segmentAt(lane("b", 0, 100, [1, 40, 1, 1, 2]), names, 60, 3), null);
});

test("A lane's time is its innermost segments' and the waiting between them, each moment once", () => {
  const one = lane("a", 0, 100, [3, 0, 100, 0, 0, 0, 10, 40, 0, 0, 1, 20, 10, 1, 0]);
  const found = Object.fromEntries(
    [...activities(one, names, { from: 0, to: 100 }).values()].map((each) => [each.name, each.time]),
  );
  assert.deepEqual(found, { "": 60, generate: 30, search: 10 });
});

test("The last 5% are those that ended after the others, with what they did meanwhile", () => {
  const lanes = Array.from({ length: 40 }, (_, n) =>
    lane(`t${n}`, 0, n < 38 ? 10 + n / 100 : 100, n < 38 ? [] : [1, 0, 90, 1, 0]),
  );
  const late = stragglersOf(lanes, names);
  assert.deepEqual([late?.count, late?.total, late?.until], [2, 40, 100]);
  assert.deepEqual([late?.did[0].name, late?.did[1].kind], ["search", 4]);
  assert.equal(stragglersOf([lane("a", 0, 5)], names), null);
  assert.equal(stragglersOf([lane("a", 0, 5), lane("b", 0, 5)], names), null);
});

test("An axis has round times inside the view", () => {
  assert.deepEqual(ticks({ from: 0, to: 1_000_000 }, 5), [0, 200_000, 400_000, 600_000, 800_000, 1_000_000]);
  assert.deepEqual(ticks({ from: 120, to: 480 }, 4), [200, 300, 400]);
});
