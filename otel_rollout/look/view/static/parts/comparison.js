import { isExported, paths } from "../data/client.js";
import { capitalized, visible, whole } from "../data/formats.js";
import { addressOf, inAddress } from "../data/router.js";
import { useState } from "../vendor/preact_hooks.js";
import { html } from "./html.js";
import { ErrorState, LoadingState } from "./states.js";
import { useData } from "./use_data.js";

/** @import { Series } from "../data/step_figures.js" */
/** @import { CompareAnswer, ComparedFigure, ComparedPart, Finding, Flip } from "../data/types.d.ts" */

/** Prompts of a list before the rest is asked for. */
const FIRST_FLIPS = 8;
/** The box of an interval's line, in pixels. */
const WIDTH = 110;
const HEIGHT = 14;

/**
 * A run compared with another: each figure with its interval, the prompts that flipped, the findings.
 *
 * @param {{chosen: Series, against: Series, names: [string, string], part: "training" | "validation"}} props
 */
export function Comparison({ chosen, against, names, part }) {
  const { data, error } = useData(isExported() ? null : paths.compare(chosen, against));
  if (isExported()) return null;
  const answer = /** @type {CompareAnswer | undefined} */ (data);
  if (!answer)
    return error
      ? html`<${ErrorState} error=${error} />`
      : html`<${LoadingState}>Comparing the two runs …</${LoadingState}>`;
  const own = answer.parts.find(({ validate }) => validate === (part === "validation"));
  return html`<section class="comparison" aria-labelledby="comparison-title">
    <h2 id="comparison-title">Against ${visible(names[1])}</h2>
    <p class=${answer.is_worse ? "bad" : ""}>
      ${visible(capitalized(answer.verdict.replace("B is", "this run is")))}
    </p>
    <p class="weak">A: ${visible(names[1])} · B: ${visible(names[0])}</p>
    ${answer.left_out && html`<p class="weak">${capitalized(answer.left_out)}</p>`}
    ${
      own
        ? html`<${Part} part=${own} chosen=${chosen} against=${against} />`
        : html`<p class="weak">No step of ${part} in common.</p>`
    }
    <${FindingList} title="New findings" findings=${answer.new} />
    <${FindingList} title="Findings that are gone" findings=${answer.gone} />
  </section>`;
}

/** @param {{part: ComparedPart, chosen: Series, against: Series}} props */
function Part({ part, chosen, against }) {
  return html`<p class="weak">${capitalized(part.over)}</p>
    <div class="figures-scroll" tabindex="0" role="region" aria-label="figures">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">figure</th>
            <th scope="col" class="is-number">A</th>
            <th scope="col" class="is-number">B</th>
            <th scope="col" class="is-number">change</th>
            <th scope="col" class="is-number">95% interval</th>
            <th scope="col"><span class="hidden-label">the interval as a line</span></th>
            <th scope="col">verdict</th>
            <th scope="col" class="is-number">of</th>
          </tr>
        </thead>
        <tbody>
          ${part.figures.map((figure) => html`<${FigureRow} key=${figure.name} figure=${figure} />`)}
        </tbody>
      </table>
    </div>
    ${part.too_few.map((text) => html`<p key=${text} class="weak">Too few to tell: ${visible(text)}</p>`)}
    ${part.flips === null ? null : html`<p>${capitalized(part.flips)}</p>`}
    <${Flips} title="Mostly solved by A only" flips=${part.lost} ...${{ part, chosen, against }} />
    <${Flips} title="Mostly solved by B only" flips=${part.gained} ...${{ part, chosen, against }} />`;
}

/** @param {{figure: ComparedFigure}} props */
function FigureRow({ figure }) {
  const most = Math.max(Math.abs(figure.low), Math.abs(figure.high)) || 1;
  const [low, high, at] = [figure.low, figure.high, figure.at].map(
    (value) => WIDTH / 2 + (value / most) * (WIDTH / 2 - 4),
  );
  return html`<tr class=${figure.verdict && `is-${figure.verdict}`}>
    <th scope="row" class="said">${visible(figure.title)}</th>
    <td class="is-number">${figure.before}</td>
    <td class="is-number">${figure.after}</td>
    <td class="is-number">${figure.change}</td>
    <td class="is-number">${figure.interval}</td>
    <td>
      <svg class="interval" width=${WIDTH} height=${HEIGHT} aria-hidden="true">
        <line class="zero" x1=${WIDTH / 2} x2=${WIDTH / 2} y1="0" y2=${HEIGHT} />
        <line class="line" x1=${low} x2=${high} y1=${HEIGHT / 2} y2=${HEIGHT / 2} />
        <circle cx=${at} cy=${HEIGHT / 2} r="3" />
      </svg>
    </td>
    <td class="verdict">${figure.verdict}</td>
    <td class="is-number weak">${figure.of}</td>
  </tr>`;
}

/**
 * The prompts that only one run solves; each leads to its rollouts of both.
 *
 * @param {{title: string, flips: Flip[], part: ComparedPart, chosen: Series, against: Series}} props
 */
function Flips({ title, flips, part, chosen, against }) {
  const [isWhole, setWhole] = useState(false);
  if (!flips.length) return null;
  return html`<h3>${title}</h3>
    <ul class="plain-list flips">
      ${flips.slice(0, isWhole ? flips.length : FIRST_FLIPS).map(
        (flip) =>
          html`<li key=${String(flip.sample_index)}>
            <a href=${sideBySide(flip, part.validate, chosen, against)} title="its rollouts of both runs side by side"
              >sample ${visible(inAddress(flip.sample_index))}</a
            >
            <span class="is-number"
              >A ${solvedOf(flip.before, flip.rollouts[0])}, B ${solvedOf(flip.after, flip.rollouts[1])} rollouts solved</span
            >
            <span class="said weak">${visible(flip.prompt)}</span>
          </li>`,
      )}
    </ul>
    ${
      flips.length > FIRST_FLIPS
        ? html`<button type="button" class="quiet" onClick=${() => setWhole(!isWhole)}>
            ${isWhole ? "Fewer" : `All ${whole(flips.length)} prompts`}
          </button>`
        : null
    }`;
}

/**
 * Return the solved rollouts, and all.
 *
 * @param {number} share
 * @param {number} number
 */
function solvedOf(share, number) {
  return `${whole(Math.round(share * number))} of ${whole(number)}`;
}

/**
 * Return the address of a prompt's rollouts of both runs.
 *
 * @param {Flip} flip
 * @param {boolean} validate
 * @param {Series} chosen
 * @param {Series} against
 */
function sideBySide({ sample_index: sample, steps }, validate, chosen, against) {
  const { experiment, run } = chosen;
  return addressOf({
    page: "group",
    step: inAddress(steps[1]),
    sample: inAddress(sample),
    ...{ validate, experiment, run },
    query: { against: against.key, ...(steps[0] === steps[1] ? {} : { against_step: inAddress(steps[0]) }) },
  });
}

/** @param {{title: string, findings: Finding[]}} props */
function FindingList({ title, findings }) {
  if (!findings.length) return null;
  return html`<h3>${title}</h3>
    <ul class="plain-list">
      ${findings.map(
        (each) =>
          html`<li key=${each.check + each.subject + each.validate}>
            <b class="said">${visible(each.title)}</b>${each.validate ? " in validation" : ""}
            <span class="weak said"> ${each.severity}, ${visible(each.measured)}</span>
          </li>`,
      )}
    </ul>`;
}
