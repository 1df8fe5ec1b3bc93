import { useEffect, useMemo, useReducer, useRef } from "../vendor/preact_hooks.js";
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "../vendor/virtual_core/index.js";

/**
 * Of a long list, only the part in view stands in the document.
 *
 * @param {object} options
 * @param {number} options.count
 * @param {(index: number) => number} options.sizeOf the height of an entry in pixels, or a guess for `measure`
 * @param {(index: number) => string | number} [options.keyOf]
 * @param {number} [options.paddingStart] what stands above the entries in the scrolling element
 * @returns {{scroller: {current: HTMLElement | null}, items: import("../vendor/virtual_core/index.js").VirtualItem[],
 *   height: number, show: (index: number) => void, measure: (element: HTMLElement | null) => void}} `scroller` is the
 *   ref of the element that scrolls; `measure` is the ref of entries with `data-index` whose height isn't known before
 */
export function useWindowed({ count, sizeOf, keyOf, paddingStart = 0 }) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const [, redraw] = useReducer((version) => version + 1, 0);
  const options = {
    count,
    estimateSize: sizeOf,
    getItemKey: keyOf,
    getScrollElement: () => scroller.current,
    observeElementOffset,
    observeElementRect,
    scrollToFn: elementScroll,
    overscan: 8,
    scrollPaddingStart: paddingStart,
    onChange: () => redraw(undefined),
  };
  const virtualizer = useMemo(() => new Virtualizer(definedOnly(options)), []);
  virtualizer.setOptions(definedOnly(options));
  useEffect(() => virtualizer._didMount(), []);
  useEffect(() => virtualizer._willUpdate());
  return {
    scroller,
    items: virtualizer.getVirtualItems(),
    height: virtualizer.getTotalSize(),
    show: (index) => virtualizer.scrollToIndex(index, { align: "auto" }),
    measure: virtualizer.measureElement,
  };
}

/**
 * @template {object} T
 * @param {T} options
 * @returns {any}
 */
function definedOnly(options) {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}
