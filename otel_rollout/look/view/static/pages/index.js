import { html } from "../parts/html.js";
import { EmptyState } from "../parts/states.js";
import { GroupPage } from "./group.js";
import { LivePage } from "./live.js";
import { PromptPage } from "./prompt.js";
import { RunPage } from "./run.js";
import { SearchPage } from "./search.js";
import { StepPage } from "./step.js";
import { TimelinePage } from "./timeline.js";
import { TrajectoryPage } from "./trajectory.js";

/** @import { PageName, Route } from "../data/types.d.ts" */

/**
 * The component of each page; it gets the route that the browser shows.
 *
 * @type {Record<PageName, (props: {route: Route}) => any>}
 */
export const PAGES = {
  run: RunPage,
  step: StepPage,
  group: GroupPage,
  trajectory: TrajectoryPage,
  timeline: TimelinePage,
  prompt: PromptPage,
  search: SearchPage,
  live: LivePage,
  unknown: UnknownPage,
};

function UnknownPage() {
  return html`<${EmptyState} title="There is no such page"><a href="#/">All steps</a></${EmptyState}>`;
}
