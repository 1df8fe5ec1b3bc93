import assert from "node:assert/strict";
import { test } from "node:test";
import { layOutWaterfall } from "../../otel_rollout/look/view/static/data/waterfall.js";

const START = 1795368938060251591n;
const span = (id, parent, start, end) => ({
  span_id: id,
  parent_id: parent,
  start_time: String(START + BigInt(start)),
  end_time: String(START + BigInt(end)),
});

test("Children are below their parent by start, with bars in parts of the whole time", () => {
  const { rows, seconds } = layOutWaterfall([
    span("late", "root", 600e6, 1000e6),
    span("root", null, 0, 1000e6),
    span("early", "root", 0, 500e6),
    span("inner", "early", 250e6, 500e6),
  ]);
  assert.equal(seconds, 1);
  assert.deepEqual(
    rows.map((row) => [row.span.span_id, row.depth]),
    [
      ["root", 0],
      ["early", 1],
      ["inner", 2],
      ["late", 1],
    ],
  );
  assert.deepEqual([rows[2].left, rows[2].width], [0.25, 0.25]);
});

test("What comes after the root is at the edge, and lengthens nothing", () => {
  const { rows, seconds } = layOutWaterfall([
    span("root", null, 0, 100),
    span("turn", "root", 50, 100),
    span("annotate", "root", 60_000, 60_000),
  ]);
  assert.equal(seconds, layOutWaterfall([span("root", null, 0, 100)]).seconds);
  assert.deepEqual([rows[1].left, rows[1].width], [0.5, 0.5]);
  assert.deepEqual([rows[2].left, rows[2].width], [0.995, 0]);
});

test("A span without its parent, and spans that are each other's parents, are shown once", () => {
  const { rows } = layOutWaterfall([span("a", "b", 0, 5), span("b", "a", 1, 5), span("lone", "gone", 2, 5)]);
  assert.deepEqual(rows.map((row) => row.span.span_id).sort(), ["a", "b", "lone"]);
});

test("100,000 spans under one root, and a chain of 20,000, are laid out", () => {
  const flat = Array.from({ length: 100_000 }, (_, n) => span(`s${n}`, n ? "s0" : null, n, n + 1));
  const chain = Array.from({ length: 20_000 }, (_, n) => span(`s${n}`, n ? `s${n - 1}` : null, n, 20_000));
  assert.equal(layOutWaterfall(flat).rows.length, 100_000);
  assert.equal(layOutWaterfall(chain).rows[19_999].depth, 19_999);
});

test("No spans, and spans without a duration, have places", () => {
  assert.deepEqual(layOutWaterfall([]), { rows: [], seconds: 0 });
  assert.deepEqual(
    layOutWaterfall([span("a", null, 0, 0)]).rows.map((row) => [row.left, row.width]),
    [[0, 1]],
  );
});
