import { queryOf, selectionOf, selectionQuery } from "./router.js";
import { fullSelection } from "./selection.js";

/** @import { Selection, StepSummary } from "./types.d.ts" */

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
  step: (step, selection) => ofStep(step, "", selection),
  // A prompt can be any text, also one that has a meaning in a path.
  /** @param {string} step @param {string} sample @param {Selection} selection */
  group: (step, sample, selection) => {
    const path = ofStep(step, "/group", selection);
    return `${path}${path.includes("?") ? "&" : "?"}sample=${encodeURIComponent(sample)}`;
  },
  /** @param {string} step @param {Selection} selection */
  timeline: (step, selection) => ofStep(step, "/timeline", selection),
  /** @param {string} traceId */
  trajectory: (traceId) => `trajectory/${encodeURIComponent(traceId)}`,
  /** @param {string} traceId @param {string} spanId */
  span: (traceId, spanId) => `trajectory/${encodeURIComponent(traceId)}/span/${encodeURIComponent(spanId)}`,
  /** @param {Record<string, string | undefined>} query @param {Selection} selection */
  search: (query, selection) => "search" + queryOf({ ...query, ...selectionQuery(selection) }),
  /** @param {string | undefined} step undefined: the run's @param {Selection} selection */
  findings: (step, selection) => {
    if (step !== undefined) return "findings" + queryOf({ step, ...selectionQuery(asked(step, selection)) });
    return isExported() ? "findings" : "findings" + queryOf(selectionQuery(selection));
  },
  /** @param {Selection} selection @param {Selection} other the run that it is against */
  compare: (selection, other) =>
    "compare" +
    queryOf({
      ...selectionQuery({ ...selection, validate: false }),
      against: other.experiment,
      against_run: other.run,
    }),
  /** @param {string} sample @param {Selection} selection */
  prompt: (sample, selection) => "prompt" + queryOf({ sample, ...selectionQuery(selection) }),
  live: () => "live",
  open: () => "open",
};

/**
 * @param {string} step
 * @param {string} rest
 * @param {Selection} selection
 */
function ofStep(step, rest, selection) {
  return `step/${encodeURIComponent(step)}${rest}` + queryOf(selectionQuery(asked(step, selection)));
}

/**
 * The server fills in what a selection leaves out; an export's data are named in full.
 *
 * @param {string} step
 * @param {Selection} selection
 */
function asked(step, selection) {
  return isExported() ? fullSelection(step, selection) : selection;
}

/**
 * Load an answer.
 *
 * @param {string} path one of `paths`
 * @param {{signal?: AbortSignal, before?: any}} [options] `before`: the last answer, which is returned if it still holds
 * @returns {Promise<any>}
 * @throws {ClientError} There is no such answer, or no server.
 */
export async function load(path, { signal, before } = {}) {
  if (isExported()) return loadExported(path);
  const known = before?.mark ? `${path.includes("?") ? "&" : "?"}known=${before.mark}` : "";
  const answer = await (await request(path + known, signal)).json();
  if (known && answer.mark === before.mark) return Object.assign(before, { version: answer.version });
  return answer.changes ? withChanges(before, answer) : answer;
}

/**
 * Return an answer whose lists are sent as changes of the last one's.
 *
 * @param {any} before
 * @param {{changes: Record<string, {order: (number | [number, number])[], added: any[]}>}} answer `order`: the begin and
 *   the end of items of the list before, or a number of those added
 */
function withChanges(before, { changes, ...rest }) {
  const lists = Object.entries(changes).map(([name, { order, added }]) => {
    let next = 0;
    const items = order.flatMap((part) =>
      Array.isArray(part) ? before[name].slice(...part) : added.slice(next, (next += part)),
    );
    return [name, items];
  });
  return { ...rest, ...Object.fromEntries(lists) };
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
    throw new ClientError("Exported pages can't be searched: open the trace folder with `otel-rollout view`.");
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
 * digits for each byte of their UTF-8; a long name is cut, and ends in its FNV-1a hash.
 *
 * @param {string} path
 */
export function exportedName(path) {
  const bytes = new TextEncoder().encode(path);
  const name = Array.from(bytes, (byte) => {
    const character = String.fromCharCode(byte);
    return /[a-z0-9_.-]/.test(character) ? character : `~${byte.toString(16).padStart(2, "0")}`;
  }).join("");
  if (name.length <= 120) return name;
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(name)) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return `${name.slice(0, 80)}~${hash.toString(16).padStart(16, "0")}`;
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
    throw new ClientError("The server doesn't answer. Is `otel-rollout view` still running?");
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
  /** @type {Record<string, any>} */
  const data = window.otelRolloutData ?? {};
  const name = exportedName(asExported(path, data.run?.steps ?? []));
  if (!(name in data)) await loadScript(`data/${name}.js`);
  if (!(name in data))
    throw new ClientError("This isn't part of the export. Open the trace folder with `otel-rollout view`.");
  return data[name];
}

/**
 * Return the path under which an export has an answer: as the server, it takes the newest experiment that has the step
 * if none is named.
 *
 * @param {string} path
 * @param {StepSummary[]} steps
 */
export function asExported(path, steps) {
  const [place, search = ""] = path.split("?");
  const { step: named, validate, experiment, run, ...rest } = Object.fromEntries(new URLSearchParams(search));
  const step = place.startsWith("step/") ? place.split("/")[1] : named;
  if (step === undefined) return path;
  const found = steps.filter(
    (each) =>
      String(each.step ?? "none") === step &&
      each.validate === (validate === "1") &&
      (experiment === undefined || (each.experiment_name ?? "") === experiment) &&
      (run === undefined || each.run_id === run),
  );
  if (!found.length) return path;
  const newest = found.reduce((one, other) => (other.start_time > one.start_time ? other : one));
  return (
    place +
    queryOf({ ...(named === undefined ? {} : { step: named }), ...selectionQuery(selectionOf(newest)), ...rest })
  );
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
