import { Component } from "../vendor/preact.js";
import { useEffect, useState } from "../vendor/preact_hooks.js";
import { html } from "./html.js";
import { useKeys } from "./keys.js";
import { useWindowed } from "./windowed.js";

/** @import { Sort } from "../data/sorting.js" */

/**
 * A column of a table.
 *
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {string} [help] what it says, at length
 * @property {string} width of CSS grid, at least some rem: `5rem`, `minmax(12rem, 1fr)`
 * @property {boolean} [isNumber] it stands at the right
 * @property {(row: any) => unknown} cell
 * @property {(row: any) => unknown} [value] what it sorts by; without it, it doesn't sort
 * @property {boolean} [isDescendingFirst] the first click shows the highest
 */

/**
 * Return a column of numbers, which stand at the right and sort from the highest.
 *
 * @template Row
 * @param {string} key
 * @param {string} title
 * @param {string} width
 * @param {(row: Row) => number | null | undefined} value
 * @param {(value: number | null | undefined) => string} format
 * @param {string} [help]
 * @returns {Column}
 */
export function numberColumn(key, title, width, value, format, help) {
  return {
    key,
    title,
    help,
    width,
    isNumber: true,
    isDescendingFirst: true,
    value,
    cell: (row) => format(value(row)),
  };
}

/** As in style/parts.css. */
const HEAD_HEIGHT = 30;

/**
 * A table of any length: only the rows in view are in the document, `j` and `k` go through all, Enter opens one.
 *
 * Rows are in the order given; the page sorts them, since its address says how. A row whose content changes is another
 * object, and columns that show something else are another list.
 *
 * @param {object} props
 * @param {string} props.label its name
 * @param {Column[]} props.columns
 * @param {any[]} props.rows
 * @param {(row: any) => string} props.keyOf
 * @param {(row: any) => string} props.addressOf what a row leads to
 * @param {Sort | null} [props.sort]
 * @param {(sort: Sort) => void} [props.onSort]
 * @param {(row: any) => string} [props.classOf]
 * @param {string} [props.rowName] for the help: "next step"
 * @param {number} [props.rowHeight]
 */
export function Table(props) {
  const { label, columns, rows, keyOf, addressOf, sort, onSort, classOf, rowName = "row", rowHeight = 30 } = props;
  const [selectedKey, select] = useState(/** @type {string | null} */ (null));
  const { scroller, items, height, show } = useWindowed({
    count: rows.length,
    sizeOf: () => rowHeight,
    paddingStart: HEAD_HEIGHT,
  });
  const selected = selectedKey === null ? -1 : rows.findIndex((row) => keyOf(row) === selectedKey);
  const move = (/** @type {number} */ by) => {
    if (!rows.length) return;
    const next = Math.max(0, Math.min(rows.length - 1, selected < 0 ? 0 : selected + by));
    select(keyOf(rows[next]));
    show(next);
    scroller.current?.scrollIntoView({ block: "nearest" });
  };
  useKeys([
    { key: "j", does: `next ${rowName}`, run: () => move(1) },
    { key: "k", does: `previous ${rowName}`, run: () => move(-1) },
    {
      key: "Enter",
      does: `open the ${rowName}`,
      run: () => {
        if (selected >= 0) location.hash = addressOf(rows[selected]);
      },
    },
  ]);
  const order = sort ? sort.key + sort.isDescending : "";
  useEffect(() => {
    if (scroller.current) scroller.current.scrollTop = 0;
  }, [order]);

  const template = columns.map(({ width }) => width).join(" ");
  const least = columns.reduce((sum, { width }) => sum + parseFloat(/[\d.]+(?=rem)/.exec(width)?.[0] ?? "0"), 0);
  return html`<div
    class="table"
    role="table"
    aria-label=${label}
    aria-rowcount=${rows.length + 1}
    ref=${scroller}
    tabindex="0"
  >
    <div
      class="table-body"
      role="rowgroup"
      style=${{ "--columns": template, "--least-width": `${least}rem`, "--row-height": `${rowHeight}px` }}
    >
      <div class="table-row table-head" role="row" aria-rowindex="1">
        ${columns.map((column) => html`<${Head} key=${column.key} column=${column} sort=${sort} onSort=${onSort} />`)}
      </div>
      <div
        class="table-rows"
        role="presentation"
        style=${{ height: `${height}px` }}
      >
        ${items.map(({ index, start }) => {
          const row = rows[index];
          if (row === undefined) return null;
          const key = keyOf(row);
          return html`<${Row}
            key=${key}
            row=${row}
            index=${index}
            start=${start}
            columns=${columns}
            isSelected=${key === selectedKey}
            name=${classOf?.(row) ?? ""}
            addressOf=${addressOf}
          />`;
        })}
      </div>
    </div>
  </div>`;
}

/**
 * A row. It is drawn anew only if what it shows has changed, since scrolling moves all of them.
 *
 * @extends {Component<{row: any, index: number, start: number, columns: Column[], isSelected: boolean, name: string,
 *   addressOf: (row: any) => string}>}
 */
class Row extends Component {
  /** @param {any} next */
  shouldComponentUpdate(next) {
    const { row, index, start, columns, isSelected, name } = this.props;
    return (
      row !== next.row ||
      index !== next.index ||
      start !== next.start ||
      columns !== next.columns ||
      isSelected !== next.isSelected ||
      name !== next.name
    );
  }

  render() {
    const { row, index, start, columns, isSelected, name, addressOf } = this.props;
    return html`<div
      class="table-row ${isSelected ? "is-selected" : ""} ${name}"
      role="row"
      aria-rowindex=${index + 2}
      style=${{ transform: `translateY(${start}px)` }}
      onClick=${(/** @type {MouseEvent} */ event) => open(event, addressOf(row))}
    >
      ${columns.map(
        (column) =>
          html`<div key=${column.key} role="cell" class=${column.isNumber ? "is-number" : ""}>${column.cell(row)}</div>`,
      )}
    </div>`;
  }
}

/**
 * @param {{column: Column, sort?: Sort | null, onSort?: (sort: Sort) => void}} props
 */
function Head({ column, sort, onSort }) {
  const { key, title, help, isNumber, value, isDescendingFirst } = column;
  const isSorted = sort?.key === key;
  const direction = isSorted ? (sort?.isDescending ? "descending" : "ascending") : "none";
  const next = {
    key,
    isDescending: isSorted ? !sort?.isDescending : !!isDescendingFirst,
  };
  const arrow = html`<span class="arrow" aria-hidden="true"
    >${isSorted ? (sort?.isDescending ? "↓" : "↑") : ""}</span
  >`;
  return html`<div
    role="columnheader"
    class=${isNumber ? "is-number" : ""}
    title=${help}
    aria-sort=${value && onSort ? direction : undefined}
  >
    ${value && onSort ? html`<button type="button" onClick=${() => onSort(next)}>${isNumber ? arrow : null}${title}${isNumber ? null : arrow}</button>` : title}
  </div>`;
}

/**
 * Open a row that was clicked, unless a link in it was, or text is being selected.
 *
 * @param {MouseEvent} event
 * @param {string} address
 */
function open(event, address) {
  const target = event.target instanceof Element ? event.target : null;
  if (target?.closest("a, button") || getSelection()?.toString()) return;
  if (event.ctrlKey || event.metaKey) window.open(address, "_blank", "noopener");
  else location.hash = address;
}
