/**
 * A column and a direction, as in an address: `reward` or `-reward`.
 *
 * @typedef {{key: string, isDescending: boolean}} Sort
 */

/**
 * Read a sort of an address.
 *
 * @param {string | undefined} text
 * @returns {Sort | null}
 */
export function parseSort(text) {
  if (!text) return null;
  return text.startsWith("-") ? { key: text.slice(1), isDescending: true } : { key: text, isDescending: false };
}

/** @param {Sort | null} sort */
export function sortText(sort) {
  return sort === null ? "" : (sort.isDescending ? "-" : "") + sort.key;
}

/**
 * Return rows in the order of a value; unknown values come last either way, equal ones stay as they are.
 *
 * @template T
 * @param {readonly T[]} rows
 * @param {(row: T) => unknown} valueIn
 * @param {boolean} isDescending
 * @returns {T[]}
 */
export function sorted(rows, valueIn, isDescending) {
  const direction = isDescending ? -1 : 1;
  return rows
    .map((row, index) => ({ row, index, value: valueIn(row) }))
    .sort((one, other) => {
      const isUnknown = Number(isMissing(one.value)) - Number(isMissing(other.value));
      if (isUnknown) return isUnknown;
      return (isMissing(one.value) ? 0 : direction * compare(one.value, other.value)) || one.index - other.index;
    })
    .map(({ row }) => row);
}

/** @param {unknown} value */
function isMissing(value) {
  return value == null || Number.isNaN(value);
}

/**
 * @param {unknown} one
 * @param {unknown} other
 */
function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}
