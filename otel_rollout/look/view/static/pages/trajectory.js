import { useMemo, useState } from "../vendor/preact_hooks.js";
import { conversationCounts, conversationNames } from "../data/branches.js";
import { paths } from "../data/client.js";
import { compact, counted, duration, signed, visible, whole } from "../data/formats.js";
import { addressOf, inAddress, navigate } from "../data/router.js";
import { rewardRange } from "../data/selection.js";
import { showCommand } from "../data/show_command.js";
import { RewardBadge, StatusBadge } from "../parts/badges.js";
import { Conversation } from "../parts/conversation.js";
import { CopyButton } from "../parts/copy_button.js";
import { html } from "../parts/html.js";
import { useKeys } from "../parts/keys.js";
import { usePlace, useSurroundings } from "../parts/place.js";
import { RewardParts } from "../parts/rollout_head.js";
import { RunningNow } from "../parts/running_now.js";
import { SpanPanel } from "../parts/span_panel.js";
import { EmptyState, ErrorState, LoadingState } from "../parts/states.js";
import { TurnLanes } from "../parts/turn_lanes.js";
import { useData } from "../parts/use_data.js";
import { NARROW, useMedia } from "../parts/use_media.js";
import { Waterfall } from "../parts/waterfall.js";

/** @import { GroupAnswer, Route, Span, TrajectoryAnswer } from "../data/types.d.ts" */

/** @typedef {"conversation" | "waterfall" | "lanes" | "address"} From the place where a span is chosen */
/** @typedef {{spanId: string, from: From}} Chosen */

/** @param {{route: Route}} props */
export function TrajectoryPage({ route }) {
  const isById = route.traceId !== undefined;
  const group = useData(isById ? null : paths.group(route.step ?? "none", route.sample ?? "none", route));
  const traceId = route.traceId ?? traceIdOf(group.data, route.rollout);
  const { data, error } = useData(traceId === undefined ? null : paths.trajectory(traceId));
  const trajectory = /** @type {TrajectoryAnswer | undefined} */ (data);
  usePlace(trajectory && isById ? placeOf(trajectory) : null);
  const go = (/** @type {string | null | undefined} */ next) => {
    if (next != null) navigate(addressIn(route, group.data, next));
  };
  useKeys([
    { key: "j", does: "next rollout", run: () => go(trajectory?.next) },
    { key: "k", does: "previous rollout", run: () => go(trajectory?.previous) },
  ]);
  if (trajectory)
    return html`<${Trajectory}
      key=${traceId}
      trajectory=${trajectory}
      route=${route}
      go=${go}
    />`;
  const failure = error ?? group.error;
  if (failure)
    return html`${traceId === undefined ? null : html`<${RunningNow} traceId=${traceId} />`}
      <${ErrorState} error=${failure} />`;
  if (group.data && traceId === undefined) {
    return html`<${EmptyState} title=${`No rollout ${visible(route.rollout)}`}>
      <a href=${addressOf({ ...route, page: "group", query: {} })}>The rollouts of this prompt</a>
    </${EmptyState}>`;
  }
  return html`<${LoadingState}>Reading the trajectory …</${LoadingState}>`;
}

