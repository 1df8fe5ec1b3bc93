import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact_hooks.js";
import { decimal, duration, timeOnAxis, visible } from "../data/formats.js";
import { KINDS, RUNNING, panBy, segmentAt, ticks, visibleLanes, zoomAt } from "../data/lanes.js";
import { drawLanes } from "../data/timeline_drawing.js";
import { html } from "./html.js";
import { useKeys } from "./keys.js";

/** @import { Segment, View } from "../data/lanes.js" */
/** @import { Colours } from "../data/timeline_drawing.js" */
/** @import { TimelineLane } from "../data/types.d.ts" */

/** Pixels beside a segment that count as on it. */
const SLACK = 3;
/** The width of a time on the axis, in pixels. */
const AXIS_TEXT = 64;
/** A turn of the wheel by a line, in pixels. */
const LINE = 16;

/**
 * The lanes of a step on a canvas: only those in view are drawn.
 *
 * @param {object} props
 * @param {TimelineLane[]} props.lanes
 * @param {string[]} props.names
 * @param {number[]} props.order positions of lanes from top to bottom
 * @param {View} props.bounds
 * @param {View} props.view
 * @param {(view: View) => void} props.onView
 * @param {number} props.laneHeight
 * @param {number | null} props.since
 * @param {Set<string>} props.late the trajectories that the step waited for
 * @param {(lane: TimelineLane) => void} props.onOpen
 */
