"""What a replay sends: the same spans, whole trajectories, everything once."""

from __future__ import annotations

import copy
import time

import pytest

import otel_rollout
from otel_rollout.errors import ConfigurationError
from otel_rollout.export import RetryPolicy
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.follow_up_requests import FollowUpRequests, Kind
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.folder import scan_frames
from otel_rollout.settings import resolve_settings
from otel_rollout.testing import InMemorySpanExporter
from otel_rollout_file import FileSpanExporter
from tests.replay.recordings import Memory
from tests.trace_folder.recordings import write_folder


class Refusing(Memory):
    """Takes what is asked of it, and answers as it is told.

    Args:
        answer: Says what becomes of each batch; None to take it.
    """

    def __init__(self, answer):
        super().__init__()
        self.batches = []
        self._answer = answer

    def send(self, spans):
        """Answer."""
        self.batches.append(list(spans))
        outcome = self._answer(spans)
        if outcome is None:
            self.export(spans)
            return DELIVERED
        return outcome


class TestBatches:
    """How spans are put together."""

    def test_trajectories_stay_whole(self, record, replayed):
        """A batch that the next trajectory does not fit into is sent without it."""
        exporter = Refusing(lambda spans: None)

        replayed(record(), exporter, settings=resolve_settings({"max_batch_spans": 8}))

        assert [len(batch) for batch in exporter.batches] == [6, 6, 3]

    def test_a_trajectory_larger_than_a_batch_goes_in_order(self, record, replayed):
        """It is cut into batches within the bound, the root last, and remembered as one."""
        exporter = Refusing(lambda spans: None)
        folder = record(steps=(1,), samples=1)

        done = replayed(folder, exporter, settings=resolve_settings({"max_batch_spans": 2}))

        assert [len(batch) for batch in exporter.batches] == [2, 1, 2, 1]
        assert [batch[-1].parent is None for batch in exporter.batches] == [False, True, False, True]
        assert done.report.delivered == 2
        assert replayed(folder, exporter).report.skipped == 2

    def test_batches_are_bounded_in_bytes(self, record, replayed):
        """The exporter's own bound holds, where it is lower than ours."""
        exporter = Refusing(lambda spans: None)
        exporter.max_batch_bytes = 1

        replayed(record(), exporter)

        assert {len(batch) for batch in exporter.batches} == {1}


class TestMemory:
    """What was delivered is not sent again."""

    def test_what_grew_is_sent_again(self, record, replayed, memory):
        """A trajectory that has got more spans since is another one than the one that was delivered."""
        live = InMemorySpanExporter()
        folder = record(live, steps=(1,), samples=1)
        replayed(folder, memory)
        root = next(span for span in live.spans if span.parent is None)
        late = copy.copy(live.spans[0])
        late._end_time = root.end_time + 10
        late._context = type(late.context)(
            late.context.trace_id, 77, is_remote=False, trace_flags=late.context.trace_flags
        )
        write_folder(folder, [late])
        memory.clear()

        done = replayed(folder, memory)

        assert (done.report.delivered, done.report.skipped) == (1, 1)
        assert len(memory.spans) == 4

    def test_where_the_exporter_sends_is_unknown(self, record, replayed):
        """An exporter that does not say where it sends gets everything each time, and that is said."""
        exporter = InMemorySpanExporter()
        folder = record()
        replayed(folder, exporter)

        done = replayed(folder, exporter)

        assert done.report.delivered == 5
        assert any("has no destination" in note for note in done.notes)


