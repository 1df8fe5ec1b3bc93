import { load } from "../data/client.js";
import { useEffect, useState } from "../vendor/preact_hooks.js";

/**
 * Load an answer again and again while the page is in view; the last one stays meanwhile.
 *
 * @param {string} path one of `paths`
 * @param {number} milliseconds between two requests
 * @returns {{data: any, error: Error | null}} `data` is undefined until it is there
 */
export function usePolled(path, milliseconds) {
  const [state, setState] = useState({
    data: /** @type {any} */ (undefined),
    error: /** @type {Error | null} */ (null),
  });
  useEffect(() => {
    const stop = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const reload = async () => {
      if (!document.hidden) {
        try {
          const data = await load(path, { signal: stop.signal });
          setState({ data, error: null });
        } catch (error) {
          if (stop.signal.aborted) return;
          setState((old) => ({ ...old, error: /** @type {Error} */ (error) }));
        }
      }
      timer = setTimeout(reload, milliseconds);
    };
    reload();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, milliseconds]);
  return state;
}