export function TimelineCanvas({ lanes, names, order, bounds, view, onView, laneHeight, since, late, onOpen }) {
  const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [chosenId, setChosenId] = useState(/** @type {string | null} */ (null));
  // The place changes while trajectories come in.
  const chosen = useMemo(() => placeOf(chosenId, lanes, order), [chosenId, lanes, order]);
  const [hover, setHover] = useState(
    /** @type {{place: number, segment: Segment | null, x: number, y: number} | null} */ (null),
  );
  const colours = useColours();
  const latest = useRef({ view, bounds, onView });
  latest.current = { view, bounds, onView };

  const draw = () => {
    const context = canvas.current?.getContext("2d");
    if (!context || !canvas.current || !scroller.current) return;
    const ratio = devicePixelRatio || 1;
    const { width, height } = size;
    if (canvas.current.width !== Math.round(width * ratio)) canvas.current.width = Math.round(width * ratio);
    if (canvas.current.height !== Math.round(height * ratio)) canvas.current.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const top = scroller.current.scrollTop;
    const shown = visibleLanes(top, height, laneHeight, order.length);
    drawLanes(
      context,
      {
        lanes,
        order,
        visible: shown,
        top,
        laneHeight,
        width,
        height,
        view,
        since,
        late,
        chosen,
      },
      colours,
    );
  };
  const drawLatest = useRef(draw);
  drawLatest.current = draw;
  useLayoutEffect(draw);
  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    let frame = 0;
    const onScroll = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => drawLatest.current());
      setHover(null);
    };
    element.addEventListener("scroll", onScroll, { passive: true });
    const stop = takeGestures(element, latest);
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame);
      element.removeEventListener("scroll", onScroll);
      stop();
    };
  }, []);

  const choose = (/** @type {number} */ place) => {
    const next = Math.max(0, Math.min(order.length - 1, place));
    setChosenId(lanes[order[next]].trace_id);
    const element = scroller.current;
    if (!element) return;
    const [top, bottom] = [next * laneHeight, (next + 1) * laneHeight];
    if (top < element.scrollTop) element.scrollTop = top;
    else if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight;
  };
  useKeys([
    { key: "j", does: "next lane", run: () => choose((chosen ?? -1) + 1) },
    { key: "k", does: "previous lane", run: () => choose((chosen ?? 1) - 1) },
    {
      key: "Enter",
      does: "open the lane's trajectory",
      run: () => chosen !== null && onOpen(lanes[order[chosen]]),
    },
    {
      key: "+",
      does: "zoom in",
      run: () => onView(zoomAt(view, 1.5, 0.5, bounds)),
    },
    {
      key: "-",
      does: "zoom out",
      run: () => onView(zoomAt(view, 1 / 1.5, 0.5, bounds)),
    },
    {
      key: "ArrowRight",
      does: "later",
      run: () => onView(panBy(view, 0.2, bounds)),
    },
    {
      key: "ArrowLeft",
      does: "earlier",
      run: () => onView(panBy(view, -0.2, bounds)),
    },
    { key: "0", does: "the whole time", run: () => onView(bounds) },
  ]);

  const find = (/** @type {MouseEvent} */ event) => {
    const box = scroller.current?.getBoundingClientRect();
    if (!box || !scroller.current) return null;
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const place = Math.floor((y + scroller.current.scrollTop) / laneHeight);
    if (place < 0 || place >= order.length) return null;
    const perPixel = (view.to - view.from) / Math.max(1, size.width);
    const time = view.from + x * perPixel;
    return {
      place,
      segment: segmentAt(lanes[order[place]], names, time, SLACK * perPixel),
      x,
      y,
      time,
    };
  };
  const label = chosen === null ? undefined : describe(lanes[order[chosen]]);
  const length = Math.max(1, view.to - view.from);
  const inView = ticks(view, Math.max(2, Math.floor(size.width / 110)));
  const every = inView.length > 1 ? inView[1] - inView[0] : length;
  // The last one may have no room for its text.
  const times = inView.filter((time) => ((view.to - time) / length) * size.width >= AXIS_TEXT);
  return html`<div class="timeline-box">
    <div class="timeline-axis weak" aria-hidden="true">
      ${times.map(
        (time) =>
          html`<span key=${time} style=${{ left: `${((time - view.from) / length) * 100}%` }}
            >${timeOnAxis(time / 1e6, every / 1e6)}</span
          >`,
      )}
    </div>
    <div
      ref=${scroller}
      class="timeline-lanes"
      tabindex="0"
      role="region"
      aria-label="lanes of trajectories; a table of the slowest is below"
      onPointerMove=${(/** @type {PointerEvent} */ event) => setHover(event.pointerType === "touch" ? null : find(event))}
      onPointerLeave=${() => setHover(null)}
      onClick=${(/** @type {MouseEvent} */ event) => {
        const found = find(event);
        if (found) onOpen(lanes[order[found.place]]);
      }}
    >
      <canvas
        ref=${canvas}
        style=${{ width: `${size.width}px`, height: `${size.height}px` }}
        aria-hidden="true"
      ></canvas>
      <div
        class="timeline-space"
        style=${{ height: `${order.length * laneHeight}px` }}
      ></div>
    </div>
    ${hover ? html`<${Hover} ...${hover} lane=${lanes[order[hover.place]]} width=${size.width} />` : null}
    <p class="hidden-label" role="status">${label}</p>
  </div>`;
}

/** @param {{lane: TimelineLane, segment: Segment | null, x: number, y: number, width: number}} props */
function Hover({ lane, segment, x, y, width }) {
  const isRight = x > width / 2;
  const style = isRight
    ? { right: `${width - x + 12}px`, top: `${y + 40}px` }
    : { left: `${x + 12}px`, top: `${y + 40}px` };
  return html`<div class="timeline-hover" style=${style}>
    <b>${describe(lane)}</b>
    <div>
      ${`${duration((lane.end - lane.start) / 1e6)} ${lane.status === RUNNING ? "so far" : `in all, ended at ${duration(lane.end / 1e6)}`}`}
    </div>
    ${
      segment
        ? html`<div class=${segment.isError ? "failure" : ""}>
            ${KINDS[segment.kind] === "other" ? "" : `${KINDS[segment.kind]} · `}${visible(segment.name)}
            ·
            ${duration(segment.duration / 1e6)}${segment.isError ? " · failed" : ""}
          </div>`
        : html`<div class="weak">waiting</div>`
    }
  </div>`;
}

