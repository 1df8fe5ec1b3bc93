import { queryOf, selectionQuery } from "./router.js";

/** @import { Selection } from "./types.d.ts" */

/** An answer that isn't there; its message says what to do. */
export class ClientError extends Error {
  /**
   * @param {string} message
   * @param {number | null} [status] of the HTTP answer; null if there was none
   */
  constructor(message, status = null) {
    super(message);
    this.name = "ClientError";
    this.status = status;
  }
}

/** True if the pages were exported: their data are scripts beside them, and there is no server. */
export function isExported() {
  return window.otelRolloutData !== undefined;
}

/**
 * The paths that the server answers, without `api/`; an exported page has its data under the same names.
 *
 * A step is a number or `none`, as in an address.
 */
export const paths = {
  run: () => "run",
  /** @param {string} step @param {Selection} selection */
  step: (step, selection) =>
    `step/${encodeURIComponent(step)}` + queryOf(selectionQuery(selection)),
  /** @param {string} step @param {string} sample @param {Selection} selection */
  group: (step, sample, selection) =>
    `step/${encodeURIComponent(step)}/group/${encodeURIComponent(sample)}` +
    queryOf(selectionQuery(selection)),
  /** @param {string} step @param {Selection} selection */
  timeline: (step, selection) =>
    `step/${encodeURIComponent(step)}/timeline` +
    queryOf(selectionQuery(selection)),
  /** @param {string} traceId */
  trajectory: (traceId) => `trajectory/${encodeURIComponent(traceId)}`,
  /** @param {string} traceId @param {string} spanId */
  span: (traceId, spanId) =>
    `trajectory/${encodeURIComponent(traceId)}/span/${encodeURIComponent(spanId)}`,
  /** @param {Record<string, string | undefined>} query @param {Selection} selection */
  search: (query, selection) =>
    "search" + queryOf({ ...query, ...selectionQuery(selection) }),
  /** @param {string | undefined} step @param {Selection} selection */
  findings: (step, selection) =>
    "findings" + queryOf({ step, ...selectionQuery(selection) }),
  live: () => "live",
};

/**
 * Load an answer.
 *
 * @param {string} path one of `paths`
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 * @throws {ClientError} There is no such answer, or no server.
 */
export async function load(path, { signal } = {}) {
  if (isExported()) return loadExported(path);
  const answer = await request(path, signal);
  return answer.json();
}

/**
 * Load an answer whose lines come one by one.
 *
 * @param {string} path one of `paths`
 * @param {{signal?: AbortSignal}} [options]
 * @returns {AsyncGenerator<any>}
 * @throws {ClientError} There is no server.
 */
export async function* stream(path, { signal } = {}) {
  if (isExported())
    throw new ClientError(
      "Exported pages can't be searched: open the trace folder with `otel-rollout view`.",
    );
  const answer = await request(path, signal);
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim()) yield JSON.parse(line);
  }
  if (rest.trim()) yield JSON.parse(rest);
}

/**
 * The name of an answer among the data of an exported page: other characters than these are `~` and two hexadecimal
 * digits for each byte of their UTF-8.
 *
 * @param {string} path
 */
export function exportedName(path) {
  const bytes = new TextEncoder().encode(path);
  return Array.from(bytes, (byte) => {
    const character = String.fromCharCode(byte);
    return /[\w.-]/.test(character)
      ? character
      : `~${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }).join("");
}

/**
 * @param {string} path
 * @param {AbortSignal | undefined} signal
 */
async function request(path, signal) {
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(`api/${path}`, {
      signal,
      headers: { accept: "application/json" },
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ClientError(
      "The server doesn't answer. Is `otel-rollout view` still running?",
    );
  }
  if (answer.ok) return answer;
  let said = `The server answered ${answer.status}.`;
  try {
    said = (await answer.json()).error ?? said;
  } catch {
    // What stands between, such as a proxy, answers with a page.
  }
  throw new ClientError(said, answer.status);
}

/** @param {string} path */
async function loadExported(path) {
  const data = window.otelRolloutData ?? {};
  const name = exportedName(path);
  if (!(name in data)) await loadScript(`data/${name}.js`);
  if (!(name in data))
    throw new ClientError(
      "This isn't part of the export. Open the trace folder with `otel-rollout view`.",
    );
  return data[name];
}

/**
 * Load a classic script: pages from the disk can't fetch.
 *
 * @param {string} address
 */
function loadScript(address) {
  return new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = script.onerror = () => {
      script.remove();
      resolve(null);
    };
    document.head.append(script);
  });
}
