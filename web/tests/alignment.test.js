import assert from "node:assert/strict";
import { test } from "node:test";
import { align, firstDifference, turnsOf, whatWasSaid } from "../../otel_rollout/look/view/static/data/alignment.js";

const says = (role, text, more = {}) => ({
  role,
  text,
  calls: [],
  name: "",
  call_id: "",
  span_id: null,
  turn: null,
  is_error: false,
  conversation: 1,
  reasoning: null,
  tokens: null,
  token_ids: null,
  cut: 0,
  ...more,
});
const prompt = [says("system", "Solve it."), says("user", "2 * 3?")];
const calls = (expression, span) =>
  says("assistant", "", { calls: [{ name: "calculator", arguments: { expression }, call_id: span }], span_id: span });
const result = (text) => says("tool", text, { name: "calculator" });
const answers = (text, span) => says("assistant", text, { span_id: span });

test("A message equals another with other ids and times, and differs by its arguments", () => {
  assert.equal(whatWasSaid(calls("2 * 3", "a")), whatWasSaid(calls("2 * 3", "b")));
  assert.notEqual(whatWasSaid(calls("2 * 3", "a")), whatWasSaid(calls("2 + 3", "a")));
  assert.notEqual(whatWasSaid(result("6")), whatWasSaid({ ...result("6"), is_error: true }));
});

test("A turn is a generation and what follows it; earlier answers of the prompt are part of the prompt", () => {
  const example = says("assistant", "An answer of the prompt.");
  assert.deepEqual(turnsOf([...prompt, example, calls("1", "a"), result("1"), answers("1", "b")]), [0, 0, 0, 1, 1, 2]);
  assert.deepEqual(turnsOf([...prompt, says("assistant", "without spans")]), [0, 0, 1]);
});

test("The messages that all rollouts begin with are counted, and each turn after them is a row", () => {
  const one = [...prompt, calls("2 * 3", "a"), result("6"), answers("6", "b")];
  const other = [...prompt, calls("2 * 3", "c"), result("five"), answers("5", "d")];
  const { common, rows } = align([one, other, []]);
  assert.equal(common, 3);
  assert.deepEqual(
    rows.map((row) => row.turn),
    [1, 2],
  );
  assert.deepEqual(
    rows[0].cells.map((cell) => cell?.said.map((each) => each.text)),
    [["6"], ["five"], undefined],
  );
  assert.equal(rows[0].cells[0]?.from, 3);
});

test("A cell names the earlier column that says the same", () => {
  const rollouts = ["5", "6", "5"].map((text, n) => [...prompt, answers(text, `s${n}`)]);
  assert.deepEqual(
    align(rollouts).rows[0].cells.map((cell) => cell?.sameAs),
    [null, null, 0],
  );
});

test("Rollouts that are all alike have no rows", () => {
  const one = [...prompt, answers("6", "a")];
  assert.deepEqual(align([one, one]), { common: 3, rows: [] });
});

test("A single rollout has all of its turns as rows", () => {
  assert.equal(align([[...prompt, answers("6", "a")]]).rows.length, 2);
});

test("Two conversations first differ at a message and its turn; the end of one is a difference", () => {
  const one = [...prompt, calls("2 * 3", "a"), result("6"), answers("6", "b")];
  assert.deepEqual(firstDifference(one, [...one.slice(0, 4), answers("five", "c")]), {
    message: 5,
    turn: 2,
    branch: null,
  });
  assert.deepEqual(firstDifference(one, one.slice(0, 3)), { message: 4, turn: 1, branch: null });
  assert.equal(firstDifference(one, one), null);
});
