import { align } from "../data/alignment.js";
import { messagesIn } from "../data/branches.js";
import { pairCalls } from "../data/conversation.js";
import { counted, whole } from "../data/formats.js";
import { columnsApart } from "../data/group_columns.js";
import { messageDifferences } from "../data/message_differences.js";
import { useEffect, useMemo, useRef, useState } from "../vendor/preact_hooks.js";
import { ChatEntry } from "./chat_entry.js";
import { html } from "./html.js";

/** @import { Cell, Row } from "../data/alignment.js" */
/** @import { Rollout } from "../data/group_columns.js" */

/** Cells that are in the document at first, and that are added each time the end comes near; and the fewest rows. */
const CELLS_AT_ONCE = 160;
const ROWS_AT_ONCE = 4;
/** Characters of a text before "show all": in a wide column, and in one of many. */
const FIRST = 2000;
const FIRST_OF_MANY = 600;
const MANY = 4;

/**
 * Rollouts side by side: what all begin with, folded; then a row for each turn.
 *
 * @param {object} props
 * @param {Rollout[]} props.rollouts
 * @param {number[]} props.shown the positions of those that have a column
 * @param {Map<Rollout, string>} props.names
 * @param {(rollout: Rollout) => unknown} props.headOf
 * @param {(rollout: Rollout) => string} props.addressOf
 * @param {boolean} props.isComparing marks the differences of the two that are shown
 */
export function GroupColumns({ rollouts, shown, names, headOf, addressOf, isComparing }) {
  const { common, rows } = useMemo(() => align(rollouts.map(({ said }) => said)), [rollouts]);
  const [isUnfolded, setUnfolded] = useState(false);
  const isOpen = isUnfolded || !rows.length;
  const [count, end] = useMore(rows.length, Math.max(ROWS_AT_ONCE, Math.ceil(CELLS_AT_ONCE / shown.length)));
  const longest = rollouts.find(({ said }) => said.length >= common);
  const columns = shown.map((at) => rollouts[at]);
  const addressAt = (/** @type {number} */ at) => addressOf(rollouts[at]);
  const isEndedAt = (/** @type {number} */ at) => rollouts[at].summary.has_root;
  const isTree = rollouts.some(({ conversations }) => conversations.length > 1);
  const nameAt = (/** @type {number} */ at) => names.get(rollouts[at]) ?? "";
  return html`<div
    class="columns ${columns.length === 1 ? "single" : ""}"
    role="table"
    aria-label="rollouts side by side"
    style=${{ "--columns": String(columns.length) }}
  >
    <div class="columns-row heads" role="row">
      ${columns.map((rollout) => html`<div key=${rollout.summary.trace_id} class="column-head" role="columnheader">${headOf(rollout)}</div>`)}
    </div>
    ${
      common > 0 && longest
        ? html`<div class="columns-row" role="row">
            <div class="common" role="cell">
              <div class="common-inner">
                <button
                  type="button"
                  class="fold"
                  aria-expanded=${isOpen}
                  onClick=${() => setUnfolded(!isOpen)}
                >
                  <span aria-hidden="true">${isOpen ? "▾ " : "▸ "}</span>
                  ${alike(messagesIn(longest.said.slice(0, common)), rollouts.length)}
                </button>
                ${
                  isOpen
                    ? pairCalls(longest.said.slice(0, common)).map(
                        (entry) =>
                          html`<${ChatEntry}
                            key=${entry.index}
                            entry=${entry}
                            names=${longest.conversationNames}
                            first=${FIRST}
                          />`,
                      )
                    : null
                }
              </div>
            </div>
          </div>`
        : null
    }
    ${rows.slice(0, count).map(
      (row, at) =>
        html`<${Turn}
            key=${row.turn}
            ...${{ row, shown, nameAt, isComparing, isTree, addressAt, isEndedAt }}
            conversationNamesAt=${(/** @type {number} */ at) => rollouts[at].conversationNames}
            before=${rows[at - 1] ?? null}
            isFirst=${at === 0 && rollouts.length > 1}
          />`,
    )}
    ${rows.length === 0 && rollouts.length > 1 ? html`<p class="all-alike">${rollouts.length === 2 ? "Both rollouts say the same." : `All ${whole(rollouts.length)} rollouts say the same.`}</p>` : null}
    ${count < rows.length ? html`<div ref=${end} class="more-rows weak">${counted(rows.length - count, "turn")} more …</div>` : null}
  </div>`;
}

