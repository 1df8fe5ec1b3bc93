import { layOutLanes, nearestTurn, turnCount } from "../data/conversation_lanes.js";
import { compact, counted, visible } from "../data/formats.js";
import { useEffect, useMemo, useRef, useState } from "../vendor/preact_hooks.js";
import { NotTrained } from "./conversation_head.js";
import { html } from "./html.js";
import { NARROW, useMedia } from "./use_media.js";

/** @import { Lanes } from "../data/conversation_lanes.js" */
/** @import { Conversation } from "../data/types.d.ts" */

/** Pixels of a lane, the most from a turn to the next, and those of the whole picture where there are many turns. */
const LANE = 22;
const MOST_ACROSS = 36;
const MOST_ACROSS_NARROW = 22;
const MOST_WIDTH = 1200;
/** Pixels of the small picture. */
const SMALL = { lane: 9, across: 12, width: 210, height: 90 };

/**
 * The conversations of a trajectory: a lane for each, with a dot for each turn that leads to it.
 *
 * @param {object} props
 * @param {Conversation[]} props.conversations
 * @param {Map<number, string>} props.names
 * @param {number | null} props.turn the chosen one
 * @param {Set<number>} props.failed
 * @param {(turn: number) => void} props.onTurn
 */
export function TurnLanes({ conversations, names, turn, failed, onTurn }) {
  const count = turnCount(conversations);
  const isNarrow = useMedia(NARROW);
  const across = Math.min(isNarrow ? MOST_ACROSS_NARROW : MOST_ACROSS, MOST_WIDTH / count);
  const drawn = useMemo(() => layOutLanes(conversations, { across, down: LANE }), [conversations, across]);
  const byTurn = useMemo(
    () => new Map(drawn.lanes.flatMap((lane, at) => lane.conversation.turns.map((each) => [each, at]))),
    [drawn],
  );
  const [pointed, setPointed] = useState(/** @type {number | null} */ (null));
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const xOf = (/** @type {number} */ each) => (each - 0.5) * across;
  const yOf = (/** @type {number} */ each) => drawn.lanes[byTurn.get(each) ?? 0].y;
  const wordsOf = (/** @type {number} */ each) => {
    const { conversation } = drawn.lanes[byTurn.get(each) ?? 0];
    const isUntrained = conversation.trained === false;
    return `turn ${each} of ${visible(names.get(conversation.id))}${failed.has(each) ? ", failed" : ""}${isUntrained ? ", not trained" : ""}`;
  };
  useEffect(() => {
    const element = scroller.current;
    if (!element || turn === null) return;
    const left = xOf(turn);
    if (left < element.scrollLeft || left > element.scrollLeft + element.clientWidth)
      element.scrollLeft = left - element.clientWidth / 2;
  }, [turn]);
  const turnAt = (/** @type {MouseEvent & {currentTarget: HTMLElement}} */ event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const at = Math.max(0, Math.min(drawn.lanes.length - 1, Math.floor((event.clientY - box.top) / LANE)));
    return nearestTurn(drawn.lanes[at].conversation, (event.clientX - box.left) / across + 0.5);
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const here = turn ?? 0;
    const lane = byTurn.get(here) ?? 0;
    const beside = (/** @type {number} */ by) => {
      const next = drawn.lanes[lane + by];
      return next ? nearestTurn(next.conversation, here) : null;
    };
    /** @type {Record<string, number | null>} */
    const places = {
      ArrowRight: Math.min(count, here + 1),
      ArrowLeft: Math.max(1, here - 1),
      ArrowUp: beside(-1),
      ArrowDown: beside(1),
      Home: 1,
      End: count,
    };
    if (!(event.key in places)) return;
    event.preventDefault();
    const next = places[event.key];
    if (next !== null) onTurn(next);
  };
  return html`<section class="turn-lanes" aria-label="conversations">
    <ol class="lane-names">
      ${drawn.lanes.map(
        ({ conversation, depth }) =>
          html`<li
            key=${conversation.id}
            style=${{ height: `${LANE}px`, paddingLeft: `${Math.min(depth, 4) * 0.7}rem` }}
          >
            <button
              type="button"
              class="link said"
              title=${`${visible(names.get(conversation.id))}: ${amountsOf(conversation)}`}
              onClick=${() => onTurn(conversation.turns[0])}
            >
              ${visible(names.get(conversation.id))}
            </button>
            <span class="weak">${counted(conversation.turns.length, "turn")}</span>
            <${NotTrained} conversation=${conversation} />
          </li>`,
      )}
    </ol>
    <div ref=${scroller} class="lanes-scroll">
      <div
        class="lanes-picture"
        role="slider"
        tabindex="0"
        aria-label="turn"
        aria-valuemin="0"
        aria-valuemax=${count}
        aria-valuenow=${turn ?? 0}
        aria-valuetext=${turn === null ? "no turn is chosen" : wordsOf(turn)}
        title=${pointed === null ? undefined : wordsOf(pointed)}
        style=${{ width: `${drawn.width}px` }}
        onKeyDown=${onKeyDown}
        onPointerMove=${(/** @type {any} */ event) => setPointed(turnAt(event))}
        onClick=${(/** @type {any} */ event) => {
          const found = turnAt(event);
          if (found !== null) onTurn(found);
        }}
      >
        <${Picture} drawn=${drawn} dot=${Math.max(3, Math.min(10, across * 0.7))}>
          <path
            class="failed-dots"
            d=${[...failed]
              .filter((each) => byTurn.has(each))
              .map((each) => `M${xOf(each)} ${yOf(each)}h0`)
              .join("")}
          />
          ${turn !== null && byTurn.has(turn) ? html`<circle class="chosen-dot" cx=${xOf(turn)} cy=${yOf(turn)} r="8" />` : null}
        </${Picture}>
      </div>
    </div>
  </section>`;
}

