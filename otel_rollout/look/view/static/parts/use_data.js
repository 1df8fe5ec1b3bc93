import { onChange } from "../data/changes.js";
import { load } from "../data/client.js";
import { useEffect, useRef, useState } from "../vendor/preact_hooks.js";

/** The answers of the last pages, so that Back shows them at once. */
const KEPT = 8;
/** @type {Map<string, any>} */
const kept = new Map();

/** A page that took long to load isn't loaded anew at once: the server has other work too. */
const SHORTEST_PAUSE = 1000;
const PAUSE_BY_LOADING_TIME = 4;

/**
 * Load an answer of the server, and anew when the folders change; the last one stays meanwhile.
 *
 * @param {string | null} path one of `paths`; null: nothing yet
 * @returns {{data: any, error: Error | null, isLoading: boolean}} `data` is undefined until it is there
 */
export function useData(path) {
  const [state, setState] = useState({
    path,
    data: recall(path),
    error: /** @type {Error | null} */ (null),
  });
  const latest = useRef(path);
  latest.current = path;
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let isBusy = false;
    let isStale = false;
    const reload = async () => {
      isBusy = true;
      isStale = false;
      const began = performance.now();
      try {
        const data = await load(path, { signal: stop.signal, before: recall(path) });
        keep(path, data);
        if (latest.current === path) setState({ path, data, error: null });
      } catch (error) {
        if (stop.signal.aborted) return;
        setState((old) => ({
          path,
          data: old.path === path ? old.data : undefined,
          error: /** @type {Error} */ (error),
        }));
      }
      timer = setTimeout(
        () => {
          isBusy = false;
          // The end of a reading changes no folder, so that nothing may tell of it.
          if (isStale || recall(path)?.progress) reload();
        },
        Math.max(SHORTEST_PAUSE, PAUSE_BY_LOADING_TIME * (performance.now() - began)),
      );
    };
    reload();
    const ignore = onChange(({ version, progress }) => {
      const known = recall(path);
      const isReading = known && "progress" in known && (progress || known.progress);
      // The connection begins with the version that there is.
      if (known && known.version === version && !isReading) return;
      isStale = true;
      if (!isBusy) reload();
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
      ignore();
    };
  }, [path]);
  const isCurrent = state.path === path;
  const data = isCurrent ? state.data : recall(path);
  const error = isCurrent ? state.error : null;
  return {
    data,
    error,
    isLoading: path !== null && data === undefined && error === null,
  };
}

/**
 * @param {string} path
 * @param {any} data
 */
function keep(path, data) {
  kept.delete(path);
  kept.set(path, data);
  for (const oldest of kept.keys()) {
    if (kept.size <= KEPT) break;
    kept.delete(oldest);
  }
}

/** @param {string | null} path */
function recall(path) {
  return path === null ? undefined : kept.get(path);
}
