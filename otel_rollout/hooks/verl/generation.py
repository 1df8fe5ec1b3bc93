"""Trace each turn of the model as one span, however often generation is aborted and resumed in it."""

from __future__ import annotations

from contextvars import ContextVar
from time import time_ns
from typing import Any, Final

from opentelemetry.trace import get_current_span

from otel_rollout import semconv
from otel_rollout.hooks import Call, Hook, Observer, after
from otel_rollout.hooks.verl.rollout import current_rollout
from otel_rollout.record import runtime
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.snapshot import take_snapshot

ABORTED: Final = "generation.aborted"
RESUMED: Final = "generation.resumed"

_ABORT_REASONS: Final = ("aborted", "abort")
_MODULE: Final = "verl.workers.rollout.llm_server"

_generation: Final[ContextVar[_Generation | None]] = ContextVar("otel-rollout-verl-generation", default=None)


def _observe_generate(call: Call) -> Observer:
    """Observe a turn, or an attempt in it: `FullyAsyncLLMServerClient.generate` calls its parent's once per attempt."""
    turn = _generation.get()
    return _Generation(call) if turn is None else _Attempt(turn)


class _Generation(Observer):
    """A running turn."""

    variable = _generation
    opens_span = True

    def __init__(self, call: Call) -> None:
        self.served: dict[str, Any] = {}
        """The current attempt's server and engine request."""
        self.is_aborted = False
        self._arguments = call.arguments
        request_id = call.arguments.get("request_id")
        self._request_id = str(request_id) if isinstance(request_id, (str, int)) else ""
        self._prompt_ids: Any = call.arguments.get("prompt_ids")

    def started(self) -> None:
        span, pipeline = get_current_span(), runtime.pipeline
        if pipeline is None or not (isinstance(span, RolloutSpan) and span.is_recording()):
            return
        span.set_attribute(semconv.REQUEST_ID, self._request_id)
        rollout = current_rollout()
        if rollout is not None and rollout.model is not None:
            span.set_attribute(semconv.REQUEST_MODEL, rollout.model)
        shown = dict(self._arguments)
        start = self._known_prefix()
        if start:
            # Each turn gets the whole conversation: ids of earlier turns are left out.
            shown["prompt_ids"] = self._prompt_ids[start:]
            shown["prompt_ids_start"] = start
        elif start is None:
            span.set_attribute(semconv.PREFIX_BROKEN, True)
        pipeline.tracer.set_input(
            span, take_snapshot({key: value for key, value in shown.items() if value is not None})
        )

    def fail(self, error: BaseException) -> None:
        get_current_span().set_attributes(self.served)

    def end(self, result: Any) -> None:
        """Record the turn's result, server and engine request."""
        span = get_current_span()
        if not span.is_recording():
            return
        extra = _extra_fields(result)
        oldest, newest = extra.get("min_global_steps"), extra.get("max_global_steps")
        version = extra.get("global_steps")
        cached = extra.get("num_cached_tokens")
        facts = {
            semconv.MIN_WEIGHTS_VERSION: version if oldest is None else oldest,
            semconv.MAX_WEIGHTS_VERSION: version if newest is None else newest,
            semconv.USAGE_CACHED_TOKENS: cached,
            semconv.PREEMPTIONS: getattr(result, "num_preempted", None),
        }
        known = {key: value for key, value in facts.items() if isinstance(value, (int, float, str))}
        span.set_attributes({**known, **self.served})
        rollout = current_rollout()
        if rollout is None:
            return
        rollout.last_action = "generate"
        rollout.stop_reason = getattr(result, "stop_reason", None)
        if isinstance(cached, int):
            rollout.cached_tokens = (rollout.cached_tokens or 0) + cached
        token_ids = getattr(result, "token_ids", None)
        if type(token_ids) is list and type(self._prompt_ids) is list:
            shown = rollout.sequences.setdefault(self._request_id, [])
            new = (*self._prompt_ids[shown[-1][0] if shown else 0 :], *token_ids)
            shown.append((len(self._prompt_ids) + len(token_ids), hash(new)))

    def _known_prefix(self) -> int | None:
        """Return the number of ids of the prompt that earlier turns recorded; None if it doesn't continue them."""
        rollout = current_rollout()
        known = rollout.sequences.get(self._request_id) if rollout is not None else None
        if not known or type(self._prompt_ids) is not list:
            return 0
        start = 0
        for end, expected in known:
            if hash(tuple(self._prompt_ids[start:end])) != expected:
                known.clear()
                return None
            start = end
        return start


class _Attempt(Observer):
    """A part of a turn that was aborted, or resumed an aborted one: an event of the turn's span."""

    def __init__(self, turn: _Generation) -> None:
        self._turn = turn
        read_time = getattr(get_current_span(), "now", time_ns)
        self._started = read_time()

    def end(self, result: Any) -> None:
        """Record the abort or the resumption."""
        turn, span = self._turn, get_current_span()
        reason = getattr(result, "stop_reason", None)
        facts = {
            semconv.WEIGHTS_VERSION: _extra_fields(result).get("global_steps"),
            semconv.NEW_TOKENS: len(getattr(result, "token_ids", None) or ()),
            semconv.STOP_REASON: reason,
            **turn.served,
        }
        facts = {key: value for key, value in facts.items() if value is not None}
        if turn.is_aborted:
            span.add_event(RESUMED, facts, self._started)
        turn.is_aborted = reason in _ABORT_REASONS
        if turn.is_aborted:
            span.add_event(ABORTED, facts)


def _note_server(call: Call, result: Any) -> None:
    turn = _generation.get()
    if turn is not None and isinstance(result, (tuple, list)) and isinstance(result[0], (str, int)):
        turn.served[semconv.SERVER] = str(result[0])


def _note_engine_request(call: Call, result: Any) -> None:
    """Note the engine's request id: vLLM's own spans carry it."""
    turn = _generation.get()
    if turn is not None and isinstance(result, (str, int)):
        turn.served[semconv.ENGINE_REQUEST_ID] = str(result)


def _extra_fields(output: Any) -> dict[str, Any]:
    extra = getattr(output, "extra_fields", None)
    return extra if isinstance(extra, dict) else {}


GENERATE: Final = Hook(
    _MODULE, "LLMServerClient.generate", "turns are not traced", _observe_generate, kind="LLM", captures=(False, True)
)

HOOKS: Final = (
    Hook(_MODULE, "LLMServerClient._acquire_server", "servers are not recorded", after(_note_server)),
    Hook(
        _MODULE,
        "LLMServerClient._vllm_request_id",
        "engine request ids are not recorded",
        after(_note_engine_request),
    ),
)
