"""Results of LLM ops that are not recognised are said, once for each op."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.facts import summarise_trajectory
from otel_rollout.testing import InMemorySpanExporter


class Reply:
    """A class with nothing that is known."""

    def __init__(self) -> None:
        self.wisdom = {"depth": 3}


def traced(exporter: InMemorySpanExporter, result: Any, times: int = 2) -> Any:
    """Return the summary of a trajectory whose LLM op returns a result."""
    op = rollout_trace_op(lambda prompt: result, kind="LLM", name="generate")
    with rollout_trace_attr(1, 2, 3):
        for _ in range(times):
            op("Why?")
    assert otel_rollout.flush(60)
    return summarise_trajectory(exporter.spans)


class TestUnread:
    """Answers and numbers of tokens."""

    def test_answer(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
        """A result in which no answer is recognised is one line with its classes, and counts."""
        summary = traced(rollout_spans, (Reply(), 3))
        lines = [each.getMessage() for each in caplog.records if "no answer was recognised" in each.getMessage()]
        assert len(lines) == 1
        assert lines[0].startswith("generate returned tuple[Reply, int]: no answer")
        assert lines[0].endswith("return a message, or pass capture_output=")
        assert otel_rollout.stats().unread_answers == {"generate": 2}
        assert "2 answers not recognised" in str(otel_rollout.stats())
        assert summary.unread_answers == 2

    @pytest.mark.parametrize(
        ("result", "words"),
        [
            (({"depth": 3}, 4), "tuple[dict, int]"),
            ([{"depth": 3}] * 9, "list[dict]"),
            (Reply(), "Reply"),
            ({"depth": 3}, "dict"),
        ],
    )
    def test_classes(
        self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture, result: Any, words: str
    ) -> None:
        """The line has the class that the program returned, and those of the first items."""
        traced(rollout_spans, result)
        assert f"generate returned {words}: no answer was recognised" in caplog.text

    def test_under_an_applications_provider(self, caplog: pytest.LogCaptureFixture) -> None:
        """It is one line and counts under an application's tracer provider, too."""
        otel_rollout.init("answers", "joined", tracer_provider=TracerProvider())
        op = rollout_trace_op(lambda: (Reply(), 3), kind="LLM", name="generate")
        with rollout_trace_attr(1, 2, 3):
            op()
        assert otel_rollout.flush(60)
        assert "generate returned tuple[Reply, int]: no answer was recognised" in caplog.text
        assert otel_rollout.stats().unread_answers == {"generate": 1}

    @pytest.mark.parametrize(
        "result",
        [
            None,
            "Because.",
            {"role": "assistant", "content": "Because."},
            {"token_ids": [1, 2]},
            [1, 2, 3],
            {"text": "So."},
        ],
    )
    def test_answers_that_are_read(self, rollout_spans: InMemorySpanExporter, result: Any) -> None:
        """Texts, messages and token ids are read, and nothing is no answer."""
        assert traced(rollout_spans, result).unread_answers == 0
        assert otel_rollout.stats().unread_answers == {}

    def test_usage(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
        """A result without a number of tokens is a line below the level of warnings, and counts."""
        with caplog.at_level(logging.INFO):
            traced(rollout_spans, "Because.")
        [line] = [each for each in caplog.records if "number of tokens" in each.getMessage()]
        assert line.levelno == logging.INFO
        assert otel_rollout.stats().unread_usage == {"generate": 2}


class TestFacts:
    """Names of columns in `annotate`."""

    @pytest.mark.parametrize("is_late", [False, True])
    def test_are_the_facts(self, rollout_spans: InMemorySpanExporter, is_late: bool) -> None:
        """They are in their columns, before the end and after it."""
        with rollout_trace_attr(1, 2, 3) as trajectory:
            if not is_late:
                annotate(entropy=0.5, staleness=3.0, log_prob_gap=0.1, importance_weight=1)
        if is_late:
            trajectory.annotate(entropy=0.5, staleness=3, log_prob_gap=0.1, importance_weight=1)
        assert otel_rollout.flush(60)
        found = summarise_trajectory(rollout_spans.spans)
        assert (found.entropy, found.staleness, found.log_prob_gap, found.importance_weight) == (0.5, 3, 0.1, 1.0)