/**
 * A turn of all rollouts.
 *
 * @param {object} props
 * @param {Row} props.row
 * @param {Row | null} props.before the row above
 * @param {number[]} props.shown
 * @param {boolean} props.isFirst
 * @param {boolean} props.isComparing
 * @param {boolean} props.isTree a rollout has several conversations
 * @param {(column: number) => Map<number, string>} props.conversationNamesAt
 * @param {(column: number) => string} props.nameAt
 * @param {(column: number) => string} props.addressAt
 * @param {(column: number) => boolean} props.isEndedAt
 */
function Turn({ row, before, shown, isFirst, isComparing, isTree, conversationNamesAt, nameAt, addressAt, isEndedAt }) {
  const items = useMemo(() => row.cells.map((cell) => (cell ? pairCalls(cell.said, cell.from) : [])), [row]);
  const differences = useMemo(
    () => (isComparing && shown.length === 2 ? messageDifferences(items[shown[0]], items[shown[1]]) : null),
    [items, isComparing, shown.join()],
  );
  const kinds = new Set(shown.map((at) => (row.cells[at] ? (row.cells[at].sameAs ?? at) : "ended")));
  const apart = isFirst ? columnsApart(row.cells, shown).map(nameAt) : [];
  return html`<div
      class="columns-row turn-name ${isFirst ? "first" : ""}"
      role="row"
    >
      <div role="rowheader">
        <span class="turn-label"
          >${row.turn === 0 ? "Prompt" : `Turn ${row.turn}${isTree ? " of main" : ""}`}${
            isFirst
              ? html`<b class="first-difference"
                  ><span aria-hidden="true">≠</span> first difference</b
                  >${apart.length ? html` <span class="weak">${apart.length > 1 ? "rollouts" : "rollout"} ${apart.join(", ")}</span>` : null}`
              : null
          }${!isFirst && kinds.size === 1 && shown.length > 1 ? html`<span class="weak">alike</span>` : null}</span
        >
      </div>
    </div>
    <div class="columns-row turn" role="row">
      ${shown.map(
        (at, place) =>
          html`<div
            key=${at}
            role="cell"
            class="cell ${row.cells[at] ? "" : "ended"} ${isRepeated(row.cells[at], shown) ? "same" : ""}"
          >
            ${
              row.cells[at]
                ? items[at].map(
                    (entry, nth) =>
                      html`<${ChatEntry}
                        key=${entry.index}
                        entry=${entry}
                        names=${conversationNamesAt(at)}
                        heading=${isRepeated(row.cells[at], shown) ? (nth ? "" : `= as rollout ${nameAt(row.cells[at]?.sameAs ?? at)}`) : undefined}
                        differences=${differences?.[place][nth]}
                        first=${shown.length < MANY ? FIRST : FIRST_OF_MANY}
                        moreOf=${leadTo(addressAt(at))}
                      />`,
                  )
                : before === null || before.cells[at] !== null
                  ? html`<p class="weak">${isEndedAt(at) ? "ended" : "nothing yet"}</p>`
                  : null
            }
          </div>`,
      )}
    </div>`;
}

/**
 * @param {Cell | null} cell
 * @param {number[]} shown
 */
function isRepeated(cell, shown) {
  return cell !== null && cell.sameAs !== null && shown.includes(cell.sameAs);
}

/** @param {string} address */
function leadTo(address) {
  return (/** @type {string | null} */ span) => () => {
    location.hash = span ? `${address}${address.includes("?") ? "&" : "?"}span=${span}` : address;
  };
}

/**
 * @param {number} messages
 * @param {number} rollouts
 */
function alike(messages, rollouts) {
  if (rollouts === 2) return `${counted(messages, "message")} alike in both rollouts`;
  return `${counted(messages, "message")} alike in all ${whole(rollouts)} rollouts`;
}

/**
 * Return how many of the rows stand in the document, and the ref of the element at their end.
 *
 * @param {number} rows
 * @param {number} more rows at once
 * @returns {[number, {current: HTMLElement | null}]}
 */
function useMore(rows, more) {
  const [count, setCount] = useState(more);
  const end = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!end.current) return;
    const observer = new IntersectionObserver(
      (entries) => entries.some((entry) => entry.isIntersecting) && setCount((old) => old + more),
      { rootMargin: "800px" },
    );
    observer.observe(end.current);
    return () => observer.disconnect();
  }, [count, rows]);
  return [count, end];
}
