import { isExported, paths } from "../data/client.js";
import { whole } from "../data/formats.js";
import { openCounts } from "../data/step_figures.js";
import { html } from "./html.js";
import { usePolled } from "./use_polled.js";

/** @import { OpenAnswer, StepSummary } from "../data/types.d.ts" */

const MILLISECONDS_BETWEEN = 4000;
const MEANING = "They were running when their process ended, or stopped giving signs of life";

/**
 * The way to the page Live with the number of open trajectories; nothing if there is none.
 *
 * @param {{step?: StepSummary}} props `step`: only its own
 */
export function RunningLink({ step }) {
  return isExported() ? null : html`<${Link} step=${step} />`;
}

/** @param {{step?: StepSummary}} props */
function Link({ step }) {
  const { data } = usePolled(paths.open(), MILLISECONDS_BETWEEN);
  const { open, left } = openCounts(/** @type {OpenAnswer | undefined} */ (data), step);
  if (!open) return null;
  return html`<a class="running ${open > left ? "live" : "warning"}" href="#/live" title=${left ? MEANING : "What runs now"}>
    ${open > left ? html`<span aria-hidden="true">●</span> ${whole(open - left)} running` : null}${
      left ? `${open > left ? ", " : "⚠ "}${whole(left)} left open` : null
    }
  </a>`;
}
