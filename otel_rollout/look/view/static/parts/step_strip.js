import { isExported } from "../data/client.js";
import { groupsBySteps, meanReward } from "../data/group_columns.js";
import { counted, decimal } from "../data/formats.js";
import { addressOf, groupRoute, inAddress, selectionOf } from "../data/router.js";
import { useEffect, useRef } from "../vendor/preact_hooks.js";
import { html } from "./html.js";

/** @import { GroupSummary } from "../data/types.d.ts" */

/** Pixels of the highest bar. */
const HIGHEST = 28;

/**
 * The same prompt at other steps: a bar for each, as high as its mean reward.
 *
 * @param {{here: GroupSummary, others: GroupSummary[]}} props
 */
export function StepStrip({ here, others }) {
  const groups = groupsBySteps(here, others);
  const current = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => current.current?.scrollIntoView({ block: "nearest", inline: "center" }), [here.step]);
  if (groups.length < 2) return null;
  const means = groups.map(meanReward);
  const known = means.filter((mean) => mean !== null);
  const lowest = Math.min(0, ...known);
  const range = Math.max(...known, lowest) - lowest || 1;
  return html`<nav class="step-strip" aria-label="this prompt at other steps">
    ${
      isExported()
        ? html`<span class="weak">This prompt by step</span>`
        : html`<a href=${addressOf({ page: "prompt", sample: inAddress(here.sample_index), ...selectionOf(here), query: {} })}>This prompt by step</a>`
    }
    <ol>
      ${groups.map((group, at) => {
        const mean = means[at];
        const isHere = group === here;
        const reward = mean === null ? "no reward" : `mean reward ${decimal(mean)}`;
        const words = `step ${group.step ?? "none"}: ${reward}, ${counted(group.rewards.length, "rollout")}`;
        return html`<li key=${`${group.step} ${group.run_id}`}>
          <a
            href=${addressOf(groupRoute(group))}
            ref=${isHere ? current : undefined}
            aria-current=${isHere ? "true" : undefined}
            aria-label=${words}
            title=${words}
          >
            <span class="bar-place"
              ><span
                class="bar"
                style=${{ height: `${mean === null ? 0 : Math.max(2, ((mean - lowest) / range) * HIGHEST)}px` }}
              ></span
            ></span>
            <span class="bar-step">${group.step ?? "–"}</span>
          </a>
        </li>`;
      })}
    </ol>
  </nav>`;
}
