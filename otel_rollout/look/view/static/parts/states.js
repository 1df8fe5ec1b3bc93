import { capitalized } from "../data/formats.js";
import { html } from "./html.js";
import { withCode } from "./with_code.js";

/**
 * An error that a person reads.
 *
 * @param {{error: Error}} props
 */
export function ErrorState({ error }) {
  return html`<div class="state state-error" role="alert">
    <h2>This can't be shown</h2>
    <p>${withCode(capitalized(error.message))}</p>
    <p>
      <button type="button" onClick=${() => location.reload()}>
        Try again
      </button>
      <a href="#/">All steps</a>
    </p>
  </div>`;
}

/**
 * A place with nothing in it, and what would be there.
 *
 * @param {{title: string, children?: unknown}} props
 */
export function EmptyState({ title, children }) {
  return html`<div class="state">
    <h2>${title}</h2>
    ${children && html`<p>${children}</p>`}
  </div>`;
}

/**
 * A place whose data are on their way. It is announced late, so that quick answers don't flicker.
 *
 * @param {{children?: unknown, done?: number, total?: number}} props
 */
export function LoadingState({ children = "Reading …", done, total }) {
  return html`<div class="state state-loading" role="status">
    <p>${children}</p>
    ${total ? html`<progress aria-label="progress" value=${done ?? 0} max=${total}></progress>` : null}
  </div>`;
}
