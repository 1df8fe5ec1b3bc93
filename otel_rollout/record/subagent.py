"""`subagent`: a block whose generations are a sub-agent's conversations."""

from __future__ import annotations

from functools import lru_cache
from types import TracebackType
from typing import Any

from otel_rollout import semconv
from otel_rollout.record import runtime
from otel_rollout.record.array_types import is_compiling
from otel_rollout.record.call import Call, Operation
from otel_rollout.record.context import Agent
from otel_rollout.record.scalars import read_tag

_MAX_NAMES = 256


def subagent(name: str) -> Subagent:
    """Trace what runs inside as a sub-agent: a span of kind `AGENT`, whose generations are conversations of their own.

    It works with `with` and with `async with`. In it, `annotate(compacted=True)` and `annotate(trained=False)` speak of
    the sub-agent. With tracing off, and under `trace=False`, it does nothing.

    Args:
        name: The sub-agent's name.
    """
    return Subagent(name)


class Subagent:
    """One block of `subagent`."""

    __slots__ = ("_call", "_name")

    def __init__(self, name: Any) -> None:
        self._name = name
        self._call: Call | None = None

    def __enter__(self) -> None:
        pipeline = runtime.pipeline
        if pipeline is None or is_compiling():
            return
        self._call = call = Call(_operation(str(read_tag(self._name))), pipeline)
        try:
            call.start((), {})
            if call.span is not None:
                call.frame.agent = Agent(call.span)
        except BaseException:
            call.clean_up()
            raise

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        call = self._call
        if call is None or not call.is_open:
            return
        try:
            if exception is None:
                call.succeed(None)
            else:
                call.stop(exception)
        finally:
            if call.is_open:
                call.clean_up()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exception_type, exception, traceback)


@lru_cache(_MAX_NAMES)
def _operation(name: str) -> Operation:
    operation = Operation(_nothing, name, "AGENT", capture_inputs=False, capture_output=False)
    operation.attributes = {**operation.attributes, semconv.AGENT_NAME: name}
    return operation


def _nothing() -> None:
    """Stand for the block."""
