import { KINDS, SEGMENT } from "./lanes.js";

/** @import { View } from "./lanes.js" */
/** @import { TimelineLane } from "./types.d.ts" */

/** Segments that hold others are drawn first. */
const DRAWN = [3, 0, 1, 2];
/** The narrowest segment, in pixels. */
const NARROWEST = 1;
/** The width of the mark of a lane that the step waited for. */
const LATE = 4;

/**
 * @typedef {object} Colours
 * @property {Record<string, string>} kinds by the names of `KINDS`
 * @property {string} failed
 * @property {string} chosen
 * @property {string} since
 * @property {string} late
 */

/**
 * The parts of the drawing.
 * @typedef {object} Scene
 * @property {TimelineLane[]} lanes
 * @property {number[]} order positions of lanes from top to bottom
 * @property {[number, number]} visible the first place that is in view and the one after the last
 * @property {number} top pixels that are scrolled
 * @property {number} laneHeight
 * @property {number} width
 * @property {number} height
 * @property {View} view
 * @property {number | null} since the time from which the step waited for the last
 * @property {Set<string>} late the trajectories that the step waited for
 * @property {number | null} chosen a place in the order
 */

/**
 * Draw the lanes that are in view.
 *
 * @param {CanvasRenderingContext2D} context in pixels of the page
 * @param {Scene} scene
 * @param {Colours} colours
 */
export function drawLanes(context, scene, colours) {
  const { lanes, order, visible, top, laneHeight, width, height, view, since, late, chosen } = scene;
  context.clearRect(0, 0, width, height);
  const scale = width / Math.max(1, view.to - view.from);
  const gap = laneHeight >= 6 ? 2 : laneHeight >= 3 ? 1 : 0;
  const bar = laneHeight - gap;
  const [first, end] = visible;
  if (since !== null) {
    const from = (since - view.from) * scale;
    context.fillStyle = colours.since;
    if (from < width) context.fillRect(Math.max(0, from), 0, width - Math.max(0, from), height);
  }
  if (chosen !== null && chosen >= first && chosen < end) {
    context.fillStyle = colours.chosen;
    context.fillRect(0, chosen * laneHeight - top - gap / 2, width, laneHeight);
  }
  context.fillStyle = colours.kinds.waiting;
  for (let place = first; place < end; place += 1) {
    const lane = lanes[order[place]];
    fill(
      context,
      (lane.start - view.from) * scale,
      (lane.end - view.from) * scale,
      place * laneHeight - top,
      bar,
      width,
    );
  }
  for (const kind of DRAWN) {
    context.fillStyle = colours.kinds[KINDS[kind]];
    for (let place = first; place < end; place += 1) {
      const { segments } = lanes[order[place]];
      const y = place * laneHeight - top;
      for (let at = 0; at < segments.length; at += SEGMENT) {
        if (segments[at] !== kind) continue;
        const from = (segments[at + 1] - view.from) * scale;
        fill(context, from, from + segments[at + 2] * scale, y, bar, width);
      }
    }
  }
  context.fillStyle = colours.late;
  for (let place = first; place < end; place += 1) {
    if (late.has(lanes[order[place]].trace_id)) {
      context.fillRect(0, place * laneHeight - top, LATE, bar);
    }
  }
  context.fillStyle = colours.failed;
  const mark = Math.max(1, Math.min(3, bar / 3));
  for (let place = first; place < end; place += 1) {
    const { segments } = lanes[order[place]];
    const y = place * laneHeight - top;
    for (let at = 0; at < segments.length; at += SEGMENT) {
      if (segments[at + 4] !== 2) continue;
      const from = (segments[at + 1] - view.from) * scale;
      fill(context, from, from + Math.max(3, segments[at + 2] * scale), y + bar - mark, mark, width);
    }
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} from
 * @param {number} to
 * @param {number} y
 * @param {number} height
 * @param {number} width
 */
function fill(context, from, to, y, height, width) {
  if (to < 0 || from > width) return;
  const left = Math.max(0, from);
  context.fillRect(left, y, Math.max(NARROWEST, Math.min(width, to) - left), height);
}
