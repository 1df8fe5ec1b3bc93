import assert from "node:assert/strict";
import { test } from "node:test";
import { boundedDifference, MOST_FOR_WORDS } from "../../otel_rollout/look/view/static/data/bounded_difference.js";

const never = () => assert.fail("compared");
const joined = (parts) => parts.map((part) => part.text).join("");

test("Words of short texts and lines of long ones are compared", () => {
  const changes = [{ value: "a " }, { value: "b", removed: true }, { value: "c", added: true }];
  const found = boundedDifference("a b", "a c", { words: () => changes, lines: never });
  assert.deepEqual(found[0], [
    { text: "a ", isChanged: false },
    { text: "b", isChanged: true },
  ]);
  assert.deepEqual(found[1][1], { text: "c", isChanged: true });
  const long = "x".repeat(MOST_FOR_WORDS);
  assert.equal(
    boundedDifference("a b", long, { words: never, lines: () => [{ value: long, added: true }] })[1].length,
    1,
  );
});

test("A comparison that is out of time, or too large, marks all but the common ends", () => {
  const found = boundedDifference("the cat sat", "the dog sat", { words: () => undefined, lines: never });
  assert.deepEqual(
    found.map((parts) => parts[1].text),
    ["cat", "dog"],
  );
  const large = "x".repeat(3_000_000);
  const [one, other] = boundedDifference(large, `${large}y`, { words: never, lines: never });
  assert.deepEqual([joined(one).length, joined(other).length, other[1].text], [3_000_000, 3_000_001, "y"]);
});

test("Equal texts have one part, unchanged", () => {
  assert.deepEqual(boundedDifference("same", "same", { words: never, lines: never })[0], [
    { text: "same", isChanged: false },
  ]);
});
