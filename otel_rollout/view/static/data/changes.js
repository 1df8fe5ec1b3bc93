import { isExported } from "./client.js";

/**
 * Changes of the folders, as the server tells them.
 *
 * One connection serves all who listen; the browser opens it anew if it breaks.
 */

/**
 * A change: the folders' version, and how far the reading of the run is.
 *
 * @typedef {{version: string, progress: {done: number, total: number} | null}} Change
 */

/** @type {Set<(change: Change) => void>} */
const listeners = new Set();
/** @type {Set<(isConnected: boolean) => void>} */
const watchers = new Set();
/** @type {EventSource | null} */
let source = null;

/**
 * Call a function when the folders change.
 *
 * @param {(change: Change) => void} listener
 * @returns {() => void} what ends it
 */
export function onChange(listener) {
  listeners.add(listener);
  connect();
  return () => void listeners.delete(listener);
}

/**
 * Call a function when the connection to the server breaks and when it is there again.
 *
 * @param {(isConnected: boolean) => void} watcher
 * @returns {() => void} what ends it
 */
export function onConnection(watcher) {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
}

function connect() {
  if (source || isExported()) return;
  source = new EventSource("api/changes");
  source.onopen = () => tell(true);
  source.onerror = () => tell(false);
  source.onmessage = (event) => {
    tell(true);
    const change = JSON.parse(event.data);
    for (const listener of [...listeners]) listener(change);
  };
  addEventListener("pagehide", () => {
    source?.close();
    source = null;
  });
}

/** @param {boolean} isConnected */
function tell(isConnected) {
  for (const watcher of [...watchers]) watcher(isConnected);
}