/**
 * The lanes of a trajectory's conversations, small.
 *
 * @param {{conversations: Conversation[], names: Map<number, string>}} props
 */
export function SmallLanes({ conversations, names }) {
  const across = Math.min(SMALL.across, SMALL.width / turnCount(conversations));
  const down = Math.min(SMALL.lane, SMALL.height / conversations.length);
  const drawn = useMemo(() => layOutLanes(conversations, { across, down }), [conversations]);
  const words = drawn.lanes.map(({ conversation }) => {
    const isUntrained = conversation.trained === false;
    return `${visible(names.get(conversation.id))} ${amountsOf(conversation)}${isUntrained ? ", not trained" : ""}`;
  });
  return html`<div class="small-lanes" role="img" aria-label=${`conversations: ${words.join("; ")}`} title=${words.join("\n")}>
    <${Picture} drawn=${drawn} dot=${Math.max(1.5, Math.min(5, across * 0.6, down * 0.7))} />
  </div>`;
}

/** @param {{drawn: Lanes, dot: number, children?: any}} props `dot`: the width of a dot in pixels */
function Picture({ drawn, dot, children }) {
  const { lanes, edges, width, height } = drawn;
  // An × stands behind the last turn.
  const all = width + 2 * dot + 4;
  return html`<svg
    class="lanes"
    width=${all}
    height=${height}
    viewBox=${`0 0 ${all} ${height}`}
    aria-hidden="true"
    style=${{ "--dot": `${dot}px` }}
  >
    ${edges.map(({ path, kind }, at) => html`<path key=${at} class="edge edge-${kind}" d=${path} />`)}
    ${lanes.map(
      ({ conversation, line, dots, end, y }) =>
        html`<g
          key=${conversation.id}
          class="lane lane-${conversation.kind} ${conversation.trained === false ? "lane-untrained" : ""}"
        >
          <path class="lane-line" d=${line} />
          <path class="lane-dots" d=${dots} />
          ${
            conversation.trained === false
              ? html`<text x=${end + dot * 0.5 + 2} y=${y + dot * 0.35 + 1} font-size=${Math.max(7, dot * 1.3)}>×</text>`
              : null
          }
        </g>`,
    )}
    ${children}
  </svg>`;
}

/** @param {Conversation} conversation */
function amountsOf({ turns, input_tokens: input, output_tokens: output }) {
  return `${counted(turns.length, "turn")}, ${compact(input) || "?"} → ${compact(output) || "?"} tokens`;
}