/** @param {{trajectory: TrajectoryAnswer, route: Route, go: (traceId: string | null) => void}} props */
function Trajectory({ trajectory, route, go }) {
  const { conversation, conversations, spans, summary } = trajectory;
  const isNarrow = useMedia(NARROW);
  const [tab, setTab] = useState("conversation");
  const [from, setFrom] = useState(/** @type {From} */ ("address"));
  const byId = useMemo(() => new Map(spans.map((span) => [span.span_id, span])), [spans]);
  const spanId = route.query.span;
  const listed = spanId === undefined ? undefined : byId.get(spanId);
  // The address may name a span that a very long list leaves out.
  const unlisted = useData(spanId === undefined || listed ? null : paths.span(summary.trace_id, spanId));
  const span = listed ?? /** @type {Span | undefined} */ (unlisted.data);
  const chosen = useMemo(() => (span ? { spanId: span.span_id, from } : null), [span?.span_id, from]);
  const family = useMemo(() => (span ? familyOf(span, byId, spans) : []), [span, byId]);
  const spanOf = (/** @type {string | null} */ id) => (id === null ? undefined : byId.get(id));
  const choose = (/** @type {string | null} */ id, /** @type {From} */ where) => {
    setFrom(where);
    navigate(addressOf({ ...route, query: { ...route.query, span: id ?? "" } }), { replace: true });
  };
  const names = useMemo(() => conversationNames(conversations), [conversations]);
  const spanOfTurn = useMemo(() => spansOfTurns(trajectory), [trajectory]);
  const failed = useMemo(() => failedTurns(spans), [spans]);
  const goToTurn = (/** @type {number} */ turn) => {
    const id = spanOfTurn.get(turn);
    if (id === undefined) return;
    setTab("conversation");
    choose(id, "lanes");
  };
  useKeys(
    span
      ? [
          {
            key: "Escape",
            does: "close the span",
            run: () => choose(null, "waterfall"),
          },
        ]
      : [],
  );
  const panes = {
    conversation: html`<${Conversation}
      ...${{ conversation, conversations, names, spanOf, chosen, family }}
      onTurn=${goToTurn}
      onSelect=${(/** @type {string} */ id) => choose(id, "conversation")}
    />`,
    spans: html`<div class="spans-pane ${span ? "has-panel" : ""}">
      <${Waterfall}
        ...${{ spans, names, chosen }}
        onSelect=${(/** @type {string} */ id) => choose(id, "waterfall")}
      />
      ${span ? html`<${SpanPanel} traceId=${summary.trace_id} ...${{ span, spans }} onClose=${() => choose(null, "waterfall")} />` : null}
    </div>`,
  };
  const tabs = /** @type {["conversation", "spans"]} */ (["conversation", "spans"]);
  return html`<div class="trajectory-page">
    <${TrajectoryHeader} trajectory=${trajectory} go=${go} />
    ${summary.has_root ? null : html`<${RunningNow} traceId=${summary.trace_id} />`}
    ${
      isNarrow
        ? html`<div
            class="switcher"
            role="group"
            aria-label="conversation or spans"
          >
            ${tabs.map(
              (name) =>
                html`<button
                  key=${name}
                  type="button"
                  aria-pressed=${tab === name}
                  onClick=${() => setTab(name)}
                >
                  ${name}
                </button>`,
            )}
          </div>`
        : null
    }
    ${conversations.length > 1 ? html`<${TurnLanes} ...${{ conversations, names, failed }} turn=${span?.turn ?? null} onTurn=${goToTurn} />` : null}
    <${LeftOut} messages=${trajectory.left_out ?? 0} spans=${trajectory.spans_left_out ?? 0} />
    <div class="panes">
      ${tabs.filter((name) => !isNarrow || name === tab).map((name) => html`<div key=${name} class="pane">${panes[name]}</div>`)}
    </div>
  </div>`;
}

/** @param {{messages: number, spans: number}} props */
function LeftOut({ messages, spans }) {
  const parts = [messages ? counted(messages, "message") : "", spans ? counted(spans, "span") : ""].filter(Boolean);
  if (!parts.length) return null;
  return html`<p class="new-prompt">${`This trajectory is very long: ${parts.join(" and ")} of its middle are left out here.`}</p>`;
}

