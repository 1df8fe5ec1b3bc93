"""A decorated function stays what it was: for inspection, for pickling, and while tracing is off."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest

import otel_rollout
from otel_rollout import rollout_trace_op
from otel_rollout.capture import call as call_module
from otel_rollout.spans import runtime
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import Agent, add, count_to, multiply, stream


class TestIdentity:
    """The function's attributes that stay."""

    @pytest.mark.parametrize(
        ("function", "test"),
        [
            (add, inspect.isfunction),
            (multiply, inspect.iscoroutinefunction),
            (multiply, asyncio.iscoroutinefunction if sys.version_info < (3, 14) else inspect.iscoroutinefunction),
            (count_to, inspect.isgeneratorfunction),
            (stream, inspect.isasyncgenfunction),
            (Agent.act, inspect.iscoroutinefunction),
            (Agent().act, inspect.ismethod),
        ],
    )
    def test_inspection(self, function: Any, test: Any) -> None:
        """A decorated function is of the same kind as before, for whoever inspects it."""
        assert test(function)

    def test_metadata(self) -> None:
        """Name, docstring, module, signature and `__wrapped__` are the function's own."""
        assert (add.__name__, add.__qualname__, add.__doc__, add.__module__) == ("add", "add", "Add.", "tests.ops")
        assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 2) -> 'int'"
        assert add.__wrapped__(1) == 3  # type: ignore[attr-defined]

    def test_abstract_methods_stay_abstract(self) -> None:
        """A decorated abstract method still keeps its class from being instantiated."""
        import abc

        class Base(abc.ABC):
            @rollout_trace_op
            @abc.abstractmethod
            def run(self) -> None: ...

        with pytest.raises(TypeError, match="abstract"):
            Base()  # type: ignore[abstract]

    def test_copying(self) -> None:
        """Objects with decorated methods copy."""
        assert copy.deepcopy(Agent("copy")).name == "copy"


PICKLING = """
import asyncio, pickle, sys
import cloudpickle
import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter

exporter = InMemorySpanExporter()
if sys.argv[1] == "on":
    otel_rollout.init("project", "experiment", backend=exporter)

class Worker:
    def __init__(self, factor): self.factor = factor
    @rollout_trace_op
    def scale(self, value): return value * self.factor
    @rollout_trace_op(kind="LLM")
    async def generate(self, value): return value * self.factor
    @rollout_trace_op
    @classmethod
    def make(cls, factor=3): return cls(factor)
    @rollout_trace_op
    def count(self, n): yield from range(n)
    @rollout_trace_op
    async def stream(self, n):
        for i in range(n): yield i

@rollout_trace_op
def double(value): return 2 * value

def use(worker, double):
    async def collect(): return [i async for i in worker.stream(2)]
    return [worker.scale(2), asyncio.run(worker.generate(3)), worker.make().factor, list(worker.count(2)),
            asyncio.run(collect()), double(4)]

with rollout_trace_attr(1):
    payload = cloudpickle.dumps((Worker(5), double, use))
    # In this process the classes exist already: run what was pickled, by value, in a fresh one.
    import subprocess
    code = "import sys, pickle; w, d, use = pickle.loads(sys.stdin.buffer.read()); print(use(w, d))"
    print(subprocess.run([sys.executable, "-c", code], input=payload, capture_output=True, check=True).stdout.decode())
    assert pickle.loads(pickle.dumps(double)) is double
    copied = cloudpickle.loads(cloudpickle.dumps(Worker(7)))
    assert copied.scale(1) == 7
otel_rollout.flush()
print(len(exporter.spans))
"""


class TestPickling:
    """Decorated functions go to other processes."""

    def test_by_reference(self) -> None:
        """Decorated functions and instances with decorated methods pickle by reference."""
        assert pickle.loads(pickle.dumps(Agent("a"))).scale(2) == 20

    @pytest.mark.parametrize(("state", "spans"), [("on", 2), ("off", 0)])
    def test_by_value(self, state: str, spans: int) -> None:
        """A class of `__main__` with decorated methods cloudpickles by value, also while tracing is on."""
        pytest.importorskip("cloudpickle")
        ran = subprocess.run([sys.executable, "-c", PICKLING, state], capture_output=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr.decode()
        assert ran.stdout.decode().split("\n") == ["[10, 15, 3, [0, 1], [0, 1], 8]", "", str(spans), ""]


class TestOff:
    """While tracing is off."""

    def test_nothing_but_one_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """While tracing is off, a call does not come near any of our code but the check."""

        def explode(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("tracing is off")

        monkeypatch.setattr(call_module.Call, "start", explode)
        monkeypatch.setattr(call_module.Call, "__init__", explode)
        assert runtime.pipeline is None

        async def main() -> list[Any]:
            return [await multiply(2, 3), [item async for item in stream(2)]]

        assert (add(1), list(count_to(2)), asyncio.run(main())) == (3, [0, 1], [6, [0, 1]])

    def test_off_again(self, rollout_spans: InMemorySpanExporter) -> None:
        """After `shutdown`, decorated functions run untraced."""
        add(1)
        otel_rollout.shutdown()
        add(2)
        assert [span["attributes"]["input.value"] for span in rollout_spans.as_dicts()] == [{"a": 1, "b": 2}]
