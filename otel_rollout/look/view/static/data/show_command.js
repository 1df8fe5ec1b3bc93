/** @import { TrajectorySummary } from "./types.d.ts" */

/**
 * Return the command that shows a trajectory in a terminal.
 *
 * @param {Pick<TrajectorySummary, "trace_id">} summary
 * @param {string[]} folders of the run
 */
export function showCommand({ trace_id: traceId }, folders) {
  const folder = folders.length === 1 ? ` ${quoted(folders[0])}` : "";
  return `otel-rollout show${folder} --trace ${traceId} --chat`;
}

/** @param {string} text */
function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