/** @param {{trajectory: TrajectoryAnswer, go: (traceId: string | null) => void}} props */
function TrajectoryHeader({ trajectory, go }) {
  const { summary, spans, previous, next, attempt, is_overtaken: isOvertaken } = trajectory;
  const { run } = useSurroundings();
  const seconds = (summary.end_time - summary.start_time) / 1e9;
  const neighbour = (/** @type {string | null} */ traceId, /** @type {string} */ words, /** @type {string} */ key) =>
    html`<button
      type="button"
      disabled=${traceId === null}
      onClick=${() => go(traceId)}
    >
      ${words} <kbd>${key}</kbd>
    </button>`;
  return html`<header class="trajectory-header">
    <div class="group-title">
      <h1>${visible(titleOf(summary))}</h1>
      <p class="facts">
        <${RewardBadge} reward=${summary.reward} ...${rewardRange(summary)} />
        <${StatusBadge} status=${summary.status} hasRoot=${summary.has_root} error=${summary.error_type} />
        ${summary.finish_reason ? html`<span>finish reason ${visible(summary.finish_reason)}</span>` : null}
        ${summary.advantage === null ? null : html`<span title="advantage">A ${signed(summary.advantage)}</span>`}
        ${summary.fate === null ? null : html`<span class="fate" title="what training did with it">${visible(summary.fate)}</span>`}
        ${summary.fate_reason ? html`<span class="fate-reason" title="why">${visible(summary.fate_reason)}</span>` : null}
        <span>${compact(summary.input_tokens) || "?"} → ${compact(summary.output_tokens) || "?"} tokens</span>
        ${summary.turns === null ? null : html`<span>${whole(summary.turns)} ${summary.turns === 1 ? "turn" : "turns"}</span>`}
        ${conversationCounts(summary).map((each) => html`<span key=${each}>${each}</span>`)}
        <span title=${`generating ${duration(summary.llm_seconds)}, tools ${duration(summary.tool_seconds)}, reward ${duration(summary.reward_seconds)}, waiting ${duration(summary.waiting_seconds)}`}>${duration(seconds)}${summary.has_root ? "" : " until the end of its last span"}</span>
        ${isOvertaken ? html`<span class="warning">attempt ${attempt}: a later one has overtaken it, and it counts in no step</span>` : null}
        ${summary.dropped_spans ? html`<span class="warning">${whole(summary.dropped_spans)} spans dropped</span>` : null}
        ${summary.truncated_bytes ? html`<span class="warning">${whole(summary.truncated_bytes)} bytes of payload cut</span>` : null}
        ${summary.redacted ? html`<span title="replaced by redaction">${whole(summary.redacted)} ${summary.redacted === 1 ? "secret" : "secrets"} replaced</span>` : null}
      </p>
      <${RewardParts} parts=${summary.reward_parts} />
    </div>
    <nav class="neighbours" aria-label="other rollouts of this prompt">
      <${CopyButton} text=${() => showCommand(summary, run?.folders ?? [])} title="otel-rollout show …">Copy command</${CopyButton}>
      <${CopyButton} text=${summary.trace_id} title=${summary.trace_id}>Copy trace id</${CopyButton}>
      <${CopyButton} text=${() => JSON.stringify({ summary, spans }, null, 2)} title="The summary and the spans; long texts are cut">Copy JSON</${CopyButton}>
      <span class="pair">${neighbour(previous, "←", "k")} ${neighbour(next, "→", "j")}</span>
    </nav>
  </header>`;
}

/** @param {TrajectoryAnswer["summary"]} summary */
function titleOf({ prompt, name, trace_id: traceId }) {
  return prompt || name || traceId;
}

/**
 * @param {GroupAnswer | undefined} group
 * @param {string | undefined} rollout
 */
function traceIdOf(group, rollout) {
  const at = group?.summary.rollout_ns.findIndex((each) => inAddress(each) === rollout) ?? -1;
  return at < 0 ? undefined : group?.summary.trace_ids[at];
}

/** @param {TrajectoryAnswer} trajectory */
function placeOf({ group, summary }) {
  return {
    step: inAddress(group.step),
    sample: inAddress(group.sample_index),
    rollout: inAddress(summary.rollout_n),
    validate: group.validate,
    experiment: group.experiment,
    run: group.run,
  };
}

/**
 * Return the address of another trajectory of the group, by its rollout if that says which.
 *
 * @param {Route} route
 * @param {GroupAnswer | undefined} group
 * @param {string} traceId
 */
function addressIn(route, group, traceId) {
  const numbers = group?.summary.rollout_ns ?? [];
  const number = numbers[group?.summary.trace_ids.indexOf(traceId) ?? -1];
  if (number == null || numbers.filter((each) => each === number).length !== 1) {
    return addressOf({ page: "trajectory", traceId });
  }
  return addressOf({ ...route, rollout: String(number), query: {} });
}

/**
 * Return the span of each turn: of a long trajectory, also of turns whose spans are left out of the list.
 *
 * @param {TrajectoryAnswer} trajectory
 * @returns {Map<number, string>}
 */
function spansOfTurns({ conversation, spans }) {
  const found = new Map();
  for (const { turn, span_id: spanId } of [...conversation, ...spans]) if (turn !== null) found.set(turn, spanId);
  return found;
}

/**
 * Return the turns that failed.
 *
 * @param {Span[]} spans
 * @returns {Set<number>}
 */
function failedTurns(spans) {
  return new Set(spans.flatMap(({ turn, status }) => (turn !== null && status === "error" ? [turn] : [])));
}

/**
 * Return a span's id, those of its parents from near to far, then those of its children.
 *
 * @param {Span} span
 * @param {Map<string, Span>} byId
 * @param {Span[]} spans
 */
function familyOf(span, byId, spans) {
  const found = new Set([span.span_id]);
  for (let at = span; at.parent_id !== null && !found.has(at.parent_id);) {
    const parent = byId.get(at.parent_id);
    if (!parent) break;
    found.add(parent.span_id);
    at = parent;
  }
  for (const each of spans) if (each.parent_id === span.span_id) found.add(each.span_id);
  return [...found];
}
