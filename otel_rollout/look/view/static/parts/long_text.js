import { pieces } from "../data/conversation.js";
import { visible, whole } from "../data/formats.js";
import { useState } from "../vendor/preact_hooks.js";
import { html } from "./html.js";

/** @import { Part } from "../data/bounded_difference.js" */

/** Characters that are shown before "show all". */
const FIRST = 4000;
/** Characters of a piece of a long text; the browser lays out the pieces that are in view. */
const PIECE = 20_000;

/**
 * A text that a model or a tool wrote: its beginning, and all of it on demand.
 *
 * @param {object} props
 * @param {string} props.text
 * @param {Part[]} [props.parts] the text in parts, of which the changed ones are marked
 * @param {number | null} [props.cut] characters that the server left out
 * @param {(() => void) | null} [props.onMore] shows what the server left out
 * @param {number} [props.first] characters that are shown first
 */
export function LongText({ text, parts, cut, onMore, first = FIRST }) {
  const [isWhole, setWhole] = useState(false);
  const isLong = text.length > first * 1.2;
  const shown = isLong && !isWhole ? text.slice(0, first) : text;
  return html`<div class="long-text">
    ${parts ? html`<${Marked} parts=${parts} length=${shown.length} />` : html`<${Pieces} text=${shown} />`}
    ${
      isLong || cut
        ? html`<p class="more">
            ${
              isLong
                ? html`<button
                    type="button"
                    class="link"
                    aria-expanded=${isWhole}
                    onClick=${() => setWhole(!isWhole)}
                  >
                    ${isWhole ? "Show less" : `Show all ${whole(text.length)} characters`}
                  </button>`
                : null
            }
            ${cut ? html`<${Cut} cut=${cut} onMore=${onMore} />` : null}
          </p>`
        : null
    }
  </div>`;
}

/** @param {{text: string}} props */
function Pieces({ text }) {
  if (text.length <= PIECE) return html`<div class="said">${visible(text)}</div>`;
  return html`<div class="said">
    ${pieces(text, PIECE).map((piece, at) => html`<div key=${at} class="piece">${visible(piece)}</div>`)}
  </div>`;
}

/** @param {{parts: Part[], length: number}} props */
function Marked({ parts, length }) {
  let left = length;
  const nodes = [];
  for (const [at, { text, isChanged }] of parts.entries()) {
    if (left <= 0) break;
    const shown = visible(text.slice(0, left));
    left -= text.length;
    nodes.push(isChanged ? html`<mark key=${at} class="differs">${shown}</mark>` : shown);
  }
  return html`<div class="said">${nodes}</div>`;
}

/** @param {{cut: number, onMore?: (() => void) | null}} props */
function Cut({ cut, onMore }) {
  const words = `${whole(cut)} characters more`;
  if (!onMore) return html`<span class="weak">… ${words}</span>`;
  return html`<button type="button" class="link" onClick=${onMore}>
    … ${words}
  </button>`;
}
