"""The calls that are measured: what goes in, what comes out, and how often in one go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.payloads import answer, chat, token_ids

KB = 1000
STEP, SAMPLE_INDEX, ROLLOUT_N = 12, 345, 3


@dataclass(frozen=True)
class Workload:
    """One kind of call.

    Args:
        title: How the table names it.
        make_input: Makes the argument.
        make_output: Makes what the call returns.
        calls: Calls in one go; few enough that no tracer's queue overflows.
        is_async: Whether the function is a coroutine function.
    """

    title: str
    make_input: Callable[[], Any]
    make_output: Callable[[], Any]
    calls: int
    is_async: bool = False

    def function(self) -> Callable[..., Any]:
        """Return a new function to trace; it returns at once."""
        output = self.make_output()
        if self.is_async:

            async def generate_async(messages: Any, temperature: float = 1.0) -> Any:
                return output

            return generate_async

        def generate(messages: Any, temperature: float = 1.0) -> Any:
            return output

        return generate


def _pair(name: str, make_input: Callable[[], Any], make_output: Callable[[], Any], calls: int) -> dict[str, Workload]:
    return {
        f"sync {name}": Workload(f"{name}, sync", make_input, make_output, calls),
        f"async {name}": Workload(f"{name}, async", make_input, make_output, calls, is_async=True),
    }


SMALL = "sync 2 KB"
"""What most spans of a rollout are like."""

WORKLOADS: dict[str, Workload] = {
    **_pair("2 KB", lambda: chat(2 * KB), lambda: answer(2 * KB), 300),
    **_pair("50 KB", lambda: chat(50 * KB), lambda: answer(50 * KB), 50),
    **_pair("500 KB", lambda: chat(500 * KB), lambda: answer(500 * KB), 4),
    **_pair("8,192 token ids", lambda: token_ids(8192), lambda: token_ids(8192), 30),
}
"""Each size goes in, and the same comes out."""

STALL = Workload("512 spans of 50 KB", lambda: chat(50 * KB), lambda: None, 512)
BLOCKED = Workload("spans of 1 MB", lambda: chat(500 * KB), lambda: answer(500 * KB), 1000)
