import assert from "node:assert/strict";
import { test } from "node:test";
import { excerptParts, NO_RESULTS, withLine } from "../../otel_rollout/look/view/static/data/search_results.js";
import { parseSort, sorted, sortText } from "../../otel_rollout/look/view/static/data/sorting.js";
import {
  noSignalShare,
  seriesName,
  seriesOf,
  shortPaths,
} from "../../otel_rollout/look/view/static/data/step_figures.js";

test("unknown values come last either way, and equal ones keep their order", () => {
  const rows = [
    { name: "a", value: 2 },
    { name: "b", value: null },
    { name: "c", value: 10 },
    { name: "d", value: 2 },
  ];
  const names = (/** @type {boolean} */ isDescending) =>
    sorted(rows, (row) => row.value, isDescending)
      .map(({ name }) => name)
      .join("");
  assert.equal(names(false), "adcb");
  assert.equal(names(true), "cadb");
});

test("numbers in texts sort as numbers", () => {
  assert.deepEqual(
    sorted(["10", "9", "a"], (text) => text, false),
    ["9", "10", "a"],
  );
});

test("an order that is read and written again is the same", () => {
  for (const text of ["reward", "-reward"]) assert.equal(sortText(parseSort(text)), text);
  assert.equal(parseSort(undefined), null);
});

test("hits are collected until the last line", () => {
  const hit = /** @type {any} */ ({ excerpt: "x" });
  const lines = [
    { hit },
    { searched_bytes: 5, total_bytes: 9 },
    { hit },
    { done: true, searched_bytes: 9, hits: 2, is_cut: true },
  ];
  const results = /** @type {any[]} */ (lines).reduce(withLine, NO_RESULTS);
  assert.deepEqual([results.hits.length, results.isDone, results.isCut, results.searchedBytes], [2, true, true, 9]);
  assert.equal(withLine(NO_RESULTS, { error: "broken" }).error?.message, "broken");
});

test("a match is found behind characters that JavaScript counts twice", () => {
  assert.deepEqual(excerptParts(/** @type {any} */ ({ excerpt: "👩🔬 ab c", start: 3, end: 5 })), [
    "👩🔬 ",
    "ab",
    " c",
  ]);
});

test("experiments are series, the newest first, each by step", () => {
  const step = (/** @type {object} */ fields) =>
    /** @type {any} */ ({ run_id: null, validate: false, end_time: 0, ...fields });
  const [newest, other] = seriesOf([
    step({ experiment_name: "a", step: 2 }),
    step({ experiment_name: "a", step: 1 }),
    step({ experiment_name: "b", step: 1, end_time: 5 }),
    step({ experiment_name: "a", step: 2, validate: true }),
  ]);
  assert.equal(newest.key, "b");
  assert.deepEqual([other.training.map((each) => each.step), other.validation.length], [[1, 2], 1]);
});

test("groups without signal are a share of those that could have one", () => {
  assert.equal(noSignalShare(/** @type {any} */ ({ zero_variance: { best: 1, worst: 2 }, comparable_groups: 6 })), 0.5);
  assert.equal(noSignalShare(/** @type {any} */ ({ zero_variance: {}, comparable_groups: 0 })), null);
});

test("runs of an experiment are named by what their folders don't have alike, else by their ids", () => {
  const folders = { aaaaaaaaaaaa: "runs/one/traces", bbbbbbbbbbbb: "runs/two/traces" };
  const series = { key: "", experiment: "exp", run: "aaaaaaaaaaaa", training: [], validation: [] };
  assert.equal(seriesName(series, folders), "exp · one");
  assert.equal(seriesName(series), "exp · aaaaaaaa");
  assert.equal(seriesName({ ...series, run: null }, folders), "exp");
  assert.deepEqual([...shortPaths(["a", "a/a", "a/a/b"]).values()], ["a", "a/a", "a/a/b"]);
  assert.equal(shortPaths([]).size, 0);
  assert.deepEqual([...shortPaths(["/x/a", "/y/a/b"]).values()], ["x/a", "y/a/b"]);
});
