import assert from "node:assert/strict";
import { test } from "node:test";
import { addressAbove, addressOf, parseAddress, queryOf } from "../../otel_rollout/look/view/static/data/router.js";

const ADDRESSES = [
  "#/",
  "#/step/7",
  "#/step/none?validate=1",
  "#/step/7?validate=1&experiment=a+b&sort=-reward",
  "#/step/7/sample/123",
  "#/step/7/sample/a%2Fb%20c/rollout/2?experiment=x",
  "#/step/7/timeline",
  "#/trajectory/0123456789abcdef0123456789abcdef",
  "#/search?q=a%26b&step=3",
  "#/live",
];

test("an address that is read and written again is the same", () => {
  for (const address of ADDRESSES) assert.equal(addressOf(parseAddress(address)), address);
});

test("a prompt's name with a slash is one part of an address", () => {
  const route = parseAddress("#/step/7/sample/a%2Fb/rollout/0");
  assert.deepEqual([route.page, route.sample, route.rollout], ["trajectory", "a/b", "0"]);
});

test("an address that isn't one leads to the unknown page", () => {
  for (const address of ["#/nothing", "#/step", "#/step/7/sample", "#/step/7/x", "#/trajectory", "#/%E0%A4%A"]) {
    assert.equal(parseAddress(address).page, "unknown");
  }
});

test("up leads from a trajectory to its group, its step, the run", () => {
  const way = [];
  for (let at = "#/step/7/sample/1/rollout/2?validate=1"; at;) {
    way.push(at);
    at = addressAbove(parseAddress(at)) ?? "";
  }
  assert.deepEqual(way, [
    "#/step/7/sample/1/rollout/2?validate=1",
    "#/step/7/sample/1?validate=1",
    "#/step/7?validate=1",
    "#/",
  ]);
});

test("empty values are left out of an address", () => {
  assert.equal(queryOf({ a: "", b: null, c: undefined, d: 0 }), "?d=0");
});
