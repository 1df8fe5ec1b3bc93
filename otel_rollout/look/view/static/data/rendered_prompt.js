/** @import { Span } from "./types.d.ts" */

/**
 * The prompt of a generation as the engine got it, after the chat template, if its text was recorded.
 *
 * A span with messages has none: there `prompt_text` is the beginning of the last message.
 * A turn of verl records the new part of its prompt; the rest is the text of the turns before.
 *
 * @param {Span} span
 * @param {Span[]} spans all spans of the trajectory
 * @returns {{text: string, isWhole: boolean} | null} `isWhole`: false if the turns before are not known
 */
export function renderedPrompt(span, spans) {
  const own = textsOf(span);
  if (span.kind !== "LLM" || "gen_ai.input.messages" in span.attributes || own.prompt === null) return null;
  if (!own.start) return { text: own.prompt, isWhole: true };
  const request = span.attributes["rollout.request_id"];
  const before = spans
    .filter((each) => each.span_id !== span.span_id && each.attributes["rollout.request_id"] === request)
    .filter((each) => BigInt(each.start_time) < BigInt(span.start_time))
    .sort((one, other) => (BigInt(one.start_time) < BigInt(other.start_time) ? -1 : 1))
    .map(textsOf);
  const first = before.findLastIndex(({ prompt, start }) => prompt !== null && !start);
  const turns = before.slice(Math.max(0, first));
  if (request === undefined || first < 0 || turns.some(({ prompt, response }) => prompt === null || response === null))
    return { text: own.prompt, isWhole: false };
  return { text: turns.map(({ prompt, response }) => `${prompt}${response}`).join("") + own.prompt, isWhole: true };
}

/** @param {Span} span */
function textsOf({ attributes }) {
  const [given, said] = ["input.value", "output.value"].map((key) => objectOf(attributes[key]));
  const [prompt, response] = [said.prompt_text ?? given.prompt_text, said.response_text];
  return {
    prompt: typeof prompt === "string" ? prompt : null,
    response: typeof response === "string" ? response : null,
    start: Number(given.prompt_ids_start ?? 0),
  };
}

/**
 * The object in a payload; an empty one if it holds another value, or is cut.
 *
 * @param {unknown} text
 * @returns {Record<string, unknown>}
 */
export function objectOf(text) {
  if (typeof text !== "string" || !text.startsWith("{")) return {};
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