/**
 * Return the place of a trajectory's lane in the order; null if there is none.
 *
 * @param {string | null} traceId
 * @param {TimelineLane[]} lanes
 * @param {number[]} order
 */
function placeOf(traceId, lanes, order) {
  const place = traceId === null ? -1 : order.findIndex((at) => lanes[at].trace_id === traceId);
  return place < 0 ? null : place;
}

/** @param {TimelineLane} lane */
function describe({ sample_index: sample, rollout_n: rollout, status, reward }) {
  const ended = reward === null ? (status ?? "no end yet") : `${status ?? "no end yet"}, reward ${decimal(reward)}`;
  return visible(`sample ${sample ?? "none"}, rollout ${rollout ?? "none"}: ${ended}`);
}

/**
 * Zoom and pan by wheel and by two fingers, until the returned function is called.
 *
 * @param {HTMLElement} element
 * @param {{current: {view: View, bounds: View, onView: (view: View) => void}}} latest
 */
function takeGestures(element, latest) {
  const placeOf = (/** @type {number} */ x) => {
    const box = element.getBoundingClientRect();
    return Math.max(0, Math.min(1, (x - box.left) / Math.max(1, box.width)));
  };
  const onWheel = (/** @type {WheelEvent} */ event) => {
    const { view, bounds, onView } = latest.current;
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      event.preventDefault();
      onView(zoomAt(view, Math.exp(-event.deltaY * unit * 0.01), placeOf(event.clientX), bounds));
      return;
    }
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (!across || (!event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY))) return;
    event.preventDefault();
    onView(panBy(view, (across * unit) / Math.max(1, element.clientWidth), bounds));
  };
  /** @type {Map<number, PointerEvent>} */
  const fingers = new Map();
  const onDown = (/** @type {PointerEvent} */ event) => {
    if (event.pointerType === "touch") fingers.set(event.pointerId, event);
  };
  const onMove = (/** @type {PointerEvent} */ event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    fingers.set(event.pointerId, event);
    if (fingers.size !== 2) return;
    const [other] = [...fingers.values()].filter((each) => each.pointerId !== event.pointerId);
    const { view, bounds, onView } = latest.current;
    const [was, is] = [Math.abs(before.clientX - other.clientX), Math.abs(event.clientX - other.clientX)];
    if (was > 10 && is > 10) onView(zoomAt(view, is / was, placeOf((event.clientX + other.clientX) / 2), bounds));
  };
  const onUp = (/** @type {PointerEvent} */ event) => void fingers.delete(event.pointerId);
  element.addEventListener("wheel", onWheel, { passive: false });
  element.addEventListener("pointerdown", onDown);
  element.addEventListener("pointermove", onMove);
  element.addEventListener("pointerup", onUp);
  element.addEventListener("pointercancel", onUp);
  return () => {
    element.removeEventListener("wheel", onWheel);
    element.removeEventListener("pointerdown", onDown);
    element.removeEventListener("pointermove", onMove);
    element.removeEventListener("pointerup", onUp);
    element.removeEventListener("pointercancel", onUp);
  };
}

/**
 * Return the colours of the theme, and anew when it changes.
 *
 * @returns {Colours}
 */
function useColours() {
  const [colours, setColours] = useState(readColours);
  useEffect(() => {
    const read = () => setColours(readColours());
    const observer = new MutationObserver(read);
    observer.observe(document.documentElement, {
      attributes: true,
      attributeFilter: ["data-theme"],
    });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", read);
    return () => {
      observer.disconnect();
      dark.removeEventListener("change", read);
    };
  }, []);
  return colours;
}

/** @returns {Colours} */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  return {
    kinds: Object.fromEntries(KINDS.map((kind) => [kind, of(`kind-${kind}`)])),
    failed: of("bad"),
    chosen: of("accent-soft"),
    since: of("warning-soft"),
    late: of("warning"),
  };
}
