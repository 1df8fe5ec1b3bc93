"""Trace each tool call as one TOOL span, with the errors that verl hides.

verl makes a tool's exception a text for the model. A call that its parser can't read is an error in its log, and it
goes on as if the model had not asked for any.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from opentelemetry.trace import StatusCode, get_current_span

from otel_rollout import semconv
from otel_rollout.hooks import Call, Hook, Observer, Patch, after
from otel_rollout.hooks.guard import guarded
from otel_rollout.hooks.patching import observe
from otel_rollout.hooks.verl.rollout import current_rollout
from otel_rollout.record import op, runtime
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.snapshot import take_snapshot

MAX_MESSAGE_CHARACTERS: Final = 2000
MAX_NAME_CHARACTERS: Final = 200
"""The most characters of a tool's name that the model has made up."""
MAX_PARSED_CHARACTERS: Final = 65_536
"""Longer arguments are recorded as text: parsing them would block the event loop."""

UNKNOWN_TOOL: Final = "unknown_tool"
"""The span name for a tool that doesn't exist: a model's text is no name, and may be of any length."""

_EXECUTE_MARK: Final = "__otel_rollout_execute__"
_LOOP_MODULE: Final = "verl.experimental.agent_loop.tool_agent_loop"
_BASE_MODULE: Final = "verl.tools.base_tool"
_PARSER_MODULE: Final = "verl.experimental.agent_loop.tool_parser"

_failures: Final[ContextVar[list[tuple[str, BaseException | None]] | None]] = ContextVar(
    "otel-rollout-verl-parsing", default=None
)
_tool_call: Final[ContextVar[_ToolCall | None]] = ContextVar("otel-rollout-verl-tool-call", default=None)


class _ToolCall(Observer):
    """`ToolAgentLoop._call_tool`, through which every tool call goes."""

    variable = _tool_call
    opens_span = True

    def __init__(self, call: Call) -> None:
        self.error: BaseException | None = None
        """The tool's exception."""
        self.raw: Any = None
        """The tool's own result."""
        self._fault: str | None = None
        self._asked = call.arguments["tool_call"]
        self._limit = getattr(call.receiver, "max_tool_response_length", None)
        tools = getattr(call.arguments.get("agent_data"), "_active_tools", None)
        self._tools: Any = getattr(call.receiver, "tools", None) if tools is None else tools

    def started(self) -> None:
        span, pipeline = get_current_span(), runtime.pipeline
        if pipeline is None or not (isinstance(span, RolloutSpan) and span.is_recording()):
            return
        name, arguments = self._asked.name, self._asked.arguments
        is_known = type(name) is str and isinstance(self._tools, dict) and name in self._tools
        tool = name if is_known else UNKNOWN_TOOL
        span.update_name(tool)
        span.set_attribute(semconv.TOOL_NAME, tool)
        if not is_known and isinstance(name, str):
            span.set_attribute(semconv.REQUESTED_TOOL, name[:MAX_NAME_CHARACTERS])
        identifier = getattr(self._asked, "tool_call_id", None)
        if isinstance(identifier, str):
            span.set_attribute(semconv.TOOL_CALL_ID, identifier)
        if not isinstance(arguments, str) or len(arguments) <= MAX_PARSED_CHARACTERS:
            try:
                arguments = json.loads(arguments)
            except (ValueError, TypeError, RecursionError) as error:
                self._fault = f"the arguments are no JSON: {error}"
        if not is_known and isinstance(self._tools, dict):
            self._fault = f"there is no tool of this name; there are: {', '.join(map(str, self._tools))}"
        pipeline.tracer.set_input(span, take_snapshot({"name": name, "arguments": arguments}))

    def end(self, result: Any) -> None:
        span, pipeline = get_current_span(), runtime.pipeline
        if pipeline is None or not (isinstance(span, RolloutSpan) and span.is_recording()):
            return
        if self.error is not None:
            span.fail(self.error)
        response, reward, metrics = result if isinstance(result, tuple) else (result, None, None)
        text = getattr(response, "text", None)
        is_error = self.error is not None or self._fault is not None or self._says_error(text)
        if is_error and self.error is None:
            span.set_attribute(semconv.ERROR_TYPE, "tool_call")
            span.set_status(StatusCode.ERROR, (self._fault or str(text))[:MAX_MESSAGE_CHARACTERS])
        rollout = current_rollout()
        if rollout is not None:
            rollout.last_action = "tool"
        _count_tool_call(is_error=is_error)
        if isinstance(reward, (int, float)):
            span.set_attribute(semconv.TOOL_REWARD, float(reward))
        if isinstance(text, str) and isinstance(self._limit, int) and len(text) > self._limit:
            span.set_attribute(semconv.TOOL_RESPONSE_TRUNCATED, True)
        media = {name: getattr(response, name, None) for name in ("image", "video")}
        shown = {"text": text, **media, "reward": reward, "metrics": metrics}
        shown = {key: value for key, value in shown.items() if not _is_empty(value)}
        span.output = take_snapshot(shown)

    def _says_error(self, text: Any) -> bool:
        """Return True if the text is verl's own for an exception around the tool, not the tool's."""
        if not isinstance(text, str) or not text.startswith(f"Error executing tool '{self._asked.name}': "):
            return False
        raw = self.raw[0] if isinstance(self.raw, tuple) and self.raw else self.raw
        said = getattr(raw, "text", raw)
        return not (isinstance(said, str) and said.startswith(text[:40]))


