import { parseAddress } from "../data/router.js";
import { useLayoutEffect, useState } from "../vendor/preact_hooks.js";

/** @import { Route } from "../data/types.d.ts" */

/**
 * Return the address that the browser shows.
 *
 * @returns {Route}
 */
export function useRoute() {
  const [route, setRoute] = useState(() => parseAddress(location.hash));
  // Not useEffect, which waits for a frame: an address that changes before that would be missed.
  useLayoutEffect(() => {
    const read = () => setRoute(parseAddress(location.hash));
    addEventListener("hashchange", read);
    addEventListener("popstate", read);
    return () => {
      removeEventListener("hashchange", read);
      removeEventListener("popstate", read);
    };
  }, []);
  return route;
}
