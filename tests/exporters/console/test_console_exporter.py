"""The console exporter: trees of text, whatever the trace and whatever the stream."""

from __future__ import annotations

import gc
import io
import sys
import tracemalloc
from itertools import count

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

import otel_rollout
from otel_rollout.export.outcome import DELIVERED, Verdict
from otel_rollout_console import ConsoleSpanExporter

RESOURCE = Resource({})
_ids = count(1)


def make_span(name, parent=None, trace_id=1, attributes=None, is_remote=False, milliseconds=1, **options):
    """Return a span that started after the ones before it; its parent is a span or a span id."""
    span_id = next(_ids)
    parent_id = parent if isinstance(parent, int) else parent.context.span_id if parent else None
    return ReadableSpan(
        name,
        SpanContext(trace_id, span_id, False, TraceFlags(1)),
        parent=SpanContext(trace_id, parent_id, is_remote, TraceFlags(1)) if parent_id else None,
        resource=RESOURCE,
        attributes={"openinference.span.kind": "CHAIN", **(attributes or {})},
        start_time=span_id,
        end_time=span_id + milliseconds * 1_000_000,
        **options,
    )


@pytest.fixture
def stream():
    """What the console shows."""
    return io.StringIO()


class TestTrees:
    """What is drawn."""

    def test_a_complete_trajectory(self, stream):
        """A trajectory is drawn when its root has come, in the order of start, with tags, payloads and errors."""
        root_attributes = {
            "openinference.span.kind": "AGENT",
            "rollout.step": 3,
            "rollout.sample_index": 7,
            "rollout.rollout_n": 1,
            "rollout.validate": True,
            "rollout.reward": 0.5,
            "rollout.dropped_spans": 2,
            "rollout.status": "completed",
        }
        root = make_span("rollout", attributes=root_attributes, milliseconds=1500)
        turn = make_span("turn", root, attributes={"input.value": '{"a": 1}', "output.value": '"b"'})
        tool = make_span("tool", turn, status=Status(StatusCode.ERROR, "no such\ntool"))
        last = make_span("last", root)
        exporter = ConsoleSpanExporter(stream=stream)
        assert exporter.send([tool, turn]) == DELIVERED
        assert stream.getvalue() == ""
        exporter.send([last, root])
        assert stream.getvalue().splitlines() == [
            "AGENT rollout  1.50 s  step=3 sample=7 rollout=1 reward=0.5 dropped spans=2 validation completed",
            '├─ CHAIN turn  1.0 ms  {"a": 1} → b',
            "│  └─ CHAIN tool  1.0 ms  ERROR no such tool",
            "└─ CHAIN last  1.0 ms",
        ]

    def test_a_turn_shows_the_words_of_the_model(self, stream):
        """A generation's line has the last message of its prompt and the model's answer, not their JSON."""
        attributes = {
            "openinference.span.kind": "LLM",
            "input.value": '{"prompt_ids":[1,2,3,4,5,6,7,8,9],"prompt_text":"What is 6 times 7?"}',
            "output.value": '{"token_ids":[1,2,3,4,5,6,7,8,9],"response_text":"It is 42."}',
        }
        ConsoleSpanExporter(stream=stream).send([make_span("generate", attributes=attributes)])
        assert stream.getvalue() == "LLM generate  1.0 ms  What is 6 times 7? → It is 42.\n"

    def test_a_trace_without_its_root_is_drawn_at_the_end(self, stream):
        """What never gets its root is drawn at the shutdown, each top span as a root."""
        child = make_span("child", parent=10**6)
        grandchild = make_span("grandchild", child)
        exporter = ConsoleSpanExporter(stream=stream)
        exporter.send([grandchild, child])
        assert stream.getvalue() == ""
        exporter.shutdown()
        assert stream.getvalue().splitlines() == ["CHAIN child  1.0 ms", "└─ CHAIN grandchild  1.0 ms"]
        exporter.shutdown()
        assert len(stream.getvalue().splitlines()) == 2

    def test_a_trace_that_began_elsewhere_is_drawn_at_its_local_root(self, stream):
        """A span whose parent is in another process is the root here."""
        local_root = make_span("local", parent=10**6, is_remote=True)
        child = make_span("child", local_root)
        ConsoleSpanExporter(stream=stream).send([child, local_root])
        assert stream.getvalue().splitlines() == ["CHAIN local  1.0 ms", "└─ CHAIN child  1.0 ms"]

    def test_what_comes_late_is_shown(self, stream):
        """The facts of an ended trajectory are on the line of the span that has them."""
        facts = {"rollout.reward": 1.0, "rollout.reward_parts": '{"correct":true}', "rollout.fate": "trained"}
        late = make_span("annotate", parent=7, is_remote=True, attributes=facts)
        assert ConsoleSpanExporter(stream=stream).send([late]) == DELIVERED
        assert "reward=1 fate=trained correct=True" in stream.getvalue()

    def test_several_trajectories_are_not_mixed(self, stream):
        """Each trace stands by itself, in the order of the roots."""
        first, second = make_span("first", trace_id=1), make_span("second", trace_id=2)
        spans = [make_span("b", second, trace_id=2), make_span("a", first, trace_id=1), second, first]
        ConsoleSpanExporter(stream=stream).send(spans)
        words = [line.split()[-3] for line in stream.getvalue().splitlines()]
        assert words == ["second", "b", "first", "a"]

    def test_a_long_payload_is_cut(self, stream):
        """A payload is one line of at most 60 characters."""
        ConsoleSpanExporter(stream=stream).send([make_span("op", attributes={"input.value": "a\n b" * 10**6})])
        [line] = stream.getvalue().splitlines()
        assert line.endswith("…")
        assert len(line) < 90

    def test_control_characters_do_not_reach_the_terminal(self, stream):
        """What a terminal would act on is replaced, wherever it stands in a span; other characters stay."""
        attributes = {"openinference.span.kind": "TO\x9bOL", "input.value": '"\x1b[2Jé 漢"'}
        status = Status(StatusCode.ERROR, "no\x1b[31m\u202eway")
        ConsoleSpanExporter(stream=stream).send([make_span("a\r\n\x1b]0;b\x07", attributes=attributes, status=status)])
        assert stream.getvalue() == 'TO�OL a���]0;b�  1.0 ms  "�[2Jé 漢"  ERROR no�[31m�way\n'

    def test_the_status_of_a_root_can_not_draw_either(self, stream):
        """The tags of a root are replaced like the rest."""
        ConsoleSpanExporter(stream=stream).send([make_span("a", attributes={"rollout.status": "\x1b[2J"})])
        assert stream.getvalue() == "CHAIN a  1.0 ms  �[2J\n"

    def test_a_trace_of_any_depth_is_drawn(self, stream):
        """A chain of spans deeper than Python's stack is drawn."""
        spans = [make_span("root")]
        for _ in range(2000):
            spans.append(make_span("op", spans[-1]))
        assert ConsoleSpanExporter(stream=stream).send(spans[::-1]) == DELIVERED
        assert len(stream.getvalue().splitlines()) == 2001


