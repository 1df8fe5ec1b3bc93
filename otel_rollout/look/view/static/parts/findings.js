import { paths } from "../data/client.js";
import { capitalized, visible, whole } from "../data/formats.js";
import { addressOf, inAddress } from "../data/router.js";
import { html } from "./html.js";
import { useData } from "./use_data.js";
import { withCode } from "./with_code.js";

/** @import { Evidence, Finding, Selection } from "../data/types.d.ts" */

/**
 * The findings; nothing if there are none.
 *
 * @param {{step?: string, selection: Selection}} props
 */
export function Findings({ step, selection }) {
  const { data } = useData(paths.findings(step, selection));
  /** @type {Finding[]} */
  const all = data?.findings ?? [];
  // An export has those of one experiment.
  const findings = all.filter(({ experiment_name }) => (experiment_name ?? "") === (selection.experiment ?? ""));
  const note = data?.looked_at;
  if (!findings.length) return note ? html`<p class="weak said">${visible(note)}</p>` : null;
  return html`<section class="findings" aria-label="findings">
    ${findings.map(
      (finding) =>
        html`<details key=${finding.check + finding.subject + finding.validate} class="finding finding-${finding.severity}">
          <summary>
            <span class="finding-mark" aria-hidden="true">${finding.severity === "error" ? "✕" : "!"}</span>
            <span class="hidden-label">${finding.severity}</span>
            <b class="said">${visible(finding.title)}</b>
            <span class="finding-number">${numberText(finding)}</span>
            <span class="weak said">${visible(finding.measured)}</span>
          </summary>
          <p class="said">${capitalized(visible(finding.meaning))}</p>
          <p class="said"><span class="weak">Try: </span>${withCode(visible(finding.advice))}</p>
          ${step === undefined ? html`<p class="evidence"><span>Steps</span>${stepLinks(finding)}</p>` : null}
          ${
            finding.evidence.length
              ? html`<p class="evidence">
                <span>For example</span>
                ${finding.evidence.map(
                  (each) => html`<a key=${each.trace_id} href=${pageAddress(each)}>${visible(evidenceText(each))}</a>`,
                )}
              </p>`
              : null
          }
        </details>`,
    )}
    ${note ? html`<p class="weak said">${visible(note)}</p>` : null}
  </section>`;
}

/** @param {Finding} finding */
function numberText({ number, total, steps, compares_steps, validate }) {
  if (compares_steps) return `from step ${steps[0]} to ${steps[steps.length - 1]}`;
  const where = steps.length > 1 ? ` in ${steps.length} steps` : "";
  return `${whole(number)} of ${whole(total)}${where}${validate ? " in validation" : ""}`;
}

/** @param {Finding} finding */
function stepLinks({ steps, validate, experiment_name: experiment, run_id: run }) {
  return steps.map((each) => {
    const step = inAddress(each);
    return html`<a key=${step} href=${addressOf({ page: "step", step, validate, experiment, run, query: {} })}>${step}</a>`;
  });
}

/** @param {Evidence} evidence */
function evidenceText({ step, validate, sample_index, rollout_n }) {
  return `step ${inAddress(step)}${validate ? " validation" : ""} · sample ${inAddress(sample_index)} · rollout ${inAddress(rollout_n)}`;
}

/**
 * Return an address that stays in these pages, whatever the answer says.
 *
 * @param {Evidence} evidence
 */
function pageAddress({ address, trace_id }) {
  return address.startsWith("#/") ? address : `#/trajectory/${encodeURIComponent(trace_id)}`;
}
