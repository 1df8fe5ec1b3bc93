"""One turn of the model: one span, however often generation is aborted and resumed inside it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar, Token
from time import time_ns
from typing import Any, Final

from opentelemetry.trace import get_current_span

from otel_rollout import runtime, semconv
from otel_rollout.call import Operation
from otel_rollout.integrations.verl import rollout as rollouts
from otel_rollout.log_once import internal_error
from otel_rollout.payload import snapshot

__all__ = ["note_engine_request", "note_server", "trace_generate"]

ABORTED: Final = "generation.aborted"
RESUMED: Final = "generation.resumed"

_ABORT_REASONS: Final = ("aborted", "abort")


class _Generation:
    """One turn that is running."""

    __slots__ = ("attempt", "is_aborted", "prompt_ids", "request_id", "token")

    def __init__(self, request_id: Any, prompt_ids: Any) -> None:
        self.request_id = request_id
        self.prompt_ids = prompt_ids
        self.attempt: dict[str, Any] = {}
        self.is_aborted = False
        self.token: Token[_Generation | None] | None = None


_generation: Final[ContextVar[_Generation | None]] = ContextVar("otel-rollout-verl-generation", default=None)


def trace_generate(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `generate` of an LLM client as an LLM op.

    `FullyAsyncLLMServerClient.generate` calls its parent's once per attempt: those are events of the one span.

    Args:
        function: The method, a coroutine function.
    """
    operation = Operation(function, None, "LLM", capture_inputs=False, capture_output=True)

    @functools.wraps(function)
    async def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        pipeline = runtime.pipeline
        if pipeline is None:
            return await function(self, *args, **kwargs)
        if _is_attempt():
            started = time_ns()
            output = await function(self, *args, **kwargs)
            _end_attempt(started, output)
            return output
        # What `rollout_trace_op` does, without a coroutine around the coroutine: every turn of the model comes by here.
        call = operation.start(pipeline, (self, *args), kwargs)
        turn = _begin(args, kwargs)
        try:
            output = await function(self, *args, **kwargs)
        except BaseException as error:
            _leave(turn)
            if call is not None:
                call.fail(error)
            raise
        _leave(turn)
        _end(turn, output)
        if call is not None:
            call.succeed(output)
        return output

    return generate


def note_server(server: Any) -> None:
    """Record which server the load balancer has picked for the running turn."""
    turn = _generation.get()
    if turn is not None:
        turn.attempt[semconv.SERVER] = str(server)


def note_engine_request(request_id: Any) -> None:
    """Record the id under which the engine knows the running turn: vLLM's own spans carry it."""
    turn = _generation.get()
    if turn is not None:
        turn.attempt[semconv.ENGINE_REQUEST_ID] = str(request_id)


def _is_attempt() -> bool:
    return _generation.get() is not None


def _begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Generation | None:
    """Note that a turn is running, and record what it starts from."""
    try:
        request_id = kwargs.get("request_id", args[0] if args else None)
        turn = _Generation(request_id, kwargs.get("prompt_ids"))
        turn.token = _generation.set(turn)
        span, pipeline = get_current_span(), runtime.pipeline
        if pipeline is None or not span.is_recording():
            return turn
        span.set_attribute(semconv.REQUEST_ID, str(request_id))
        shown: dict[str, Any] = {"request_id": request_id, **kwargs}
        start = _known_prefix(turn)
        if start:
            # Each turn gets the whole conversation: what the turns before have shown is left out.
            shown["prompt_ids"] = turn.prompt_ids[start:]
            shown["prompt_ids_start"] = start
        elif start is None:
            span.set_attribute(semconv.PREFIX_BROKEN, True)
        pipeline.tracer.set_input(span, snapshot({key: value for key, value in shown.items() if value is not None}))
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("describing a turn of verl")
        return None
    return turn


def _known_prefix(turn: _Generation) -> int | None:
    """Return how many of the prompt's ids earlier turns have shown; None where the prompt went another way."""
    rollout = rollouts.current_rollout()
    known = rollout.sequences.get(str(turn.request_id)) if rollout is not None else None
    if not known:
        return 0
    if type(turn.prompt_ids) is not list:
        return 0
    return len(known) if turn.prompt_ids[: len(known)] == known else None


def _leave(turn: _Generation | None) -> None:
    """Note that the turn is over, and record who has served it."""
    try:
        if turn is not None and turn.token is not None:
            _generation.reset(turn.token)
            turn.token = None
            get_current_span().set_attributes(turn.attempt)
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("describing a turn of verl")


def _end(turn: _Generation | None, output: Any) -> None:
    """Record what the turn has come to."""
    try:
        span = get_current_span()
        if turn is None or not span.is_recording():
            return
        extra = getattr(output, "extra_fields", None) or {}
        oldest, newest = extra.get("min_global_steps"), extra.get("max_global_steps")
        version = extra.get("global_steps")
        cached = extra.get("num_cached_tokens")
        facts = {
            semconv.MIN_WEIGHTS_VERSION: version if oldest is None else oldest,
            semconv.MAX_WEIGHTS_VERSION: version if newest is None else newest,
            semconv.USAGE_CACHED_TOKENS: cached,
            semconv.PREEMPTIONS: getattr(output, "num_preempted", None),
        }
        span.set_attributes({key: value for key, value in facts.items() if isinstance(value, (int, float, str))})
        rollout = rollouts.current_rollout()
        token_ids = getattr(output, "token_ids", None)
        if rollout is None:
            return
        rollout.last_action = "generate"
        rollout.stop_reason = getattr(output, "stop_reason", None)
        if cached is not None:
            rollout.cached_tokens = (rollout.cached_tokens or 0) + int(cached)
        if isinstance(token_ids, list):
            rollout.last_token_ids = token_ids
            if type(turn.prompt_ids) is list:
                rollout.sequences[str(turn.request_id)] = turn.prompt_ids + token_ids
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("describing a turn of verl")


def _end_attempt(started: int, output: Any) -> None:
    """Record an attempt that was aborted, or that went on with what an aborted one had left."""
    try:
        turn = _generation.get()
        if turn is None:
            return
        span = get_current_span()
        extra = getattr(output, "extra_fields", None) or {}
        facts = {
            semconv.WEIGHTS_VERSION: extra.get("global_steps"),
            semconv.NEW_TOKENS: len(getattr(output, "token_ids", None) or ()),
            semconv.STOP_REASON: getattr(output, "stop_reason", None),
            **turn.attempt,
        }
        facts = {key: value for key, value in facts.items() if value is not None}
        if turn.is_aborted:
            span.add_event(RESUMED, facts, started)
        turn.is_aborted = getattr(output, "stop_reason", None) in _ABORT_REASONS
        if turn.is_aborted:
            span.add_event(ABORTED, facts)
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("describing an attempt of verl")
