"""Summaries in a trace folder: of the index, of lines."""

from __future__ import annotations

from contextlib import closing
from itertools import permutations, product
from unittest import mock

import orjson
import pytest

from otel_rollout import read_trajectories, semconv
from otel_rollout.catalog import StepSummary, catalog_of, steps
from otel_rollout.catalog.failure_class import failure_class
from otel_rollout.facts import COLUMNS, from_json, summarise_trajectory
from otel_rollout.folder import StoredFile, seal_of
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.look import trace_events
from tests.fuzz.folder_mutations import HOSTILE_VALUES

from .recordings import make_span, make_trajectory, open_indexes, trace_id_of, write_folder

HOSTILE = (
    *(each for each in HOSTILE_VALUES if not isinstance(each, int) or abs(each) < 2**64),
    *([["a", "TOOL", "E", 9]], [["a", "EVALUATOR", "E", -7]], [["a", "", "", 2**62]], {"a": [0, 0]}, ["", "a"]),
)
PLACE = {"worker": mock.ANY, "bytes": mock.ANY, "stored_bytes": mock.ANY}


def fields_of(summary):
    """Return a summary as a dict, without what only a folder knows."""
    return {name: getattr(summary, name) for name in type(summary).__dataclass_fields__ if name not in PLACE}


def late_span(number, seconds, *, reward, **facts):
    """Return the span of a late `annotate`."""
    given = {"rollout.step": 1, "rollout.sample_index": 0, "rollout.reward": reward}
    given |= {f"rollout.{name}": value for name, value in facts.items()}
    given |= {semconv.SPAN_KIND: "EVALUATOR", semconv.LATE: True}
    return make_span("annotate", number, trace_id_of(1, 0, 0), seconds=seconds, attributes=given)


class TestRecordedTrajectory:
    """Its summary."""

    def test_it_comes_from_the_index(self, tmp_path):
        """It equals that of the spans, and no spans are read."""
        spans = make_trajectory(7, 3, 1, payload="[1]")
        write_folder(tmp_path, spans[:1], spans[1:])
        [found] = read_trajectories(tmp_path)
        with mock.patch.object(StoredFile, "read_spans", side_effect=AssertionError):
            summary = found.summary
        assert fields_of(summary) == fields_of(summarise_trajectory(spans))
        assert (summary.bytes, summary.stored_bytes) == (found.size_bytes, found.stored_bytes)
        assert summary.worker == found.parts[0][0].worker

    def test_of_a_running_one(self, tmp_path):
        """It is that of the spans in the journal."""
        spans = make_trajectory()
        writer = FolderWriter(tmp_path)
        writer.write(spans[:1])
        writer.write(spans[1:2])
        [found] = read_trajectories(tmp_path)
        assert fields_of(found.summary) == fields_of(summarise_trajectory(spans[:2]))
        writer.close()

    @pytest.mark.parametrize(
        "changes",
        [
            {"facts": None},
            {"facts": [1]},
            {"facts": {"tools": {"search": [1, 2]}}},
            {"facts": {"turns": -1}},
            {"reward": "high"},
        ],
    )
    def test_a_line_of_another_form(self, tmp_path, changes):
        """All is from the spans, whatever a program wrote with a valid checksum."""
        write_folder(tmp_path, make_trajectory())
        [index] = open_indexes(tmp_path)
        line = {**orjson.loads(index.read_bytes()), **changes}
        line = {name: line[name] for name in line if name != "crc32" and line[name] is not None}
        start = orjson.dumps(line)[:-1]
        index.write_bytes(start + seal_of(start))
        [found] = read_trajectories(tmp_path)
        assert fields_of(found.summary) == fields_of(summarise_trajectory(make_trajectory()))

    @pytest.mark.slow
    def test_any_value_of_a_column(self, tmp_path):
        """A figure is one that spans can have, else that of the spans; no other one changes with it."""
        spans = make_trajectory()
        write_folder(tmp_path, spans)
        [index] = open_indexes(tmp_path)
        entry = orjson.loads(index.read_bytes())
        del entry["crc32"]
        sound = fields_of(summarise_trajectory(spans))
        for column, value in product(COLUMNS, HOSTILE):
            start = orjson.dumps({**entry, "facts": {**entry["facts"], column: value}})[:-1]
            index.write_bytes(start + seal_of(start))
            [found] = read_trajectories(tmp_path)
            shown = fields_of(found.summary)
            assert {name for name in sound if shown[name] != sound[name]} <= {column}
            with closing(catalog_of([found.summary])) as connection:
                (step,) = steps(connection)
            assert from_json(StepSummary, orjson.loads(orjson.dumps(step, default=tuple)))
            failure_class(found.summary, 0.0)
            assert list(trace_events([(found.summary, list)]))

    def test_a_late_fact_needs_no_spans(self, tmp_path):
        """What `annotate` says after the end is merged by the lines of the index; its own time is no reward's."""
        spans = make_trajectory(reward=0.25)
        late = [late_span(9 + at, (2 + at, 2.00005 + at), reward=0.5, fate="stale") for at in range(2)]
        write_folder(tmp_path, spans, *([each] for each in late))
        [found] = read_trajectories(tmp_path)
        with mock.patch.object(StoredFile, "read_spans", side_effect=AssertionError):
            summary = found.summary
        assert (summary.reward, summary.fate, summary.reward_seconds) == (0.5, "stale", 0.0)
        assert fields_of(summary) == fields_of(summarise_trajectory([*spans, *late]))
        assert summary.bytes == found.size_bytes

    @pytest.mark.parametrize("order", list(permutations(range(3))))
    @pytest.mark.parametrize("in_line_of_root", [None, 0, 1, 2])
    def test_the_latest_reward_counts_in_any_lines(self, tmp_path, order, in_line_of_root):
        """In whatever lines and order they come; of two at one time, the greater one."""
        late = [
            late_span(9, (2, 4), reward=0.5),
            late_span(10, (3, 4), reward=0.75),
            late_span(11, (2, 3), reward=1.0),
        ]
        spans = make_trajectory(reward=0.25)
        first = spans if in_line_of_root is None else [*spans[:-1], late[in_line_of_root], spans[-1]]
        write_folder(tmp_path, first, *([late[at]] for at in order if at != in_line_of_root))
        [found] = read_trajectories(tmp_path)
        assert (found.reward, found.summary.reward) == (0.75, 0.75)
        assert summarise_trajectory([*(late[at] for at in order), *spans]).reward == 0.75

    def test_an_attribute_with_the_name_of_a_column(self, tmp_path):
        """It stays an attribute of the root."""
        given = {"x": 1, "service_name": "mine", "facts": 2}
        write_folder(tmp_path, make_trajectory(**given))
        [found] = read_trajectories(tmp_path)
        assert {key: found.attributes[key] for key in given} == given
        assert found.summary.service_name == "p"
