import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bytes,
  capitalized,
  compact,
  counted,
  decimal,
  duration,
  percent,
  shortClass,
  signed,
  tenth,
  tick,
  timeOnAxis,
  visible,
} from "../../otel_rollout/look/view/static/data/formats.js";

test("amounts have at most five characters", () => {
  const values = [0, 7, 3.25, 950, 9999, 12_345, 999_499, 999_500, 4_120_000, 2.5e9];
  assert.deepEqual(values.map(compact), ["0", "7", "3.3", "950", "9,999", "12.3k", "999k", "1.0M", "4.1M", "2.5G"]);
});

test("what is unknown is empty", () => {
  for (const format of [bytes, compact, decimal, duration, percent, tenth, tick]) assert.equal(format(null), "");
});

test("rewards have three decimals, whole ones none", () => {
  assert.deepEqual([1, 0, -1, 0.5, -0.12345, 123.456, 1e-7].map(decimal), [
    "1",
    "0",
    "−1",
    "0.500",
    "−0.123",
    "123.5",
    "1.0e-7",
  ]);
});

test("advantages have the sign of a plus, too", () => {
  assert.deepEqual([0.5, -0.5, 0, null].map(signed), ["+0.500", "−0.500", "0", ""]);
});

test("only none is 0% and only all is 100%", () => {
  assert.deepEqual([0, 0.0001, 0.004, 0.12, 0.996, 0.9999, 1].map(percent), [
    "0%",
    "<0.1%",
    "0.4%",
    "12%",
    "99.6%",
    ">99.9%",
    "100%",
  ]);
});

test("durations go from milliseconds to hours", () => {
  const values = [0, 0.0021, 0.05, 0.5, 12.34, 99.95, 185, 3599.9, 7440];
  assert.deepEqual(values.map(duration), [
    "0 s",
    "2.1 ms",
    "50 ms",
    "0.50 s",
    "12.3 s",
    "1m 40s",
    "3m 05s",
    "1h 00m",
    "2h 04m",
  ]);
});

test("times of an axis differ from the next one", () => {
  /** @param {number} from @param {number} every */
  const axis = (from, every) => Array.from({ length: 3 }, (_, at) => timeOnAxis(from + at * every, every));
  assert.deepEqual(axis(0, 50e-6), ["0", "50 µs", "100 µs"]);
  assert.deepEqual(axis(150e-6, 50e-6), ["150 µs", "200 µs", "250 µs"]);
  assert.deepEqual(axis(0.8e-3, 0.1e-3), ["800 µs", "900 µs", "1.0 ms"]);
  assert.deepEqual(axis(1.0502, 0.0001), ["1.0502 s", "1.0503 s", "1.0504 s"]);
  assert.deepEqual(axis(20, 20), ["20 s", "40 s", "1m 00s"]);
  assert.deepEqual(axis(59.5, 0.5), ["59.5 s", "1m 00.0s", "1m 00.5s"]);
  assert.deepEqual(axis(3600, 1200), ["1h 00m", "1h 20m", "1h 40m"]);
});

test("sizes, means, ticks, nouns and classes", () => {
  assert.deepEqual([512, 1500, 653_000_000].map(bytes), ["512 B", "1.5 kB", "653 MB"]);
  assert.deepEqual([3, 3.64, 0.04].map(tenth), ["3", "3.6", "0"]);
  assert.deepEqual([0.30000000000000004, 2, -1].map(tick), ["0.3", "2", "−1"]);
  assert.deepEqual([counted(1, "group"), counted(1200, "group")], ["1 group", "1,200 groups"]);
  assert.deepEqual(["a.b.TimeoutError", "ValueError", "ends."].map(shortClass), [
    "TimeoutError",
    "ValueError",
    "ends.",
  ]);
});

test("characters that hide are shown, others stay", () => {
  assert.equal(visible("a\u202eb\u0000c\u{e0041}"), "a‹U+202E›b‹U+0000›c‹U+E0041›");
  assert.equal(visible("tab\tline\né 漢 👩‍🔬"), "tab\tline\né 漢 👩‍🔬");
  assert.equal(visible(null), "");
});

test("a sentence begins with a capital letter, a path stays", () => {
  assert.equal(capitalized("there is no step"), "There is no step");
  assert.deepEqual(["/traces is empty", ""].map(capitalized), ["/traces is empty", ""]);
});
