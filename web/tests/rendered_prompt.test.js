import assert from "node:assert/strict";
import { test } from "node:test";
import { renderedPrompt } from "../../otel_rollout/look/view/static/data/rendered_prompt.js";

const turn = (number, input, output, request = "a") => ({
  kind: "LLM",
  span_id: String(number),
  start_time: String(1_700_000_000_000_000_000n + BigInt(number)),
  attributes: {
    "rollout.request_id": request,
    "input.value": JSON.stringify(input),
    "output.value": JSON.stringify(output),
  },
});
const first = turn(1, { prompt_text: "<user>2 * 3?<assistant>" }, { response_text: "call" });
const second = turn(2, { prompt_text: "<tool>6<assistant>", prompt_ids_start: 9 }, { response_text: "It is 6." });
const other = turn(1, { prompt_text: "<user>Why?" }, { response_text: "So." }, "b");

test("The first turn's prompt is its text", () => {
  assert.deepEqual(renderedPrompt(first, [second, first]), { text: "<user>2 * 3?<assistant>", isWhole: true });
});

test("A later turn's prompt begins with the turns before it of the same conversation", () => {
  const text = "<user>2 * 3?<assistant>call<tool>6<assistant>";
  assert.deepEqual(renderedPrompt(second, [other, second, first]), { text, isWhole: true });
});

test("Without the turns before, or with one that is cut, there is the new part", () => {
  const part = { text: "<tool>6<assistant>", isWhole: false };
  assert.deepEqual(renderedPrompt(second, [second]), part);
  const cut = { ...first, attributes: { ...first.attributes, "output.value": '{"response_te' } };
  assert.deepEqual(renderedPrompt(second, [cut, second]), part);
});

test("A span without the text of its prompt has none", () => {
  assert.equal(renderedPrompt(turn(1, { prompt_ids: [1, 2] }, "text"), []), null);
  const withMessages = { ...first, attributes: { ...first.attributes, "gen_ai.input.messages": "[]" } };
  assert.equal(renderedPrompt(withMessages, []), null);
});
