import { diffLines } from "../vendor/diff/diff/line.js";
import { diffWordsWithSpace } from "../vendor/diff/diff/word.js";
import { boundedDifference } from "./bounded_difference.js";
import { argumentsText } from "./conversation.js";

/** @import { Diff, Part } from "./bounded_difference.js" */
/** @import { Item } from "./conversation.js" */
/** @import { Differences } from "../parts/message.js" */

const DIFF = /** @type {{words: Diff, lines: Diff}} */ (
  /** @type {unknown} */ ({ words: diffWordsWithSpace, lines: diffLines })
);

/**
 * Return the changed parts of the messages of two cells; a message is compared with the one in its place.
 *
 * @param {Item[]} left
 * @param {Item[]} right
 * @returns {[Differences[], Differences[]]}
 */
export function messageDifferences(left, right) {
  /** @type {[Differences[], Differences[]]} */
  const found = [left.map(() => ({ cards: [] })), right.map(() => ({ cards: [] }))];
  for (let at = 0; at < Math.max(left.length, right.length); at += 1) {
    const [one, other] = [left[at], right[at]];
    const [here, there] = [found[0][at], found[1][at]];
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
  return found;
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
