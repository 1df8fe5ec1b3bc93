import { html } from "../parts/html.js";
import { EmptyState } from "../parts/states.js";

/** @import { Route } from "../data/types.d.ts" */

/** @param {{route: Route}} props */
export function LivePage({ route }) {
  return html`<${EmptyState} title="Live">This page comes later: ${route.page}.</${EmptyState}>`;
}
