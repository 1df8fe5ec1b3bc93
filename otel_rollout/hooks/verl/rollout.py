"""The running trajectory of verl, shared by all hooks inside it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from otel_rollout.hooks.verl.identity import Identity


@dataclass(slots=True, eq=False)
class Rollout:
    """One trajectory.

    Args:
        identity: Its identity.
        is_traced: True if it is sampled.
        attributes: The root span's first attributes.
        messages: The raw prompt.
        tokenizer: A tokenizer that only the delivery thread uses, if there is one.
        model: The model's name, if it is known.
        validate: True in a validation pass.
    """

    identity: Identity
    is_traced: bool
    attributes: dict[str, Any]
    messages: Any
    tokenizer: Any = None
    model: str | None = None
    validate: bool = False
    is_entered: bool = False
    tool_calls: int = 0
    tool_errors: int = 0
    cached_tokens: int | None = None
    stop_reason: str | None = None
    last_action: str = ""
    sequences: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By request id, for each turn: the number of ids after it, and a hash of the turn's own. Ids that the engine
    has seen aren't recorded again; keeping the ids of all running trajectories would take gigabytes."""


rollout_variable: Final[ContextVar[Rollout | None]] = ContextVar("otel-rollout-verl-rollout", default=None)


def current_rollout() -> Rollout | None:
    """Return the running trajectory; None outside verl's agent loops."""
    return rollout_variable.get()
