import assert from "node:assert/strict";
import { test } from "node:test";
import { messagesOf, pairCalls, pieces, pretty } from "../../otel_rollout/look/view/static/data/conversation.js";

const call = (name, id = null) => ({ name, arguments: {}, call_id: id });
const asks = (...calls) => ({ role: "assistant", text: "", calls, name: "", call_id: "" });
const result = (text, name = "", id = "") => ({ role: "tool", text, calls: [], name, call_id: id });

test("A result is beside its call: by id, else by name, else in order", () => {
  const [item] = pairCalls([asks(call("a", "1"), call("b", "2")), result("of b", "", "2"), result("of a", "", "1")]);
  assert.deepEqual(
    item.cards.map((card) => card.result?.text),
    ["of a", "of b"],
  );
  const [named] = pairCalls([asks(call("a"), call("b")), result("of b", "b"), result("of a", "a")]);
  assert.deepEqual(
    named.cards.map((card) => card.result?.text),
    ["of a", "of b"],
  );
  const [ordered] = pairCalls([asks(call("a"), call("b")), result("first"), result("second")]);
  assert.deepEqual(
    ordered.cards.map((card) => card.result?.text),
    ["first", "second"],
  );
  assert.equal(messagesOf(ordered).length, 3);
});

test("A result without a call, and a call without a result, are kept", () => {
  const items = pairCalls([result("lone", "a"), asks(call("b"))], 5);
  assert.deepEqual(
    items.map((item) => [item.index, item.cards.length]),
    [
      [5, 1],
      [6, 1],
    ],
  );
  assert.equal(items[1].cards[0].result, null);
  assert.equal(messagesOf(items[0]).length, 1);
});

test("A result that no message asked for has the call of its own span", () => {
  const own = { ...result("lone", "a"), calls: [call("a")] };
  const [item] = pairCalls([own]);
  assert.deepEqual(item.cards, [{ call: own.calls[0], result: own }]);
});

test("JSON is indented, and what only looks like it is left as it is", () => {
  assert.equal(pretty('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(pretty("{not json"), "{not json");
  assert.equal(pretty("12"), "12");
  assert.equal(pretty(undefined), "");
});

test("A long text is cut at ends of lines, a single long line by size, and nothing is lost", () => {
  assert.deepEqual(pieces("ab\ncd\nef", 4), ["ab\n", "cd\n", "ef"]);
  assert.deepEqual(pieces("abcdef", 4), ["abcd", "ef"]);
  assert.equal(pieces("x".repeat(10_000), 7).join("").length, 10_000);
});
