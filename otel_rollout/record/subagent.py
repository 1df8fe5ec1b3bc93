"""`subagent`: a block whose generations are a sub-agent's conversations."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any

from otel_rollout import semconv
from otel_rollout.guard.log_once import warn_once
from otel_rollout.record import runtime
from otel_rollout.record.attribute_values import read_scalar, read_tag
from otel_rollout.record.call import Call, Operation
from otel_rollout.record.context import SILENCE, Agent, current_frame, get_current
from otel_rollout.record.readers import is_compiling
from otel_rollout.semconv import Role


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
        context = get_current()
        frame = current_frame(context)
        if frame is SILENCE:
            return
        call = Call(_operation(str(read_tag(self._name)), _read_role(self._role)), pipeline)
        try:
            call.start(context, frame)
            if call.span is not None:
                call.frame.agent = Agent(call.span)
            self._calls.append(call)
        except BaseException as error:
            call.break_off(error, "starting a sub-agent")

    def __exit__(self, kind: object, exception: BaseException | None, traceback: object) -> None:
        call = self._current_call()
        if call is None:
            return
        if exception is None:
            call.finish(None)
        else:
            call.fail(exception)
        # Another thread can have ended it.
        with suppress(ValueError):
            self._calls.remove(call)

    def _current_call(self) -> Call | None:
        context, calls = get_current(), self._calls[::-1]
        frame = current_frame(context)
        if frame is SILENCE:
            # A dropped block has no frame of its own; under `trace=False` there is no call.
            return next((each for each in calls if each.inner is context), None)
        # A generator that nobody finishes is closed in another context.
        return next((each for each in calls if each.frame is frame), calls[0] if calls else None)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, kind: object, exception: BaseException | None, traceback: object) -> None:
        self.__exit__(kind, exception, traceback)


@lru_cache(256)
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
