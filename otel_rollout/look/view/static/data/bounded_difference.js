// The difference of two texts, in bounded time: by words, by lines if they are long, else all but their common ends.

/**
 * A part of a text; it is changed if the other text doesn't have it.
 * @typedef {{text: string, isChanged: boolean}} Part
 * @typedef {{value: string, added?: boolean, removed?: boolean}} Change
 * @typedef {(one: string, other: string, options: {timeout: number}) => Change[] | undefined} Diff
 */

/** Characters of both texts up to which words are compared. */
export const MOST_FOR_WORDS = 20_000;
/** Characters of both texts up to which lines are compared. */
export const MOST_FOR_LINES = 2_000_000;
/** Milliseconds for one difference. */
export const TIME_LIMIT = 60;

/**
 * Return both texts in parts.
 * @param {string} one
 * @param {string} other
 * @param {{words: Diff, lines: Diff}} diff
 * @returns {[Part[], Part[]]}
 */
export function boundedDifference(one, other, diff) {
  if (one === other) return [partsOf([[one, false]]), partsOf([[other, false]])];
  const size = one.length + other.length;
  const options = { timeout: TIME_LIMIT };
  let changes;
  if (size <= MOST_FOR_WORDS) changes = diff.words(one, other, options);
  else if (size <= MOST_FOR_LINES) changes = diff.lines(one, other, options);
  if (!changes) return withoutCommonEnds(one, other);
  /** @type {[string, boolean][]} */
  const left = [];
  /** @type {[string, boolean][]} */
  const right = [];
  for (const { value, added, removed } of changes) {
    if (!added) left.push([value, Boolean(removed)]);
    if (!removed) right.push([value, Boolean(added)]);
  }
  return [partsOf(left), partsOf(right)];
}

/**
 * @param {string} one
 * @param {string} other
 * @returns {[Part[], Part[]]}
 */
function withoutCommonEnds(one, other) {
  const most = Math.min(one.length, other.length);
  let before = 0;
  while (before < most && one[before] === other[before]) before += 1;
  let after = 0;
  while (after < most - before && one[one.length - 1 - after] === other[other.length - 1 - after]) after += 1;
  /** @param {string} text */
  const cut = (text) =>
    partsOf([
      [text.slice(0, before), false],
      [text.slice(before, text.length - after), true],
      [text.slice(text.length - after), false],
    ]);
  return [cut(one), cut(other)];
}

/**
 * Return parts without empty ones, neighbours of the same kind as one.
 * @param {[string, boolean][]} pieces
 * @returns {Part[]}
 */
function partsOf(pieces) {
  /** @type {Part[]} */
  const parts = [];
  for (const [text, isChanged] of pieces) {
    const last = parts[parts.length - 1];
    if (!text) continue;
    if (last && last.isChanged === isChanged) last.text += text;
    else parts.push({ text, isChanged });
  }
  return parts;
}
