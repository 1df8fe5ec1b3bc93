"""Tool calls: one TOOL span each, whatever kind of tool, and an error where verl makes a text of it."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any, Final

from opentelemetry.trace import StatusCode, get_current_span

from otel_rollout import op, runtime, semconv
from otel_rollout.call import Operation
from otel_rollout.failure import record_failure
from otel_rollout.integrations.verl import rollout as rollouts
from otel_rollout.log_once import internal_error
from otel_rollout.payload import snapshot

__all__ = [
    "MAX_MESSAGE_CHARACTERS",
    "agent_data_payload",
    "count_tool_call",
    "trace_call",
    "trace_call_tool",
    "trace_execute",
    "trace_subclasses",
]

MAX_MESSAGE_CHARACTERS: Final = 2000


class _ToolCall:
    """One tool call that is running."""

    __slots__ = ("error", "fault", "limit", "name", "raw", "token")

    def __init__(self, name: str, limit: Any) -> None:
        self.name = name
        self.limit = limit
        self.fault: str | None = None
        self.error: BaseException | None = None
        self.raw: Any = None
        self.token: Token[_ToolCall | None] | None = None


_tool_call: Final[ContextVar[_ToolCall | None]] = ContextVar("otel-rollout-verl-tool-call", default=None)


def trace_call_tool(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `ToolAgentLoop._call_tool`, through which every tool call goes, as a TOOL op."""
    operation = Operation(original, "tool", "TOOL", capture_inputs=False, capture_output=False)

    async def _call_tool(self: Any, tool_call: Any, *args: Any, **kwargs: Any) -> Any:
        pipeline = runtime.pipeline
        if pipeline is None:
            return await original(self, tool_call, *args, **kwargs)
        # What `rollout_trace_op` does, without a coroutine around the coroutine.
        traced = operation.start(pipeline, (self, tool_call, *args), kwargs)
        call = _begin(self, tool_call, args, kwargs)
        try:
            result = await original(self, tool_call, *args, **kwargs)
        except BaseException as error:
            _leave(call)
            if traced is not None:
                traced.fail(error)
            raise
        _leave(call)
        _end(call, result)
        if traced is not None:
            traced.succeed(result)
        return result

    return _call_tool


