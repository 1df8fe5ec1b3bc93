import { whole } from "../data/formats.js";
import { useState } from "../vendor/preact_hooks.js";
import { CopyButton } from "./copy_button.js";
import { html } from "./html.js";

/** Ids that are shown before "show all". */
const FIRST = 512;

/**
 * The ids of generated tokens; their text stands above them.
 *
 * @param {{ids: number[], marked?: number | null}} props `marked`: the position of one that is shown as broken
 */
export function TokenIds({ ids, marked = null }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? ids : ids.slice(0, FIRST);
  return html`<details class="token-ids">
    <summary>${whole(ids.length)} token ids</summary>
    <p class="ids">
      ${
        marked === null || marked >= shown.length
          ? shown.join(" ")
          : html`${shown.slice(0, marked).join(" ")}
              <mark class="broken">${shown[marked]}</mark>
              ${shown.slice(marked + 1).join(" ")}`
      }
    </p>
    <p class="more">
      ${
        ids.length > FIRST
          ? html`<button
              type="button"
              class="link"
              onClick=${() => setWhole(!isWhole)}
            >
              ${isWhole ? "Show less" : `Show all ${whole(ids.length)}`}
            </button>`
          : null
      }
      <${CopyButton} text=${() => JSON.stringify(ids)}>Copy ids</${CopyButton}>
    </p>
  </details>`;
}
