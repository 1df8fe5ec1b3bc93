"""Random span trees: live, in a folder, received, imported and replayed they are the same in everything."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.cli.main import main
from otel_rollout.testing import InMemorySpanExporter
from tests.receive.importing import add
from tests.trace_folder.collector_files import write_collector_file
from tests.trace_folder.test_otlp import whole

TRAJECTORIES = 12
TEXTS = ["", "a", "ünï ✓ 🙂", 'a "quoted" \\ line\n\ttab', "\x00\x1f\x7f", "[1, 2", "null", "x" * 5000]
NUMBERS = [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, -0.0, 1e300, 5e-324, True, False]


class Trees:
    """Draws trees of ops and of plain spans.

    Args:
        seed: The same seed draws the same trees.
        provider: The application's, for the plain spans; None for ops alone.
    """

    def __init__(self, seed: int, provider: TracerProvider | None) -> None:
        self.random = random.Random(seed)
        self.tracer = provider.get_tracer("a-library", "1.0", attributes={"scope": "mine"}) if provider else None

    def scalar(self) -> Any:
        """Return a value of an attribute."""
        return self.random.choice(self.random.choice([TEXTS, NUMBERS]))

    def attributes(self) -> dict[str, Any]:
        """Return attributes of every type."""
        lists: list[Any] = [TEXTS[:4], [1, -(2**62)], [0.5, 1e-9], [True, False], []]
        drawn = {f"key {number}": self.scalar() for number in range(self.random.randrange(5))}
        return {**drawn, "list": self.random.choice(lists)}

    def payload(self, depth: int = 0) -> Any:
        """Return a payload of an op."""
        if depth == 3 or self.random.random() < 0.4:
            return self.random.choice([self.scalar(), None, 10**30])
        items = [self.payload(depth + 1) for _ in range(self.random.randrange(4))]
        return items if self.random.random() < 0.5 else {f"k{number}": item for number, item in enumerate(items)}

    def grow(self, depth: int = 0) -> None:
        """Trace a few ops and plain spans below the current one."""
        for _ in range(self.random.randrange(1, 4)):
            if self.tracer is None or self.random.random() < 0.6:
                self.call_op(depth)
            else:
                self.start_span(self.tracer, depth)

    def call_op(self, depth: int) -> None:
        """Call an op that returns or raises."""
        fails = self.random.random() < 0.2

        @rollout_trace_op(name=self.random.choice(["generate", "ünï ✓"]), kind=self.random.choice(["LLM", "TOOL"]))
        def op(given: Any) -> Any:
            if depth < 3:
                self.grow(depth + 1)
            if fails:
                raise ValueError(self.random.choice(TEXTS))
            return self.payload()

        try:
            op(self.payload())
        except ValueError:
            assert fails

    def start_span(self, tracer: trace.Tracer, depth: int) -> None:
        """Trace as another library does."""
        state = TraceState([("vendor", "value"), ("other", "1")])
        links = [
            Link(SpanContext(self.random.getrandbits(127) + 1, 7, is_remote, TraceFlags(1), state), self.attributes())
            for is_remote in (True, False)
        ]
        kind = self.random.choice(list(SpanKind))
        some = links[: self.random.randrange(3)]
        with tracer.start_as_current_span("plain", kind=kind, links=some, attributes=self.attributes()) as span:
            if depth < 3:
                self.grow(depth + 1)
            span.add_event("happened", self.attributes(), 1_700_000_000_000_000_001)
            span.set_status(self.random.choice([Status(StatusCode.OK), Status(StatusCode.ERROR, "no"), Status()]))


@pytest.fixture
def trees(tmp_path: Path, start: Any, monkeypatch: pytest.MonkeyPatch, request: Any) -> list[ReadableSpan]:
    """Spans as an exporter has got them that keeps what it gets; live, they were written and sent as well."""
    memory = InMemorySpanExporter()
    receiver = start(folder=tmp_path / "received")
    monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", receiver.url)
    provider = TracerProvider() if request.param % 2 else None
    otel_rollout.init("trees", "exp-1", backend=["file", "otlp", memory], tracer_provider=provider)
    drawn = Trees(request.param, provider)
    for number in range(TRAJECTORIES):
        with rollout_trace_attr(step=number // 4, sample_index=number % 4, rollout_n=0, name="agent"):
            drawn.grow()
            annotate(reward=drawn.random.random(), note=drawn.scalar())
    assert otel_rollout.shutdown(60.0), otel_rollout.stats()
    assert "refused" not in receiver.stop()[1]
    return list(memory.spans)


@pytest.mark.parametrize(
    "trees", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))], indirect=True
)
def test_every_way_gives_the_same_trees(trees, tmp_path, start, monkeypatch, capsys) -> None:
    """File, receive, import of a Collector's file in both forms, and replay into a receiver."""
    expected = described(trees)
    for form in ("json", "proto"):
        write_collector_file(tmp_path / f"collected-{form}", form, [trees[:50], trees[50:]])
        add(capsys, tmp_path / f"collected-{form}", into=tmp_path / form)
    receiver = start(folder=tmp_path / "replayed")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", receiver.url)
    assert main(["replay", str(tmp_path / "file"), "--backend", "otlp"]) == 0
    receiver.stop()

    assert len(expected) > TRAJECTORIES
    for way in ("file", "received", "json", "proto", "replayed"):
        found = described(span for each in otel_rollout.read_trajectories(tmp_path / way) for span in each.spans)
        assert found == expected, way
        if way in ("received", "replayed"):
            assert results_in(tmp_path / way) == [1] * TRAJECTORIES


def results_in(folder: Path) -> list[int]:
    """Return the number of evaluation events of each root: those that OTLP gets beside the reward's attribute."""
    found = [[span for span in each.spans if span.parent is None] for each in otel_rollout.read_trajectories(folder)]
    return [sum(event.name == "gen_ai.evaluation.result" for event in root.events) for [root] in found]


def described(spans: Any) -> dict[int, dict[str, Any]]:
    """Return all that a span has, by its id."""
    return {span.context.span_id: _describe(span) for span in spans}


def _describe(span: ReadableSpan) -> dict[str, Any]:
    found = whole(span)
    # OTLP gets a tool's arguments and result by the names of the conventions as well, and a reward as an event.
    found["attributes"] = [pair for pair in found["attributes"] if not pair[0].startswith("gen_ai.tool.call.")]
    found["events"] = [event for event in found["events"] if event[0] != "gen_ai.evaluation.result"]
    return found
