"""The parts of the demo as faults make them: its agent loop, its tools, its traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry import context as context_api

from otel_rollout import annotate, semconv
from otel_rollout.demo.agent_loop import AgentLoop
from otel_rollout.demo.faults import Fault
from otel_rollout.demo.policy import VARIETY, Behaviour, Policy
from otel_rollout.demo.problems import LOOKUP_TABLE
from otel_rollout.demo.tokenizer import BpeTokenizer
from otel_rollout.demo.tools import Calculator, Lookup
from otel_rollout.record import runtime
from otel_rollout.record.context import current_frame

__all__ = ["annotate_faults", "lose_a_span", "make_agent_loop"]

SECONDS_OF_STRAGGLER: Final = 3.0
SECONDS_TO_TIMEOUT: Final = 0.2
TURNS_OF_TRUNCATED: Final = 2
STALENESS: Final = 6
_BROKEN_EVERY: Final = 2


class _Unreachable(dict[str, str]):
    """A table whose environment is gone: every other entry times out, the others reset the connection."""

    def get(self, entry: str, default: object = None) -> str:
        """Raise what a client of a sandbox raises."""
        if len(entry) % 2:
            raise TimeoutError(f"no answer for {entry!r} in {SECONDS_TO_TIMEOUT} s")
        raise ConnectionResetError(f"connection reset while reading {entry!r}")


def make_agent_loop(
    tokenizer: BpeTokenizer, steps_trained: int, step: int, hit_by: frozenset[Fault] = frozenset()
) -> AgentLoop:
    """Return the agent loop of trajectories that the same faults hit.

    Args:
        tokenizer: The policy's tokenizer.
        steps_trained: The number of training steps of the policy.
        step: The step, which decides how far a fault over steps has come.
        hit_by: The faults.
    """
    policy = Policy(
        tokenizer,
        steps_trained,
        variety=max(1, VARIETY // 8 ** (step - 1)) if Fault.MODE_COLLAPSE in hit_by else VARIETY,
        always=Behaviour.GUESS if Fault.HACKED_PART in hit_by else None,
    )
    options = {"max_turns": TURNS_OF_TRUNCATED} if Fault.TRUNCATION in hit_by else {}
    return AgentLoop(
        policy, [Calculator(), _lookup(hit_by)], leaves_out_thoughts=Fault.PREFIX_BREAKS in hit_by, **options
    )


def _lookup(hit_by: frozenset[Fault]) -> Lookup:
    table: Mapping[str, str] = LOOKUP_TABLE
    if Fault.TOOL_ARGUMENTS in hit_by:
        table = {entry: value for entry, value in table.items() if len(entry) % _BROKEN_EVERY}
    if Fault.TIMEOUTS in hit_by:
        return Lookup(_Unreachable(table), latency=SECONDS_TO_TIMEOUT)
    return Lookup(table, latency=SECONDS_OF_STRAGGLER) if Fault.STRAGGLERS in hit_by else Lookup(table)


def annotate_faults(hit_by: frozenset[Fault]) -> None:
    """Record on the trajectory which faults hit it, and the facts that some of them consist of."""
    if hit_by:
        annotate(fault=sorted(fault.value for fault in hit_by))
    if Fault.STALE_WEIGHTS in hit_by:
        stale: dict[str, Any] = {semconv.STALENESS: STALENESS}
        annotate(**stale)


def lose_a_span() -> None:
    """Count a span of the current trajectory as dropped, as a queue that is full does."""
    frame = current_frame(context_api.get_current())
    if runtime.pipeline is not None and frame is not None and frame.trajectory is not None:
        for exporter in runtime.pipeline.exporters:
            frame.trajectory.add_dropped_span(exporter)