class TestStreams:
    """Where it is drawn."""

    def test_standard_output_is_looked_up_when_it_is_used(self, capsys):
        """Output that is redirected after `init` goes where it is redirected to."""
        otel_rollout.init("project", "experiment", backend="console")
        with otel_rollout.rollout_trace_attr(0, 1, 0):
            pass
        assert otel_rollout.flush(60)
        assert "AGENT rollout_trace" in capsys.readouterr().out

    def test_a_stream_that_has_no_lines_to_draw_with(self):
        """On an ASCII stream the words are shown, with a mark for what can't be."""
        raw = io.BytesIO()
        root = make_span("wurzel é")
        stream = io.TextIOWrapper(raw, "ascii")
        ConsoleSpanExporter(stream=stream).send([make_span("op", root), root])
        assert raw.getvalue().decode("ascii").splitlines()[0].startswith("CHAIN wurzel ?")
        assert raw.getvalue().decode("ascii").splitlines()[1].startswith("?? CHAIN op")

    @pytest.mark.parametrize("error", [BrokenPipeError("gone"), ValueError("I/O operation on closed file")])
    def test_a_stream_that_nobody_reads_is_no_exception(self, error):
        """What can't be shown is counted as rejected, with the reason."""

        class Gone(io.StringIO):
            def write(self, text):
                raise error

        exporter = ConsoleSpanExporter(stream=Gone())
        outcome = exporter.send([make_span("op")])
        exporter.shutdown()
        assert (outcome.verdict, outcome.rejected) == (Verdict.DELIVERED, 1)
        assert str(error) in outcome.reason

    def test_a_process_without_standard_output(self, monkeypatch):
        """A process that has no standard output loses the picture, and nothing else."""
        monkeypatch.setattr(sys, "stdout", None)
        assert ConsoleSpanExporter().send([make_span("op")]).rejected == 1


class TestMemory:
    """What waits for its root."""

    def test_payloads_are_not_kept(self, stream):
        """A span that waits for its root takes its line, not its payload."""
        exporter = ConsoleSpanExporter(stream=stream)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(200):
                exporter.send([make_span("op", parent=10**6, attributes={"input.value": "x" * 100_000})])
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert held < 300_000

    def test_the_oldest_trace_is_drawn_when_too_many_wait(self, stream, monkeypatch):
        """Beyond the bound the oldest traces are drawn without their roots."""
        monkeypatch.setattr(ConsoleSpanExporter, "max_open_spans", 10)
        exporter = ConsoleSpanExporter(stream=stream)
        for trace_id in range(1, 16):
            exporter.send([make_span(f"op{trace_id}", parent=10**6, trace_id=trace_id)])
        assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["op1", "op2", "op3", "op4", "op5"]

    def test_a_forked_child_does_not_draw_its_parents_spans(self, stream):
        """What waits at a fork is drawn by the parent alone."""
        exporter = ConsoleSpanExporter(stream=stream)
        exporter.send([make_span("op", parent=10**6)])
        exporter.after_fork()
        exporter.shutdown()
        assert stream.getvalue() == ""
