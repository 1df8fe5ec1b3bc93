import { html } from "../parts/html.js";
import { EmptyState } from "../parts/states.js";

/** @import { Route } from "../data/types.d.ts" */

/** @param {{route: Route}} props */
export function StepPage({ route }) {
  return html`<${EmptyState} title="Step">This page comes later: ${route.page}.</${EmptyState}>`;
}
