import { html } from "../parts/html.js";
import { EmptyState } from "../parts/states.js";

/** @import { Route } from "../data/types.d.ts" */

/** @param {{route: Route}} props */
export function GroupPage({ route }) {
  return html`<${EmptyState} title="Group">This page comes later: ${route.page}.</${EmptyState}>`;
}
