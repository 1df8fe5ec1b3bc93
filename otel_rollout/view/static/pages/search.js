import { html } from "../parts/html.js";
import { EmptyState } from "../parts/states.js";

/** @import { Route } from "../data/types.d.ts" */

/** @param {{route: Route}} props */
export function SearchPage({ route }) {
  return html`<${EmptyState} title="Search">This page comes later: ${route.page}.</${EmptyState}>`;
}
