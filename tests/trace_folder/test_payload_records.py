"""The records of payloads, which finishing makes for the writer of a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from opentelemetry.sdk.trace import ReadableSpan

import otel_rollout
from otel_rollout import read_trajectories, rollout_trace_attr, rollout_trace_op, semconv
from otel_rollout.export.outcome import Outcome
from otel_rollout.facts import conversations_of, summarise_trajectory
from otel_rollout.folder import StoredFile
from otel_rollout.testing import InMemorySpanExporter
from otel_rollout_file import FileSpanExporter

from .test_summaries import fields_of

SECRET = "sk-ant-api03-Zq8vN2kL5mR7tY1wX4bC6dF9gH3jK0pS"


@rollout_trace_op(kind="LLM")
def generate(messages: Any) -> Any:
    """Return an answer."""
    return {"role": "assistant", "content": f"Answer to {len(messages)}\nin words, api_key={SECRET}"}


@rollout_trace_op(kind="LLM")
def complete(prompt: str) -> str:
    """Return an answer in a model's own form."""
    return f"<think>So {prompt}</think>\n\nIt is <tool_call>nothing</tool_call>"


@rollout_trace_op(kind="LLM")
def fail(messages: Any, *, is_lost: bool) -> Any:
    """Return nothing that is known, or fail."""
    if is_lost:
        raise TimeoutError("engine")
    return {"depth": {"of": 3}}


@rollout_trace_op(kind="TOOL")
def search(query: str) -> Any:
    """Return a result, or none."""
    return {"results": [query] if query else [], "request_id": query, "took_ms": 3}


@rollout_trace_op(kind="TOOL")
def count(numbers: list[int]) -> dict[Any, int]:
    """Return a dict whose keys are no texts."""
    return {None: 0, **{number: numbers.count(number) for number in numbers}}


def said(role: str, words: str) -> dict[str, str]:
    return {"role": role, "content": words}


def talk(words: int = 1) -> None:
    """Run turns whose prompts grow."""
    messages = [said("system", "You help."), said("user", "Why " * words + f"\nand how, api_key={SECRET}?")]
    for turn in range(4):
        messages = [*messages, generate(messages), said("user", f"More of {turn}")]
        search("x" if turn else "")


def write_on() -> None:
    """Run turns whose prompt is a text that grows."""
    text = "Once upon a time there was a model that went on and on, and on, and on, and on"
    for _ in range(3):
        text += complete(text)


def fall() -> None:
    """Run turns that go wrong."""
    with pytest.raises(TimeoutError):
        fail([said("user", "What?")], is_lost=True)
    fail([said("user", "What?")], is_lost=False)


def written(folder: Path, program: Callable[[], None], **options: Any) -> Any:
    """Return the trajectory of a program that is traced into a folder."""
    exporter = options.pop("exporter", None) or FileSpanExporter(folder=folder)
    otel_rollout.init("project", "records", backend=exporter, **options)
    try:
        with rollout_trace_attr(sample_index=1, step=2, rollout_n=3):
            program()
    finally:
        otel_rollout.shutdown(30.0)
    [found] = read_trajectories(folder)
    return found


@pytest.mark.parametrize("program", [talk, write_on, fall])
def test_the_index_has_the_facts_of_the_spans(tmp_path: Path, program: Callable[[], None]) -> None:
    """Those that finishing noted are those that a reader finds in the spans, and have no secret."""
    found = written(tmp_path, program)
    with mock.patch.object(StoredFile, "read_spans", side_effect=AssertionError):
        summary = found.summary
    assert fields_of(summary) == fields_of(summarise_trajectory(found.spans))
    assert SECRET not in repr(summary)
    assert summary.conversations == 1


def test_what_it_notes(tmp_path: Path) -> None:
    """First lines, characters, results that hold nothing, and keys."""
    summary = written(tmp_path, talk).summary
    assert (summary.prompt, summary.answer) == ("Why", "Answer to 8")
    assert summary.output_characters > 4 * len("Answer to 2\nin words")
    assert summary.odd_results == {"search": 1}
    assert summary.result_keys == {"search": ("results", "request_id", "took_ms")}
    assert len(set(summary.turn_hashes)) == 4


def test_keys_that_are_no_texts(tmp_path: Path) -> None:
    """A tool's result has the keys of its JSON."""
    summary = written(tmp_path, lambda: count([1, 2, 2])).summary
    assert summary.result_keys == {"count": ("null", "1", "2")}
    assert otel_rollout.stats().internal_errors == {}


@pytest.mark.parametrize("words", [300, 3000])
def test_a_prompt_that_limits_cut_goes_on(tmp_path: Path, words: int) -> None:
    """It is compared before limits, so that no conversation begins where the bytes end."""
    found = written(tmp_path, lambda: talk(words), max_payload_bytes=1500)
    with mock.patch.object(StoredFile, "read_spans", side_effect=AssertionError):
        assert (found.summary.conversations, found.summary.turns) == (1, 4)
    assert found.summary.truncated_bytes > 0
    assert [each.kind for each in conversations_of(found.spans).all] == ["main"]


def test_a_note_in_place_of_a_payload_is_no_answer(tmp_path: Path) -> None:
    """A payload that a user's function hides, or fails on, is not one that wasn't recognised."""

    def hide(span: Any) -> None:
        raise ZeroDivisionError

    with mock.patch("otel_rollout.finish.finishing.internal_error"):
        found = written(tmp_path, lambda: generate([said("user", "Why?")]), transforms=[hide])
    with mock.patch.object(StoredFile, "read_spans", side_effect=AssertionError):
        assert (found.summary.turns, found.summary.unread_answers) == (1, 0)


class Masking(FileSpanExporter):
    """Masks all texts."""

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Change the spans in place."""
        for span in spans:
            for key in (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, semconv.INPUT_VALUE, semconv.OUTPUT_VALUE):
                if key in span._attributes:  # type: ignore[operator]
                    span._attributes[key] = "***"  # type: ignore[index]
        return super().send(spans)


def test_a_mask_is_on_the_index(tmp_path: Path) -> None:
    """An exporter that changes spans gets no records of what they were before, and the next exporter still does."""
    masked = written(tmp_path, talk, exporter=Masking(folder=tmp_path)).summary
    assert (masked.prompt, masked.answer) == ("***", "***")


def test_only_who_takes_them_gets_records(tmp_path: Path) -> None:
    """No record is made for another exporter."""
    made = mock.Mock(side_effect=AssertionError)
    with mock.patch("otel_rollout.finish.payload_record.record_of_generation", made):
        otel_rollout.init("project", "records", backend=(exporter := InMemorySpanExporter()))
        with rollout_trace_attr(sample_index=1, step=2, rollout_n=3):
            talk()
        otel_rollout.shutdown(30.0)
    assert not made.called
    assert all(span.record is None for span in exporter.spans)  # type: ignore[attr-defined]
