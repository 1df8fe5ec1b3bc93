import { isExported } from "./client.js";

/**
 * Changes of the folders, as the server tells them.
 *
 * One connection serves all who listen; the browser opens it anew if it breaks. A page that is out of sight has none:
 * a browser opens six to a server, for all of its tabs.
 */

/**
 * A change: the folders' version, and how far the reading of the run is.
 *
 * @typedef {{version: string, progress: {done: number, total: number} | null}} Change
 */

/** @type {Set<(change: Change) => void>} */
const listeners = new Set();
/**
 * The connection to the server: it is there; nothing answers; the server wants another token.
 *
 * @typedef {"open" | "silent" | "refused"} Connection
 */

/** @type {Set<(connection: Connection) => void>} */
const watchers = new Set();
/** Milliseconds until a connection is tried anew that the browser has given up. */
const PAUSE = 3000;
const UNAUTHORIZED = 401;
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
 * @param {(connection: Connection) => void} watcher
 * @returns {() => void} what ends it
 */
export function onConnection(watcher) {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
}

function connect() {
  if (source || document.hidden || isExported()) return;
  const opened = new EventSource("api/changes");
  source = opened;
  opened.onopen = () => tell("open");
  // After an answer that isn't events, such as a refusal, the browser doesn't try again.
  opened.onerror = () => (opened.readyState === EventSource.CLOSED ? connectLater() : tell("silent"));
  opened.onmessage = (event) => {
    tell("open");
    const change = JSON.parse(event.data);
    for (const listener of [...listeners]) listener(change);
  };
  addEventListener("pagehide", disconnect);
}

function disconnect() {
  source?.close();
  source = null;
}

async function connectLater() {
  disconnect();
  setTimeout(connect, PAUSE);
  const answer = await fetch("api/open").catch(() => null);
  tell(answer?.status === UNAUTHORIZED ? "refused" : "silent");
}

addEventListener("visibilitychange", () => {
  if (document.hidden) disconnect();
  else if (listeners.size) connect();
});

/** @param {Connection} connection */
function tell(connection) {
  for (const watcher of [...watchers]) watcher(connection);
}
