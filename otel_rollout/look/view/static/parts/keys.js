import { useEffect, useRef } from "../vendor/preact_hooks.js";

/**
 * @typedef {object} Key
 * @property {string} key `KeyboardEvent.key`
 * @property {string} does for the help, as in "next rollout"
 * @property {() => void} run
 */

/** @type {{current: Key[]}[]} */
const stack = [];
let isListening = false;

/**
 * Take keys while the component is shown; of two that take the same key, the one that came later has it.
 *
 * @param {Key[]} keys
 * @param {{isForAllPages?: boolean}} [options] `isForAllPages`: a page's own keys come before these
 */
export function useKeys(keys, { isForAllPages = false } = {}) {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    listen();
    // Effects of a page run before those of the frame around it.
    if (isForAllPages) stack.unshift(latest);
    else stack.push(latest);
    return () => void stack.splice(stack.indexOf(latest), 1);
  }, []);
}

/**
 * Return the keys that work now, the page's own before those of all pages.
 *
 * @returns {Key[]}
 */
export function activeKeys() {
  /** @type {Map<string, Key>} */
  const found = new Map();
  for (const { current } of [...stack].reverse()) {
    for (const key of current) if (!found.has(key.key)) found.set(key.key, key);
  }
  return [...found.values()];
}

function listen() {
  if (isListening) return;
  isListening = true;
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target instanceof Element ? event.target : null;
    if (document.querySelector("dialog[open]")) return;
    if (target?.closest("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape" && target instanceof HTMLElement) target.blur();
      return;
    }
    if ((event.key === "Enter" || event.key === " ") && target?.closest("a, button, summary")) return;
    const found = activeKeys().find(({ key }) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found.run();
  });
}
