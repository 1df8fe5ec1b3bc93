import { createContext } from "../vendor/preact.js";
import { useContext, useEffect } from "../vendor/preact_hooks.js";

/** @import { Route, RunAnswer } from "../data/types.d.ts" */

/**
 * The values that the frame gives to pages.
 *
 * @typedef {object} Surroundings
 * @property {RunAnswer | undefined} run the answer of `api/run`, if it is there yet
 * @property {Error | null} runError why it isn't
 * @property {(place: Partial<Route> | null) => void} setPlace
 */

export const SurroundingsContext = createContext(
  /** @type {Surroundings} */ ({
    run: undefined,
    runError: null,
    setPlace: () => {},
  }),
);

/** @returns {Surroundings} */
export function useSurroundings() {
  return useContext(SurroundingsContext);
}

/**
 * Tell the frame where a page is if its address doesn't say it: breadcrumbs, title, Escape and `t` follow.
 *
 * @param {Partial<Route> | null} place `step`, `sample`, `rollout` as in an address, and the selection
 */
export function usePlace(place) {
  const { setPlace } = useSurroundings();
  const text = place && JSON.stringify(place);
  useEffect(() => {
    setPlace(text === null ? null : JSON.parse(text));
    return () => setPlace(null);
  }, [text]);
}
