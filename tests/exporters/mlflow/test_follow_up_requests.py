"""Rewards that fail, on a server and in a sqlite file: spans stay whole and delivered, the rewards come later."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from otel_rollout import FollowUpStats
from otel_rollout.export import send_batch
from otel_rollout.export.outcome import Verdict
from otel_rollout_mlflow import MlflowSpanExporter
from tests.delivery.queues import until
from tests.exporters.mlflow.conftest import kinds
from tests.faults.faulty_receiver import Fault, FaultyReceiver

pytestmark = pytest.mark.integration

PAYLOAD = "x" * 20_000
STORED = {"messages": [{"role": "user", "content": PAYLOAD}]}


@pytest.fixture
def file(uri, request) -> Path:
    """The sqlite file of the database, the server's too."""
    if uri.startswith("http"):
        return Path(request.getfixturevalue("mlflow_server").database)
    return Path(uri.removeprefix("sqlite:///"))


@contextmanager
def refusing(file: Path, table: str):
    """Have the database refuse new rows of a table."""
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as connection:
        connection.execute(f"create trigger refusing before insert on {table} begin select raise(abort, 'no'); end")
        try:
            yield
        finally:
            connection.execute("drop trigger refusing")


def deliver(exporter, spans):
    """Bring a batch to its end as delivery does, without its waiting."""
    left = iter(range(50))
    return send_batch(exporter.send, spans, wait=lambda seconds, outcome: next(left, None) is not None)


def large(trajectory, project, **more):
    """Return a trajectory with a payload that would be cut."""
    return trajectory(project, root_attributes={"input.value": f'"{PAYLOAD}"'}, **more)


# The database itself refuses something, in the words of SQLite.
@pytest.mark.parametrize("uri", kinds("sqlite")[:2], indirect=True)
class TestFailingFollowUps:
    """Requests beside the spans that fail."""

    def test_rewards_change_no_span(self, uri, file, project, trajectory, read_back) -> None:
        """Rewards that the backend fails for cut nothing and lose nothing; they are stored when it mends."""
        trajectories = [large(trajectory, project, reward=1.0) for _ in range(3)]
        exporter = MlflowSpanExporter(tracking_uri=uri)
        with refusing(file, "assessments"):
            report = deliver(exporter, [span for each in trajectories for span in each.spans])
            assert (report.delivered, report.shrunk, dict(report.lost)) == (9, 0, {})
            assert not exporter.force_flush(2000)
            assert exporter.follow_up_requests.stats()["rewards"] == FollowUpStats(waiting=3)
        assert exporter.force_flush(60_000), exporter.follow_up_requests.last_error

        found = read_back(uri, project).traces()

        assert {trace.info.trace_id for trace in found} == {each.mlflow_id for each in trajectories}
        for trace in found:
            assert [root.inputs for root in trace.data.spans if root.parent_id is None] == [STORED]
            assert [item.value for item in trace.info.assessments] == [1.0]
        assert exporter.follow_up_requests.stats()["rewards"] == FollowUpStats(done=3)

    def test_links_change_no_span(self, uri, file, project, trajectory, read_back) -> None:
        """Links that the backend refuses are counted; spans and rewards are as they would be without them."""
        trajectories = [large(trajectory, project, reward=1.0) for _ in range(3)]
        exporter = MlflowSpanExporter(tracking_uri=uri, create_run=True)
        with refusing(file, "entity_associations"):
            report = deliver(exporter, [span for each in trajectories for span in each.spans])
            assert (report.delivered, report.shrunk, dict(report.lost)) == (9, 0, {})
            assert not exporter.force_flush(60_000)
        counts = exporter.follow_up_requests.stats()
        assert counts["links"] == FollowUpStats(lost={"refused": 3})
        assert counts["rewards"] == FollowUpStats(done=3)

        for trace in read_back(uri, project).traces():
            assert [root.inputs for root in trace.data.spans if root.parent_id is None] == [STORED]

    def test_reward_of_a_deleted_trace(self, uri, file, project, trajectory, read_back) -> None:
        """A reward whose trace is gone is lost alone, and counted; the others are stored."""
        kept, gone = (trajectory(project, reward=1.0) for _ in range(2))
        exporter = MlflowSpanExporter(tracking_uri=uri)
        back = read_back(uri, project)
        with refusing(file, "assessments"):
            assert deliver(exporter, [*gone.spans, *kept.spans]).delivered == 6
            assert not exporter.force_flush(1000)
            back.client.delete_traces(back.experiment_id, trace_ids=[gone.mlflow_id])

        assert not exporter.force_flush(60_000)

        assert exporter.follow_up_requests.stats()["rewards"] == FollowUpStats(done=1, lost={"refused": 1})
        (trace,) = back.traces()
        assert [item.value for item in trace.info.assessments] == [1.0]


