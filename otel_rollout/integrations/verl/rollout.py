"""What is known of one trajectory of verl while it runs, and how it reaches the trajectory's root span."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final

from otel_rollout import semconv, trajectory
from otel_rollout.log_once import internal_error

__all__ = ["Rollout", "current_rollout", "rollout_trace_attr", "rollout_variable"]


class Rollout:
    """One trajectory, shared by all that runs inside it.

    Args:
        attributes: What is known at its start, by attribute key.
        step: The training step.
        messages: The raw prompt.
        tokenizer: A tokenizer that nobody but the delivery thread uses, if there is one.
    """

    __slots__ = (
        "attributes",
        "cached_tokens",
        "last_action",
        "last_token_ids",
        "messages",
        "sequences",
        "step",
        "stop_reason",
        "tokenizer",
        "tool_calls",
        "tool_errors",
    )

    def __init__(self, attributes: dict[str, Any], step: Any, messages: Any, tokenizer: Any = None) -> None:
        self.attributes = attributes
        self.step = step
        self.messages = messages
        self.tokenizer = tokenizer
        self.tool_calls = 0
        self.tool_errors = 0
        self.cached_tokens: int | None = None
        self.stop_reason: str | None = None
        self.last_token_ids: list[int] = []
        self.last_action = ""
        self.sequences: dict[str, list[int]] = {}
        """By request id: the ids that the engine has seen and made, which need not be recorded once more."""


rollout_variable: Final[ContextVar[Rollout | None]] = ContextVar("otel-rollout-verl-rollout", default=None)


def current_rollout() -> Rollout | None:
    """Return the trajectory that this code runs in; None outside one of verl's agent loops."""
    return rollout_variable.get()


def rollout_trace_attr(
    sample_index: Any = None,
    step: Any = None,
    rollout_n: Any = None,
    name: str = "rollout_trace",
    validate: bool = False,
    trace: bool = True,
) -> AbstractContextManager[None]:
    """Trace what runs inside as one trajectory, as `otel_rollout.rollout_trace_attr` does.

    Inside an agent loop of verl the root also says what the plugin has found out about the trajectory.

    Args:
        sample_index: Which prompt of the dataset.
        step: The training step.
        rollout_n: Which of the n rollouts of the prompt.
        name: The root span's name.
        validate: Whether this is a validation pass.
        trace: False silences everything inside.
    """
    manager = trajectory.rollout_trace_attr(sample_index, step, rollout_n, name, validate, trace)
    rollout = current_rollout()
    return manager if rollout is None or not trace else _Described(manager, rollout)


class _Described(AbstractContextManager[None]):
    """A trajectory whose root says from its start what is known of it."""

    def __init__(self, manager: AbstractContextManager[None], rollout: Rollout) -> None:
        self._manager = manager
        self._rollout = rollout

    def __enter__(self) -> None:
        self._manager.__enter__()
        try:
            messages = self._rollout.messages
            content = {"messages": list(messages)} if messages is not None else None
            trajectory.annotate(input=content, **self._rollout.attributes)
        except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
            internal_error("describing a trajectory of verl")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        rollout = self._rollout
        if rollout.tool_calls:
            counts: dict[str, Any] = {semconv.TOOL_CALLS: rollout.tool_calls, semconv.TOOL_ERRORS: rollout.tool_errors}
            trajectory.annotate(**counts)
        return self._manager.__exit__(kind, error, traceback)
