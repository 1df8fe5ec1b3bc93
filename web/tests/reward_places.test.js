import assert from "node:assert/strict";
import { test } from "node:test";
import { rewardPlaces } from "../../otel_rollout/look/view/static/data/reward_places.js";

/** @param {number[]} rewards */
function placesOf(...rewards) {
  return rewardPlaces(rewards.map((reward, at) => ({ trace_id: `00${(at * 0x1111).toString(16)}`.slice(-4), reward })));
}

test("equal rewards are spread around theirs, and never as far as the next", () => {
  const { places, areSpread } = placesOf(0, 0, 0.9, 0.9, 1, 1);
  assert.equal(areSpread, true);
  assert.equal(new Set(places).size, 6);
  [0, 0, 0.9, 0.9, 1, 1].forEach((reward, at) => assert.ok(Math.abs(places[at] - reward) <= 0.03));
});

test("a reward that no other trajectory has stands at its place", () => {
  const { places, areSpread } = placesOf(0.1, 0.25, 0.75);
  assert.deepEqual([places, areSpread], [[0.1, 0.25, 0.75], false]);
});

test("an axis names the rewards that there are if they are few and apart, and round numbers otherwise", () => {
  assert.deepEqual(placesOf(1, 1, 1).names, [1]);
  assert.deepEqual(placesOf(1, 0, 0.5, 0).names, [0, 0.5, 1]);
  assert.equal(placesOf(1, 2, 3, 4, 5, 6).names, null);
  assert.equal(placesOf(0, 0.95, 1).names, null);
});

test("all places are in the range, though all rewards are equal", () => {
  for (const { places, range } of [placesOf(1, 1, 1), placesOf(0, 0, 1), placesOf(-2, 7), placesOf()]) {
    assert.ok(range[0] < range[1]);
    assert.ok(places.every((place) => range[0] < place && place < range[1]));
  }
});
