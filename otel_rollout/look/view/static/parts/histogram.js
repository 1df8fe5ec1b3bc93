import { decimal, percentOf, tick, whole } from "../data/formats.js";
import { rewardLevel } from "../data/reward_scale.js";
import { histogram } from "../data/rollouts.js";
import { useMemo } from "../vendor/preact_hooks.js";
import { html } from "./html.js";

/** @import { Bar, Rollout } from "../data/rollouts.js" */

const BARS = 20;

/**
 * The rewards of a step in bars; a bar leads to its trajectories.
 *
 * @param {object} props
 * @param {Rollout[]} props.rollouts
 * @param {number | null} props.lowest the step's
 * @param {number | null} props.highest
 * @param {(bar: Bar) => string} props.addressOf
 */
export function RewardHistogram({ rollouts, lowest, highest, addressOf }) {
  const bars = useMemo(
    () =>
      histogram(
        rollouts.map(({ reward }) => reward),
        BARS,
      ),
    [rollouts],
  );
  const most = Math.max(...bars.map(({ count }) => count), 1);
  const known = bars.reduce((sum, { count }) => sum + count, 0);
  const isExact = bars.every(({ from, to }) => from === to);
  return html`<figure class="chart">
    <figcaption>
      <span class="chart-title">Rewards</span>
      <span class="chart-values">
        <span>${whole(known)} known</span>
        ${rollouts.length > known ? html`<span>${whole(rollouts.length - known)} without</span>` : null}
      </span>
    </figcaption>
    <div class="bars">
      ${bars.map((bar) => {
        const range = isExact ? decimal(bar.from) : `${decimal(bar.from)} to ${decimal(bar.to)}`;
        const words = `reward ${range}: ${whole(bar.count)} (${percentOf(bar.count, known)})`;
        const level = rewardLevel((bar.from + bar.to) / 2, lowest, highest);
        return html`<a
          key=${bar.from}
          class="histogram-bar"
          href=${addressOf(bar)}
          title=${words}>
          <span class="hidden-label">${words}</span>
          <div class="bar-track" aria-hidden="true">
            ${isExact ? html`<b>${whole(bar.count)}</b>` : null}
            <i
              class="reward-${level}"
              style=${{ height: `calc((100% - 1.3rem) * ${bar.count / most} + ${bar.count ? 1 : 0}px)` }}
            ></i>
          </div>
          ${isExact ? html`<span aria-hidden="true">${tick(bar.from)}</span>` : null}
        </a>`;
      })}
    </div>
    ${isExact ? null : html`<p class="bars-ends"><span>${tick(lowest)}</span><span>${tick(highest)}</span></p>`}
  </figure>`;
}