class _Inside(Observer):
    """A function inside a tool call; verl makes its exception a text."""

    def __init__(self, tool_call: _ToolCall) -> None:
        self._tool_call = tool_call

    def end(self, result: Any) -> None:
        self._tool_call.raw = result

    def fail(self, error: BaseException) -> None:
        if isinstance(error, Exception):
            self._tool_call.error = error


class _Extract(Observer):
    """`extract_tool_calls` of a parser: each call that can't be read is a failed TOOL span."""

    variable = _failures
    opens_span = True

    def __init__(self, call: Call) -> None:
        self.value: list[tuple[str, BaseException | None]] = []

    def end(self, result: Any) -> None:
        for message, error in self.value:
            _unreadable(message, error)

    def fail(self, error: BaseException) -> None:
        self.end(None)


def trace_execute(function: Callable[..., Any]) -> Any:
    """Return a tool's `execute`, a coroutine function, as a TOOL op; inside a tool call, that call is the span."""
    execute = observe(function, EXECUTE)
    setattr(execute, _EXECUTE_MARK, True)
    return execute


def _trace_tool(call: Call, result: Any) -> None:
    """Trace `execute` of a new tool's classes: a subclass that overrides it has lost the decorator of `BaseTool`'s.

    Not when a class is made: mixins, type parameters and keywords of users' classes don't go with a hook there.
    """
    for cls in type(call.receiver).__mro__:
        own = vars(cls).get("execute")
        if inspect.isfunction(own) and inspect.iscoroutinefunction(own) and not hasattr(own, _EXECUTE_MARK):
            setattr(cls, "execute", trace_execute(own))  # noqa: B010 - a class of the user's, by its name


def _count_tool_call(*, is_error: bool) -> None:
    """Count a tool call for the root span."""
    rollout = current_rollout()
    if rollout is not None:
        rollout.tool_calls += 1
        rollout.tool_errors += is_error


def _observe_execute(call: Call) -> Observer:
    """Observe a tool's `execute`: a span of its own outside verl's agent loops."""
    return _observe_inside(call) or Observer(opens_span=True)


def _observe_inside(call: Call) -> Observer | None:
    tool_call = _tool_call.get()
    return None if tool_call is None else _Inside(tool_call)


@op.rollout_trace_op(name="unreadable_tool_call", kind="TOOL", capture_inputs=False, capture_output=False)
def _unreadable(message: str, error: BaseException | None) -> None:
    span, pipeline = get_current_span(), runtime.pipeline
    if pipeline is None or not (isinstance(span, RolloutSpan) and span.is_recording()):
        return
    text = getattr(error, "doc", None)
    if isinstance(text, str):
        pipeline.tracer.set_input(span, take_snapshot({"text": text}))
    span.set_attribute(semconv.ERROR_TYPE, type(error).__name__ if error is not None else "tool_call")
    span.set_status(StatusCode.ERROR, message[:MAX_MESSAGE_CHARACTERS])
    _count_tool_call(is_error=True)


def _filter_log(record: logging.LogRecord) -> bool:
    """Note a parser's errors; a filter for verl's logger that passes everything."""
    guarded(WATCH_LOG, _note_failure, record)
    return True


def _note_failure(record: logging.LogRecord) -> None:
    failures = _failures.get()
    if failures is not None and record.levelno >= logging.ERROR:
        failures.append((record.getMessage(), sys.exc_info()[1]))


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (dict, list)) and not value)


def _agent_data_payload(self: Any) -> dict[str, Any]:
    """Return the payload of an `AgentData`: its state, without the conversation, which is in its turns."""
    state = dict(vars(self))
    messages = state.get("messages") or []
    left_out = ("messages", "prompt_ids", "response_ids", "response_mask", "response_logprobs", "routed_experts")
    shown = {key: value for key, value in state.items() if key not in left_out and not key.startswith("_")}
    shown = {key: value for key, value in shown.items() if not _is_empty(value)}
    return {**shown, "messages": len(messages), "last_message": messages[-1] if messages else None}


EXECUTE: Final = Hook(
    _BASE_MODULE, "BaseTool.execute", "tools are not traced", _observe_execute, kind="TOOL", captures=(True, True)
)

EXTRACT: Final = Hook(
    _PARSER_MODULE, "HermesToolParser.extract_tool_calls", "parsing is not traced", _Extract, captures=(False, True)
)
"""For all parsers. Arguments aren't recorded: they are the output of the turn before."""

WATCH_LOG: Final = Patch(
    _PARSER_MODULE,
    "logger",
    "calls that can't be read are not recorded",
    lambda module: module.logger.addFilter(_filter_log),
)

HOOKS: Final = (
    Hook(
        _BASE_MODULE,
        "BaseTool.__init__",
        "tools that override execute are only traced as calls of the agent loop",
        after(_trace_tool),
        while_off=True,
    ),
    Hook(
        "verl.tools.function_tool",
        "FunctionTool.call",
        "exceptions of function tools are recorded without a traceback",
        _observe_inside,
    ),
    Hook(
        _LOOP_MODULE,
        "ToolAgentLoop._call_tool",
        "tool calls are not traced",
        _ToolCall,
        needs=("tool_call",),
        kind="TOOL",
        name="tool",
    ),
    Patch(
        _LOOP_MODULE,
        "AgentData",
        "the state of the tool agent loop is recorded with the whole conversation",
        lambda module: setattr(module.AgentData, "__rollout_payload__", _agent_data_payload),
    ),
    WATCH_LOG,
)
