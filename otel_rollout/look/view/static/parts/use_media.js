import { useEffect, useState } from "../vendor/preact_hooks.js";

/** Windows below this width show one thing after another. */
export const NARROW = "(max-width: 760px)";

/** Windows from this width on have room for all columns of a long table. */
export const WIDE = "(min-width: 1380px)";

/**
 * Return if a media query matches now.
 *
 * @param {string} query
 * @returns {boolean}
 */
export function useMedia(query) {
  const [isMatching, setMatching] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const read = () => setMatching(list.matches);
    read();
    list.addEventListener("change", read);
    return () => list.removeEventListener("change", read);
  }, [query]);
  return isMatching;
}
