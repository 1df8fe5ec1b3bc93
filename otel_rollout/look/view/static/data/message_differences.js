import { diffLines } from "../vendor/diff/diff/line.js";
import { diffWordsWithSpace } from "../vendor/diff/diff/word.js";
import { boundedDifference } from "./bounded_difference.js";
import { argumentsText, pairCalls } from "./conversation.js";

/** @import { Diff, Part } from "./bounded_difference.js" */
/** @import { Entry, Item } from "./conversation.js" */
/** @import { Differences } from "../parts/message.js" */

const DIFF = /** @type {{words: Diff, lines: Diff}} */ (
  /** @type {unknown} */ ({ words: diffWordsWithSpace, lines: diffLines })
);

/**
 * Return the changed parts of the messages of two cells; a message is compared with the one in its place among messages, a
 * branch with the one in its place among branches.
 *
 * @param {Entry[]} left
 * @param {Entry[]} right
 * @returns {[Differences[], Differences[]]}
 */
export function messageDifferences(left, right) {
  /** @type {[Differences[], Differences[]]} */
  const found = [left.map(() => ({ cards: [] })), right.map(() => ({ cards: [] }))];
  const [ours, theirs] = [left, right].map((entries) => ({
    items: entries.flatMap((entry, at) => ("branch" in entry ? [] : [{ item: entry, at }])),
    branches: entries.flatMap((entry, at) => ("branch" in entry ? [{ branch: entry.branch, at }] : [])),
  }));
  for (let nth = 0; nth < Math.max(ours.items.length, theirs.items.length); nth += 1) {
    const [one, other] = [ours.items[nth], theirs.items[nth]];
    compareItems(one?.item, other?.item, found[0][one?.at], found[1][other?.at]);
  }
  for (let nth = 0; nth < Math.max(ours.branches.length, theirs.branches.length); nth += 1) {
    const [one, other] = [ours.branches[nth], theirs.branches[nth]];
    const inside = messageDifferences(pairCalls(one?.branch.said ?? []), pairCalls(other?.branch.said ?? []));
    if (one) found[0][one.at].inside = inside[0];
    if (other) found[1][other.at].inside = inside[1];
  }
  return found;
}

/**
 * @param {Item | undefined} one
 * @param {Item | undefined} other
 * @param {Differences | undefined} here
 * @param {Differences | undefined} there
 */
function compareItems(one, other, here, there) {
  const texts = compare(one?.utterance.text, other?.utterance.text);
  if (here) here.text = texts[0];
  if (there) there.text = texts[1];
  const cards = Math.max(one?.cards.length ?? 0, other?.cards.length ?? 0);
  for (let card = 0; card < cards; card += 1) {
    const [mine, theirs] = [one?.cards[card], other?.cards[card]];
    const asked = compare(argumentsOf(mine), argumentsOf(theirs));
    const given = compare(mine?.result?.text, theirs?.result?.text);
    if (here && mine) here.cards[card] = { arguments: asked[0], result: given[0] };
    if (there && theirs) there.cards[card] = { arguments: asked[1], result: given[1] };
  }
}

/** @param {import("./conversation.js").Card | undefined} card */
function argumentsOf(card) {
  return card?.call ? argumentsText(card.call.arguments) : undefined;
}

/**
 * @param {string | undefined} one
 * @param {string | undefined} other
 * @returns {[Part[] | undefined, Part[] | undefined]}
 */
function compare(one, other) {
  if (one === undefined || other === undefined) {
    const whole = (/** @type {string | undefined} */ text) => (text ? [{ text, isChanged: true }] : undefined);
    return [whole(one), whole(other)];
  }
  return boundedDifference(one, other, DIFF);
}
