import { stream } from "./client.js";

/** @import { SearchHit, SearchLine } from "./types.d.ts" */

/**
 * A search as far as it has come.
 *
 * @typedef {object} Results
 * @property {SearchHit[]} hits
 * @property {boolean} isDone
 * @property {boolean} isCut there are more hits than the server sends
 * @property {number | null} searchedBytes
 * @property {number} unreadable trajectories that couldn't be read
 * @property {Error | null} error
 */

/** @type {Results} */
export const NO_RESULTS = { hits: [], isDone: false, isCut: false, searchedBytes: null, unreadable: 0, error: null };

/** Milliseconds between two drawings of results that come quickly. */
const PAUSE = 80;

/**
 * Search, and tell the results as they come.
 *
 * @param {string} path `paths.search`
 * @param {(results: Results) => void} tell
 * @param {AbortSignal} signal
 */
export async function search(path, tell, signal) {
  /** @type {Results} */
  let results = { ...NO_RESULTS, hits: [] };
  let told = -Infinity;
  try {
    for await (const line of stream(path, { signal })) {
      results = withLine(results, line);
      const now = performance.now();
      if (results.isDone || now - told > PAUSE) {
        told = now;
        tell(results);
      }
    }
    tell({ ...results, isDone: true });
  } catch (error) {
    if (!signal.aborted) tell({ ...results, isDone: true, error: /** @type {Error} */ (error) });
  }
}

/**
 * Return results with one line more of the server's answer.
 *
 * @param {Results} results
 * @param {SearchLine} line
 * @returns {Results}
 */
export function withLine(results, line) {
  if ("hit" in line) return { ...results, hits: [...results.hits, line.hit] };
  if ("error" in line) return { ...results, isDone: true, error: new Error(line.error) };
  const { searched_bytes: searchedBytes } = line;
  if (!("done" in line)) return { ...results, searchedBytes };
  return { ...results, isDone: true, isCut: line.is_cut, searchedBytes, unreadable: line.unreadable ?? 0 };
}

/**
 * Return a hit's excerpt in three parts: before the match, the match, behind it.
 *
 * The server counts characters as Python does; those beyond the first plane are two in JavaScript.
 *
 * @param {SearchHit} hit
 * @returns {[string, string, string]}
 */
export function excerptParts({ excerpt, start, end }) {
  const characters = Array.from(excerpt);
  return [characters.slice(0, start).join(""), characters.slice(start, end).join(""), characters.slice(end).join("")];
}
