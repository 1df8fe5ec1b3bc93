"""verl's `rollout_trace_op`: ours, with what is known of verl's own functions."""

from __future__ import annotations

from typing import Any, Final

from otel_rollout import op
from otel_rollout.integrations.verl import generation, tool_parsing, tools

__all__ = ["rollout_trace_op"]

_CLIENTS: Final = "verl.workers.rollout.llm_server"


def rollout_trace_op(function: Any = None, /, **options: Any) -> Any:
    """Trace each call of a function as a span, as `otel_rollout.rollout_trace_op` does.

    `generate` of verl's own clients is an LLM op with one span per turn; a tool's `execute` is a TOOL op.

    Args:
        function: The function.
        **options: What `otel_rollout.rollout_trace_op` takes.
    """
    if function is None or options:
        return op.rollout_trace_op(**options) if function is None else op.rollout_trace_op(**options)(function)
    name = getattr(function, "__name__", "")
    if name == "generate" and getattr(function, "__module__", "") == _CLIENTS:
        return generation.trace_generate(function)
    if name == "execute":
        return tools.trace_execute(function)
    if name == "extract_tool_calls":
        return tool_parsing.trace_extract(function)
    return op.rollout_trace_op(function)
