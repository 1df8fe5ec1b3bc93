import { paths } from "../data/client.js";
import { visible } from "../data/formats.js";
import { addressOf } from "../data/router.js";
import { html } from "./html.js";
import { useData } from "./use_data.js";

/** @import { Finding, Selection } from "../data/types.d.ts" */

/**
 * What was found to be wrong; nothing if there is nothing.
 *
 * @param {{step?: string, selection: Selection}} props
 */
export function Findings({ step, selection }) {
  const { data } = useData(paths.findings(step, selection));
  /** @type {Finding[]} */
  const findings = data?.findings ?? [];
  if (!findings.length) return null;
  return html`<section class="findings" aria-label="findings">
    ${findings.map(
      (finding, index) =>
        html`<details
          key=${finding.check + index}
          class="finding finding-${finding.severity}"
        >
          <summary>
            <b>${visible(finding.title)}</b>
            <span class="weak said">${visible(finding.text)}</span>
          </summary>
          ${finding.try ? html`<p>Try: <span class="said">${visible(finding.try)}</span></p>` : null}
          ${
            finding.evidence?.length
              ? html`<p>
                  ${finding.evidence.map(
                    ({ trace_id, label }) =>
                      html`<a
                        key=${trace_id}
                        href=${addressOf({ page: "trajectory", traceId: trace_id, query: {} })}
                        >${visible(label ?? trace_id.slice(0, 8))}</a
                      > `,
                  )}
                </p>`
              : null
          }
        </details>`,
    )}
  </section>`;
}
