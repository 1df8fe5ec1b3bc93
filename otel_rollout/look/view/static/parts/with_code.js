import { html } from "./html.js";

/**
 * A sentence of ours, with its parts between backticks as code.
 *
 * @param {string} text
 */
export function withCode(text) {
  return text.split("`").map((part, position) => (position % 2 ? html`<code>${part}</code>` : part));
}