def trace_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `FunctionTool.call` such that its exception, which verl makes a text of, is seen."""

    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = await original(self, *args, **kwargs)
        except Exception as error:
            _note_error(error)
            raise
        _note_result(result)
        return result

    return call


def trace_execute(function: Callable[..., Any]) -> Any:
    """Return `execute` of a tool as a TOOL op; inside a tool call of the agent loop that call is the span."""
    if not inspect.iscoroutinefunction(function):
        return op.rollout_trace_op(function)
    traced = op.rollout_trace_op(kind="TOOL")(function)

    @functools.wraps(function)
    async def execute(*args: Any, **kwargs: Any) -> Any:
        if not _is_in_call():
            return await traced(*args, **kwargs)
        try:
            result = await function(*args, **kwargs)
        except Exception as error:
            _note_error(error)
            raise
        _note_result(result)
        return result

    execute.__otel_rollout_execute__ = True  # type: ignore[attr-defined]  # functions take attributes
    return execute


def trace_subclasses(cls: Any) -> None:
    """Make `execute` of every subclass a TOOL op: one that overrides it loses the decorator of `BaseTool`'s.

    Args:
        cls: `BaseTool`.
    """
    original = cls.__init_subclass__

    def __init_subclass__(subclass: Any, /, **kwargs: Any) -> None:  # noqa: N807 - the data model's name
        original(**kwargs)
        _trace_own_execute(subclass)

    cls.__init_subclass__ = classmethod(__init_subclass__)
    for subclass in cls.__subclasses__():
        _trace_own_execute(subclass)


def agent_data_payload(self: Any) -> dict[str, Any]:
    """Return how an `AgentData` is shown: its state, without the conversation that its turns show."""
    state = dict(vars(self))
    messages = state.get("messages") or []
    left_out = ("messages", "prompt_ids", "response_ids", "response_mask", "response_logprobs", "routed_experts")
    shown = {key: value for key, value in state.items() if key not in left_out and not key.startswith("_")}
    shown = {key: value for key, value in shown.items() if value not in (None, [], {})}
    return {**shown, "messages": len(messages), "last_message": messages[-1] if messages else None}


def count_tool_call(*, is_error: bool) -> None:
    """Count a tool call, for the trajectory's root.

    Args:
        is_error: Whether it has failed.
    """
    rollout = rollouts.current_rollout()
    if rollout is not None:
        rollout.tool_calls += 1
        rollout.tool_errors += is_error


def _trace_own_execute(cls: Any) -> None:
    try:
        own = vars(cls).get("execute")
        if own is not None and inspect.iscoroutinefunction(own) and not hasattr(own, "__otel_rollout_execute__"):
            cls.execute = trace_execute(own)
    except Exception:  # noqa: BLE001, RUF100 - a user's class may do anything
        internal_error("hooking a tool of verl")


def _is_in_call() -> bool:
    return _tool_call.get() is not None


def _note_error(error: BaseException) -> None:
    call = _tool_call.get()
    if call is not None:
        call.error = error


def _note_result(result: Any) -> None:
    call = _tool_call.get()
    if call is not None:
        call.raw = result


def _begin(loop: Any, tool_call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _ToolCall | None:
    """Note that a tool call is running, and record what the model asked for."""
    try:
        name = str(tool_call.name)
        call = _ToolCall(name, getattr(loop, "max_tool_response_length", None))
        call.token = _tool_call.set(call)
        span, pipeline = get_current_span(), runtime.pipeline
        if pipeline is None or not span.is_recording():
            return call
        span.update_name(name)
        span.set_attribute(semconv.TOOL_NAME, name)
        identifier = getattr(tool_call, "tool_call_id", None)
        if identifier is not None:
            span.set_attribute(semconv.TOOL_CALL_ID, str(identifier))
        agent_data = kwargs.get("agent_data", args[1] if len(args) > 1 else None)
        tools = getattr(agent_data, "_active_tools", None)
        tools = getattr(loop, "tools", None) if tools is None else tools
        arguments = tool_call.arguments
        try:
            arguments = json.loads(arguments)
        except (ValueError, TypeError) as error:
            call.fault = f"the arguments are no JSON: {error}"
        if isinstance(tools, Mapping) and name not in tools:
            call.fault = f"there is no tool of this name; there are: {', '.join(map(str, tools))}"
        pipeline.tracer.set_input(span, snapshot({"name": name, "arguments": arguments}))
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("describing a tool call of verl")
        return None
    return call


def _leave(call: _ToolCall | None) -> None:
    if call is not None and call.token is not None:
        _tool_call.reset(call.token)
        call.token = None


def _end(call: _ToolCall | None, result: Any) -> None:
    """Record what came of the tool call."""
    try:
        span, pipeline = get_current_span(), runtime.pipeline
        if call is None or pipeline is None or not span.is_recording():
            return
        response, reward, metrics = result
        text = getattr(response, "text", None)
        shown = {
            "text": text,
            "image": getattr(response, "image", None),
            "video": getattr(response, "video", None),
            "reward": reward,
            "metrics": metrics,
        }
        shown = {key: value for key, value in shown.items() if value not in (None, {}, [])}
        pipeline.tracer.set_output(span, snapshot(shown))
        if isinstance(reward, (int, float)):
            span.set_attribute(semconv.TOOL_REWARD, float(reward))
        if isinstance(text, str) and isinstance(call.limit, int) and len(text) > call.limit:
            span.set_attribute(semconv.TOOL_RESPONSE_TRUNCATED, True)
        is_error = call.error is not None or call.fault is not None or _says_error(call, text)
        if call.error is not None:
            record_failure(span, call.error)
        elif is_error:
            span.set_attribute(semconv.ERROR_TYPE, "tool_call")
            span.set_status(StatusCode.ERROR, (call.fault or str(text))[:MAX_MESSAGE_CHARACTERS])
        rollout = rollouts.current_rollout()
        if rollout is not None:
            rollout.last_action = "tool"
        count_tool_call(is_error=is_error)
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("describing a tool call of verl")


def _says_error(call: _ToolCall, text: Any) -> bool:
    """Whether verl's own text for an exception stands there, raised by what surrounds the tool itself."""
    if not isinstance(text, str) or not text.startswith(f"Error executing tool '{call.name}': "):
        return False
    raw = call.raw[0] if isinstance(call.raw, tuple) and call.raw else call.raw
    return not str(getattr(raw, "text", raw)).startswith(text[:40])
