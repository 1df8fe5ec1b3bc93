"""`subagent`: a block whose generations are a sub-agent's conversations."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any

from opentelemetry import context as context_api

from otel_rollout import semconv
from otel_rollout.guard.log_once import warn_once
from otel_rollout.record import runtime
from otel_rollout.record.call import Call, Operation
from otel_rollout.record.context import SILENCE, Agent, current_frame
from otel_rollout.record.readers import is_compiling
from otel_rollout.record.scalars import read_scalar, read_tag
from otel_rollout.semconv import Role

_MAX_NAMES = 256


def subagent(name: str, *, role: Role | None = None) -> Subagent:
    """Trace what runs inside as a sub-agent: a span of kind `AGENT`, whose generations are conversations of their own.

    It works with `with` and with `async with`; one can serve several blocks together. In it, `annotate(compacted=True)`
    and `annotate(trained=False)` speak of the sub-agent. With tracing off, and under `trace=False`, it does nothing.
    Around a `yield`, what the generator's caller does is inside: there, decorate with `rollout_trace_op(kind="AGENT")`.

    Args:
        name: The sub-agent's name.
        role: `user` if it is a simulated user, whose turns and tokens are not the trajectory's; `policy` if it is not.
    """
    return Subagent(name, role)


class Subagent:
    """The blocks of one `subagent`."""

    __slots__ = ("_calls", "_name", "_role")

    def __init__(self, name: Any, role: Any = None) -> None:
        self._name = name
        self._role = role
        self._calls: list[Call] = []
        """The blocks that run, each with its context."""

    def __enter__(self) -> None:
        pipeline = runtime.pipeline
        if pipeline is None or is_compiling():
            return
        call = Call(_operation(str(read_tag(self._name)), _read_role(self._role)), pipeline)
        try:
            call.start((), {})
            if call.span is not None:
                call.frame.agent = Agent(call.span)
            call.context = context_api.get_current()
            self._calls.append(call)
        except BaseException:
            self._end(call, None)
            raise

    def __exit__(self, kind: object, exception: BaseException | None, traceback: object) -> None:
        call: Call | None = None
        try:
            call = self._current_call()
            self._end(call, exception)
        except BaseException:
            # Interrupted, by a signal handler for example: each step may be repeated.
            self._end(call or self._current_call(), exception)
            raise

    def _current_call(self) -> Call | None:
        context, calls = context_api.get_current(), self._calls[::-1]
        frame = current_frame(context)
        # In silence all have one frame; a generator that nobody finishes is closed in another context.
        own = [each for each in calls if (each.context is context if frame is SILENCE else each.frame is frame)]
        return next(iter(own or calls), None)

    def _end(self, call: Call | None, exception: BaseException | None) -> None:
        if call is None:
            return
        try:
            if call.is_open and exception is None:
                call.succeed(None)
            elif call.is_open:
                call.stop(exception)
        finally:
            if call.is_open:
                call.clean_up()
            if call in self._calls:
                # Another thread can have ended it.
                with suppress(ValueError):
                    self._calls.remove(call)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, kind: object, exception: BaseException | None, traceback: object) -> None:
        self.__exit__(kind, exception, traceback)


@lru_cache(_MAX_NAMES)
def _operation(name: str, role: str | None) -> Operation:
    operation = Operation(_nothing, name, "AGENT", capture_inputs=False, capture_output=False, role=role)
    operation.attributes = {**operation.attributes, semconv.AGENT_NAME: name}
    return operation


def _read_role(given: Any) -> str | None:
    role = read_scalar(given)
    if role is None or (type(role) is str and role in semconv.ROLES):
        return role
    warn_once("role of a sub-agent", "subagent(role=…): a role is one of %s; it is ignored", ", ".join(semconv.ROLES))
    return None


def _nothing() -> None:
    """Stand for the block."""
