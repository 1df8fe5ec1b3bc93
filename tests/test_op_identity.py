"""A decorated function stays what it was: for inspection, for pickling, and while tracing is off."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest

import otel_rollout
from otel_rollout import rollout_trace_op
from otel_rollout.record import call as call_module
from otel_rollout.record import runtime
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import Agent, add, count_to, multiply, stream

pytestmark = pytest.mark.every_python


class Scorer:
    """An object that is called."""

    def __init__(self) -> None:
        self.threshold = 1
        self.calls = 0
        self.label = ""

    def __call__(self, value: int) -> bool:
        """Score."""
        self.calls += 1
        return value > self.threshold

    def __len__(self) -> int:
        return 2

    def __contains__(self, item: object) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "scorer"


@rollout_trace_op
@functools.lru_cache
def CACHED() -> None:
    """Return nothing."""


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


class TestObjects:
    """An object that is called stays the object, with its fields, methods and operators."""

    def test_a_cached_function(self, rollout_spans: InMemorySpanExporter) -> None:
        """A cached function keeps `cache_info` and `cache_clear`, also as a method."""

        @rollout_trace_op
        @functools.lru_cache
        def cached(value: int) -> int:
            return value

        class Agent:
            @rollout_trace_op
            @functools.lru_cache  # noqa: B019 - a method
            def ask(self, value: int) -> int:
                return value

        agent = Agent()
        assert [cached(1), cached(1), agent.ask(2)] == [1, 1, 2]
        assert cached.cache_info()[:2] == (1, 1)  # type: ignore[attr-defined]
        assert Agent.ask.cache_info()[:2] == (0, 1)  # type: ignore[attr-defined]
        assert str(inspect.signature(cached)) == "(value: 'int') -> 'int'"
        assert otel_rollout.flush()
        inputs = [span["attributes"]["input.value"] for span in rollout_spans.as_dicts()]
        assert inputs == [{"value": 1}, {"value": 1}, {"value": 2}]

    def test_fields_are_the_object_s_own(self) -> None:
        """A field that is set on the traced object is the object's, and the other way round."""
        scorer = Scorer()
        traced: Any = rollout_trace_op(scorer)
        traced.threshold = 10
        scorer.label = "changed"
        assert (traced(5), scorer.calls, traced.calls, traced.label) == (False, 1, 1, "changed")
        del traced.label
        assert not hasattr(scorer, "label")

    def test_class_and_operators(self) -> None:
        """`isinstance`, `len`, `in`, comparison, hash and text are those of the object."""
        scorer = Scorer()
        traced: Any = rollout_trace_op(scorer)
        assert isinstance(traced, Scorer)
        assert (len(traced), 1 in traced, traced == scorer, hash(traced), repr(traced)) == (2, True, True, 7, "scorer")

    def test_copies(self) -> None:
        """A copy, and what was pickled, is a traced object with fields of its own."""
        traced: Any = rollout_trace_op(name="score", kind="TOOL")(Scorer())
        for copied in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
            copied.threshold = 5
            assert (copied(3), traced(3), copied.__wrapped__ is traced.__wrapped__) == (False, True, False)
        assert pickle.loads(pickle.dumps(CACHED)) is CACHED


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
        ran = subprocess.run([sys.executable, "-c", PICKLING, state], capture_output=True, timeout=300, check=False)
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
