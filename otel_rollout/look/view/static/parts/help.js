import { useEffect, useRef } from "../vendor/preact_hooks.js";
import { html } from "./html.js";
import { activeKeys } from "./keys.js";

/**
 * The dialog of the keys that work on this page.
 *
 * @param {{onClose: () => void}} props
 */
export function HelpDialog({ onClose }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => dialog.current?.showModal(), []);
  return html`<dialog
    ref=${dialog}
    class="help"
    aria-labelledby="help-title"
    onClose=${onClose}
  >
    <h2 id="help-title">Keys</h2>
    <dl>
      ${activeKeys().map(
        ({ key, does }) =>
          html`<div key=${key}>
            <dt><kbd>${key}</kbd></dt>
            <dd>${does}</dd>
          </div>`,
      )}
    </dl>
    <form method="dialog"><button>Close</button></form>
  </dialog>`;
}
