import { percent, visible, whole } from "../data/formats.js";
import { addressOf } from "../data/router.js";
import { share } from "../data/step_figures.js";
import { useState } from "../vendor/preact_hooks.js";
import { html } from "./html.js";

/** @import { Selection, ToolCounts } from "../data/types.d.ts" */

const SHOWN = 6;

/**
 * The tools of a step by failed calls; each leads to the calls, and to those that failed.
 *
 * @param {{tools: Record<string, ToolCounts>, step: string, selection: Selection}} props
 */
export function ToolsTable({ tools, step, selection }) {
  const [isWhole, setWhole] = useState(false);
  const rows = Object.entries(tools).sort(
    ([one, a], [other, b]) => b.errors - a.errors || b.calls - a.calls || one.localeCompare(other),
  );
  if (!rows.length) return null;
  /** @param {Record<string, string>} query */
  const search = (query) => addressOf({ page: "search", ...selection, query: { ...query, step } });
  return html`<section class="chart" aria-labelledby="tools-title">
    <h2 id="tools-title" class="chart-title">Tools</h2>
    <table class="plain">
      <thead>
        <tr>
          <th scope="col">tool</th>
          <th scope="col" class="is-number">calls</th>
          <th scope="col" class="is-number">failed</th>
          <th scope="col" class="is-number">share</th>
        </tr>
      </thead>
      <tbody>
        ${rows.slice(0, isWhole ? rows.length : SHOWN).map(
          ([name, { calls, errors }]) =>
            html`<tr key=${name}>
              <th scope="row">
                <a
                  class="said"
                  href=${search({ q: name, in: "tool" })}
                  title=${`calls of ${visible(name)}`}
                  >${visible(name)}</a
                >
              </th>
              <td class="is-number">${whole(calls)}</td>
              <td class="is-number">
                ${
                  errors
                    ? html`<a
                        href=${search({ q: name, in: "failed" })}
                        title=${`failed calls of ${visible(name)}, with their arguments`}
                        >${whole(errors)}</a
                      >`
                    : 0
                }
              </td>
              <td class="is-number">${percent(share(errors, calls))}</td>
            </tr>`,
        )}
      </tbody>
    </table>
    ${
      rows.length > SHOWN
        ? html`<button
            type="button"
            class="quiet"
            onClick=${() => setWhole(!isWhole)}
          >
            ${isWhole ? "Fewer" : `All ${rows.length} tools`}
          </button>`
        : null
    }
  </section>`;
}
