import { html } from "../parts/html.js";
import { EmptyState } from "../parts/states.js";

/** @import { Route } from "../data/types.d.ts" */

/** @param {{route: Route}} props */
export function RunPage({ route }) {
  return html`<${EmptyState} title="Run">This page comes later: ${route.page}.</${EmptyState}>`;
}