class TestLateReward:
    """A reward that comes after the end of its trajectory, from whichever process."""

    def test_the_list_shows_it(self, uri, project, trajectory, read_back) -> None:
        """The text of the output in the list begins with the rollout's number, and with the latest reward before it."""
        one, previews = trajectory(project, rollout_n=3), []
        late = [
            one.span("annotate", 12, 12 + value, {"rollout.late": True, "rollout.reward": value})
            for value in (0.5, 1.0)
        ]
        exporter = MlflowSpanExporter(tracking_uri=uri)
        for batch in (one.spans, late[:1], late[1:]):
            assert exporter.send(batch).verdict is Verdict.DELIVERED
            assert exporter.force_flush(), exporter.follow_up_requests.last_error
            (trace,) = read_back(uri, project).traces()
            previews.append(trace.info.response_preview)

        assert previews == [
            '{"rollout": 3, "output": "4"}',
            '{"reward": 0.5, "rollout": 3, "output": "4"}',
            '{"reward": 1.0, "rollout": 3, "output": "4"}',
        ]
        assert (trace.info.state, trace.info.tags["rollout_n"]) == ("OK", "3")
        assert [item.value for item in trace.info.assessments] == [1.0]
        exporter.shutdown()


class TestCorrectedReward:
    """A trajectory's reward that is known to be another one later."""

    @pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0)], ids=str)
    def test_the_latest_counts(self, uri, project, trajectory, read_back, order) -> None:
        """In whichever order rewards arrive, from whichever process, the one that was known last stands alone."""
        one = trajectory(project, reward=0.0)
        spans = [one.root, *(one.span("reward", 0, end, {"rollout.reward": end / 10}) for end in (12, 15))]
        for place in order:
            exporter = MlflowSpanExporter(tracking_uri=uri)
            assert exporter.send([spans[place]]).verdict is Verdict.DELIVERED
            exporter.shutdown()
            assert exporter.follow_up_requests.stats()["rewards"] == FollowUpStats(done=1)

        (trace,) = read_back(uri, project).traces()

        assert [(item.name, item.value, item.valid) for item in trace.info.assessments] == [("reward", 1.5, True)]

    def test_in_one_process(self, uri, project, trajectory, read_back) -> None:
        """A process that corrects its own reward has the correction stored; a repetition changes nothing."""
        one = trajectory(project, reward=0.0)
        exporter = MlflowSpanExporter(tracking_uri=uri)
        correction = one.span("reward", 0, 12, {"rollout.reward": 1.0})
        for batch in (one.spans, [correction], one.spans):
            assert exporter.send(batch).verdict is Verdict.DELIVERED
            assert exporter.force_flush(), exporter.follow_up_requests.last_error

        (trace,) = read_back(uri, project).traces()

        assert [item.value for item in trace.info.assessments] == [1.0]
        assert exporter.follow_up_requests.stats()["rewards"] == FollowUpStats(done=2)


class TestServer:
    """A proxy in front of the server that fails for requests beside the spans."""

    @pytest.fixture
    def receiver(self, mlflow_server):
        """The proxy."""
        with FaultyReceiver(mlflow_server.address) as receiver:
            yield receiver

    @pytest.mark.parametrize(("path", "status"), [("assessments", 503), ("link-to-run", 403), ("runs/", 500)])
    def test_status(self, receiver, project, trajectory, read_back, path, status) -> None:
        """Whatever the answer to follow-up requests, every span is stored whole by one request and delivered."""
        receiver.steady = fault = Fault(status=status, path=path)
        trajectories = [large(trajectory, project, reward=1.0) for _ in range(3)]
        exporter = MlflowSpanExporter(tracking_uri=receiver.url, create_run=True)
        report = deliver(exporter, [span for each in trajectories for span in each.spans])
        assert (report.delivered, report.shrunk, dict(report.lost)) == (9, 0, {})
        until(lambda: not exporter.force_flush(100) and receiver.met[fault])
        receiver.steady = None
        assert exporter.force_flush(60_000), exporter.follow_up_requests.last_error
        exporter.shutdown()

        found = read_back(receiver.url, project).traces()

        assert len(found) == 3
        for trace in found:
            assert [root.inputs for root in trace.data.spans if root.parent_id is None] == [STORED]
            assert [item.value for item in trace.info.assessments] == [1.0]

    def test_request_that_hangs(self, receiver, project, trajectory) -> None:
        """While a reward hangs, spans are delivered, and a shutdown keeps to its time."""
        receiver.steady = fault = Fault(hangs=True, path="assessments")
        exporter = MlflowSpanExporter(tracking_uri=receiver.url, timeout=600.0)
        exporter.export_timeout = 0.2
        assert deliver(exporter, trajectory(project, reward=1.0).spans).delivered == 3
        until(lambda: receiver.met[fault])
        for _ in range(3):
            assert deliver(exporter, trajectory(project, reward=1.0).spans).delivered == 3
        exporter.shutdown()
        assert exporter.follow_up_requests.stats()["rewards"] == FollowUpStats(lost={"shutdown": 4})