class TestFailures:
    """What is not delivered is counted, and sent next time."""

    def test_a_span_that_is_refused_costs_its_trajectory_alone(self, record, replayed):
        """The others are delivered and remembered; the one with the bad span is tried again next time."""
        bad = {"rollout.step": 1, "rollout.sample_index": 1}
        exporter = Refusing(
            lambda spans: (
                Outcome(Verdict.REFUSED, "HTTP 400: a bad span")
                if any(span.parent and bad.items() <= dict(span.attributes).items() for span in spans)
                else None
            )
        )
        folder = record()

        done = replayed(folder, exporter)

        assert (done.report.delivered, done.report.undelivered, dict(done.report.lost)) == (4, 1, {"refused": 2})
        assert not done.report.is_whole
        assert done.report.reason == "HTTP 400: a bad span"
        assert replayed(folder, exporter).report.skipped == 4

    @pytest.mark.parametrize("turns", [150])
    def test_a_trajectory_that_is_refused_whole_costs_no_other(self, replayed, tmp_path, project, turns):
        """However many of its spans are refused in a row: the backend answers, so what comes after it is sent."""
        folder = tmp_path / "long"
        otel_rollout.init(project, "exp-1", backend=FileSpanExporter(folder=folder))
        turn = otel_rollout.rollout_trace_op(lambda: None)
        for sample in range(6):
            with otel_rollout.rollout_trace_attr(sample_index=sample, step=1, rollout_n=0):
                for _ in range(turns):
                    turn()
        assert otel_rollout.shutdown(60)
        exporter = Refusing(
            lambda spans: (
                Outcome(Verdict.REFUSED, "HTTP 400")
                if any(span.attributes["rollout.sample_index"] == 1 for span in spans)
                else None
            )
        )

        done = replayed(folder, exporter, patience=60.0)

        assert (done.report.delivered, done.report.undelivered, done.report.untried) == (5, 1, 0)
        assert len(exporter.spans) == 5 * (turns + 1)
        assert dict(done.report.lost) == {"refused": turns + 1}

    def test_a_backend_that_refuses_everything_is_given_up(self, record, replayed):
        """A backend that only ever refuses is not asked longer than one that does not answer."""
        exporter = Refusing(lambda spans: Outcome(Verdict.REFUSED, "HTTP 400"))

        done = replayed(record(), exporter, patience=0.2, policy=RetryPolicy())

        assert (done.report.delivered, done.report.undelivered) == (0, 5)
        assert done.report.lost["shutdown"] > 0

    def test_a_backend_that_was_given_up_is_left_alone(self, record, replayed):
        """After a trajectory that was given up, nothing is asked of the exporter but its shutdown."""

        class Away(Refusing):
            def store_held(self):
                raise AssertionError("asked once more")

        exporter = Away(lambda spans: Outcome(Verdict.RETRY, "connection refused"))

        done = replayed(record(), exporter, patience=0.2, settings=resolve_settings({"max_batch_spans": 3}))

        assert (done.report.undelivered, done.report.untried) == (1, 4)

    def test_spans_that_are_taken_and_not_kept(self, record, replayed):
        """Where a backend rejects some spans of a batch and does not say which, the batch is not remembered."""
        exporter = Refusing(lambda spans: Outcome(Verdict.DELIVERED, "2 rejected", rejected=2))
        folder = record()

        done = replayed(folder, exporter)

        assert (done.report.delivered, done.report.undelivered, dict(done.report.lost)) == (0, 5, {"rejected": 2})
        assert replayed(folder, exporter).report.skipped == 0

    def test_follow_up_requests_that_fails(self, record, replayed):
        """A trajectory whose reward the backend does not take is not noted as delivered: the next replay sends it."""
        folder = record()
        state = {"outcome": Outcome(Verdict.CONFIGURATION_ERROR, "HTTP 403")}

        class Rewarding(OutcomeSpanExporter):
            destination = "there"

            def __init__(self):
                self.spans = []
                self.follow_up_requests = FollowUpRequests(
                    "there", {"rewards": Kind(lambda group, values: state["outcome"])}
                )

            def send(self, spans):
                self.spans += spans
                for span in spans:
                    self.follow_up_requests.add("rewards", None, str(span.context.span_id), span.name)
                return DELIVERED

            def shutdown(self):
                self.follow_up_requests.shutdown(time.monotonic() + 1)

        first = replayed(folder, Rewarding())
        state["outcome"] = DELIVERED
        second = replayed(folder, Rewarding())
        third = replayed(folder, Rewarding())

        assert (first.report.delivered, first.report.undelivered, first.report.reason) == (
            0,
            5,
            "rewards: configuration_error: HTTP 403",
        )
        assert not first.report.lost
        assert (second.report.delivered, second.report.skipped) == (5, 0)
        assert (third.report.delivered, third.report.skipped) == (0, 5)

    def test_two_at_once(self, record, replayed):
        """While one replay is at it, another one of the folder to the same place is refused, to another place not."""
        folder = record()

        class Busy(OutcomeSpanExporter):
            destination = "there"

            def send(self, spans):
                with pytest.raises(ConfigurationError, match="another replay of"):
                    replayed(folder, Other("there"))
                assert replayed(folder, Other("elsewhere")).report.delivered == 5
                return DELIVERED

            def shutdown(self):
                pass

        class Other(OutcomeSpanExporter):
            destination = ""

            def __init__(self, destination):
                self.destination = destination

            def send(self, spans):
                return DELIVERED

            def shutdown(self):
                pass

        assert replayed(folder, Busy()).report.delivered == 5
        assert replayed(folder, Other("there")).report.skipped == 5

    @pytest.mark.parametrize("has_index", [True, False])
    def test_a_file_that_is_damaged(self, record, replayed, memory, has_index):
        """A trajectory whose bytes are not those that were written is counted; the others are sent."""
        folder = record()
        file = next((folder / "steps=000000-000099").glob("*.otlp.zst"))
        data = bytearray(file.read_bytes())
        data[60] ^= 0xFF
        file.write_bytes(data)
        if not has_index:
            for index in folder.rglob("*.index.jsonl*"):
                index.unlink()

        done = replayed(folder, memory)

        assert (done.report.delivered, done.report.unreadable, done.report.is_whole) == (4, 1, False)

    def test_a_write_that_was_cut_short(self, record, replayed, memory):
        """The end of a file that a killed process was writing is said to be missing, and nothing is to be mended."""
        folder = record()
        file = next((folder / "steps=000000-000099").glob("*.otlp.zst"))
        *_, last = scan_frames(file)
        file.write_bytes(file.read_bytes()[: last.offset + last.length - 9])
        next((folder / "steps=000000-000099").glob("*.index.jsonl.zst")).unlink()

        done = replayed(folder, memory)

        assert (done.report.delivered, done.report.unreadable, done.report.is_whole) == (4, 0, True)
        assert done.notes == [f"1 torn frame skipped in {file}"]
