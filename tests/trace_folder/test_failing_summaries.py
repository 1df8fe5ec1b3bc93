"""Summaries that can't be made: the spans are stored all the same, and readers make them."""

from __future__ import annotations

from unittest import mock

import pytest

from otel_rollout import read_trajectories
from otel_rollout.facts import SummaryBuilder, summarise_trajectory
from otel_rollout.folder import folder_writer
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.guard import internal_errors
from otel_rollout.otlp import encode_spans, split_request
from otel_rollout.receive import open_folder

from .recordings import make_span, make_trajectory, trace_id_of
from .test_summaries import fields_of
from .writing import ids, trajectory

BUILDER = "otel_rollout.facts.builder"
INDEX = "otel_rollout.folder.index"
STEP_FILES = "otel_rollout.folder.step_files"


@pytest.fixture(autouse=True)
def _as_in_production(monkeypatch):
    """Internal errors are counted."""
    monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")


@pytest.fixture
def writer(tmp_path):
    """A writer."""
    writer = FolderWriter(tmp_path)
    yield writer
    writer.close()


class TestFault:
    """An exception in the code that summarises."""

    @pytest.mark.parametrize("batches", [1, 2])
    @pytest.mark.parametrize(
        "place",
        [
            f"{BUILDER}.short_name",
            f"{BUILDER}.call_record",
            f"{BUILDER}.is_unknown_tool",
            f"{BUILDER}.scalars_of",
            f"{BUILDER}.root_lines",
            f"{BUILDER}.figures_of",
            f"{BUILDER}.errors_of",
            f"{BUILDER}.SummaryBuilder._add",
            f"{BUILDER}.SummaryBuilder._add_facts",
            f"{INDEX}.columns_of",
            f"{INDEX}.clean",
            f"{STEP_FILES}.entry_of",
            f"{STEP_FILES}.index_line",
        ],
    )
    def test_the_spans_are_stored(self, tmp_path, writer, place, batches):
        """The batch is taken, nothing is written twice, the fault is counted, and the summary is made by a reader."""
        given = {"openinference.span.kind": "TOOL"}
        failed = make_span("tool", 77, trace_id_of(7, 3, 1), attributes=given, error="boom")
        spans = [failed, *make_trajectory(7, 3, 1)]
        with mock.patch(place, side_effect=ZeroDivisionError):
            if batches == 2:
                writer.write(spans[:1])
            writer.write(spans[batches - 1 :])
            writer.close()
        assert len(internal_errors) == 1
        [found] = read_trajectories(tmp_path)
        assert len(found.spans) == len(spans)
        assert fields_of(found.summary) == fields_of(summarise_trajectory(spans))

    @pytest.mark.parametrize("place", [f"{INDEX}.columns_of", f"{STEP_FILES}.entry_of"])
    def test_a_receiver_writes_each_trace_once(self, tmp_path, place):
        """A trace is written once and closed, and those behind it are written too."""
        folder = open_folder(tmp_path, idle_seconds=0)
        batch = [span for _ in range(3) for span in trajectory()]
        with mock.patch(place, side_effect=ZeroDivisionError):
            folder.take(split_request(encode_spans(batch), pytest.fail, 1000))
            while folder.write_due():
                pass
            assert (len(folder.traces), folder.written) == (0, 3)
            folder.close()
        assert ids(span for each in read_trajectories(tmp_path) for span in each.spans) == ids(batch)


class TestMemory:
    """What running trajectories take."""

    def test_the_idlest_are_written(self, tmp_path, writer):
        """Above the bound on their memory, as above that on their bytes."""
        traces = [[make_span("a", n, trace_id_of(1, n, 0), attributes={"rollout.step": 1})] for n in range(2, 12)]
        most = 3 * SummaryBuilder(1).size
        writer.policy = writer.policy._replace(max_open_memory=most)
        for batch in traces:
            writer.write(batch)
            assert writer.traces.memory <= most
        assert len(writer.traces) == 2
        writer.close()
        assert writer.traces.memory == 0
        assert len(list(read_trajectories(tmp_path))) == 10

    def test_a_trajectory_of_any_number_of_spans(self, writer, monkeypatch):
        """It is written in parts, so that its summary stays bounded."""
        monkeypatch.setattr(folder_writer, "MAX_LINE_BYTES", 40_000)
        monkeypatch.setattr("otel_rollout.folder.known_traces.MAX_ID_BYTES", 1000)
        most = 0
        for first in range(2, 6002, 100):
            numbers = range(first, first + 100)
            writer.write([make_span("a", n, trace_id_of(1, 0, 0), attributes={"rollout.step": 1}) for n in numbers])
            most = max(most, writer.traces.memory)
        assert 0 < most < 200_000
