import { html } from "./html.js";

/**
 * A few choices beside each other, each an address.
 *
 * @param {{label: string, options: {text: unknown, address: string, isChosen: boolean}[]}} props
 */
export function Segments({ label, options }) {
  return html`<nav class="segments" aria-label=${label}>
    ${options.map(
      ({ text, address, isChosen }) =>
        html`<a
          key=${address}
          href=${address}
          aria-current=${isChosen ? "true" : undefined}
          >${text}</a
        >`,
    )}
  </nav>`;
}
