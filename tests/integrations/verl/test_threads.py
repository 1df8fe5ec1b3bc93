"""Functions that an event loop hands to its threads keep their trajectory."""

from __future__ import annotations

import asyncio
import pickle
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from types import SimpleNamespace

import pytest

import otel_rollout
from otel_rollout import flush
from otel_rollout.hooks.executor import keep_context
from otel_rollout.testing import InMemorySpanExporter


class TestThreads:
    """Functions that an event loop hands to its threads."""

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def test_programs_own_executor(self, loop: str, rollout_spans: InMemorySpanExporter) -> None:
        """They run in the program's own executor, inside the trajectory; the program's own context stays behind."""
        new_loop = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip(loop).new_event_loop
        own: ContextVar[str] = ContextVar("own", default="as it is in threads")

        @otel_rollout.rollout_trace_op
        def judge() -> tuple[str, str]:
            return threading.current_thread().name, own.get()

        async def main() -> None:
            running = asyncio.get_running_loop()
            running.set_default_executor(ThreadPoolExecutor(1, thread_name_prefix="users-own"))
            with otel_rollout.rollout_trace_attr(step=1, sample_index=2):
                own.set("as it is in the coroutine")
                keep_context()
                keep_context()
                assert await running.run_in_executor(None, judge) == ("users-own_0", "as it is in threads")
                with pytest.raises(TypeError):
                    await running.run_in_executor(None)

        running = new_loop()
        try:
            running.run_until_complete(main())
            running.run_until_complete(running.shutdown_default_executor())
        finally:
            running.close()
        flush()
        spans = {span["name"].rpartition(".")[2]: span for span in rollout_spans.as_dicts()}
        assert spans["judge"]["parent_id"] == spans["rollout_trace"]["span_id"]

    def test_executor_of_processes(self) -> None:
        """A function for another process is handed over as what it is."""

        async def main() -> None:
            keep_context()
            handed = []
            running = asyncio.get_running_loop()
            executor = SimpleNamespace(submit=lambda function, *args: handed.append(function) or Future())
            running._default_executor = executor
            running.run_in_executor(None, len, "abc").cancel()
            running._default_executor = None
            assert pickle.loads(pickle.dumps(handed[0]))("abc") == 3

        asyncio.run(main())
