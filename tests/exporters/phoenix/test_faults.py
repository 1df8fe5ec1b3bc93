"""Rewards that fail: spans stay delivered, rewards come later, and what is lost is counted."""

from __future__ import annotations

import logging
import os

import pytest

import otel_rollout
from otel_rollout import FollowUpStats
from tests.delivery.queues import until
from tests.faults.faulty_receiver import Fault

from .conftest import SECONDS, counted

pytestmark = pytest.mark.integration


def scores(phoenix, project) -> list[float]:
    """Return the scores of the reward on spans."""
    return sorted(
        row["result"]["score"] for row in phoenix.api.annotations(project, "span", identifier=["otel-rollout"])
    )


class TestFailingRewards:
    """Requests for annotations that fail."""

    @pytest.mark.parametrize(
        "fault",
        [
            Fault(status=500, after_commit=True, path="_annotations"),
            Fault(status=429, headers=(("retry-after", "1"),), path="_annotations"),
            pytest.param(Fault(status=503, path="_annotations"), marks=pytest.mark.slow),
            pytest.param(Fault(reset="answer", path="_annotations"), marks=pytest.mark.slow),
        ],
        ids=["500 after commit", "429", "503", "reset"],
    )
    def test_a_passing_fault(self, phoenix, project, proxy, trace, fault) -> None:
        """Rewards are retried until Phoenix has them, each once; no span is affected."""
        proxy.faults += [fault] * 2
        trace(proxy.url, 0.0, 0.5)
        assert otel_rollout.flush(SECONDS), otel_rollout.stats()
        until(lambda: counted() == FollowUpStats(done=2))
        (stats,) = otel_rollout.stats().exporters.values()
        assert (stats.delivered, stats.lost, stats.payloads_shrunk) == (4, {}, 0)
        assert scores(phoenix, project) == [0.0, 0.5]

    def test_credentials(self, phoenix, project, proxy, trace, caplog) -> None:
        """An auth error is reported once with the variables to check, and the rewards wait."""
        proxy.steady = Fault(status=401, path="_annotations")
        trace(proxy.url, 0.0, 0.5)
        with caplog.at_level(logging.WARNING, logger="otel_rollout"):
            until(lambda: not otel_rollout.flush(0.1) and proxy.met and counted() == FollowUpStats(waiting=2))
        [line] = [entry.getMessage() for entry in caplog.records if "configuration error" in entry.getMessage()]
        assert "check PHOENIX_COLLECTOR_ENDPOINT, PHOENIX_API_KEY and PHOENIX_CLIENT_HEADERS" in line
        proxy.steady = None
        assert otel_rollout.flush(SECONDS)
        assert scores(phoenix, project) == [0.0, 0.5]

    def test_a_name_that_phoenix_refuses(self, phoenix, project, trace) -> None:
        """Of a batch with a name that Phoenix keeps for itself, that annotation alone is lost, and counted."""
        trace(phoenix.address, 0.0, 0.5, rewards={"note": 1.0})
        assert not otel_rollout.flush(SECONDS)
        assert counted() == FollowUpStats(done=2, lost={"refused": 2})
        assert scores(phoenix, project) == [0.0, 0.5]

    def test_a_shutdown_has_a_deadline(self, project, proxy, trace) -> None:
        """Rewards that hang delay a shutdown to its deadline and are counted as lost; the spans are delivered."""
        proxy.steady = Fault(hangs=True, path="_annotations")
        trace(proxy.url, 0.0, 0.5)
        until(lambda: not otel_rollout.flush(0.1) and proxy.met and counted() == FollowUpStats(waiting=2))
        assert not otel_rollout.shutdown(0.5)
        (stats,) = otel_rollout.stats().exporters.values()
        assert (stats.delivered, stats.lost) == (4, {})
        assert stats.follow_up_requests["rewards"] == FollowUpStats(lost={"shutdown": 2})
        proxy.release()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child(self, phoenix, project, trace) -> None:
        """A forked child delivers its own rewards, and none of its parent's."""
        trace(phoenix.address, 0.0)
        assert otel_rollout.flush(SECONDS)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with otel_rollout.rollout_trace_attr(12, 7, 1, name="trajectory"):
                    otel_rollout.annotate(reward=0.5)
                code = 0 if otel_rollout.flush(SECONDS) and counted() == FollowUpStats(done=1) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert scores(phoenix, project) == [0.0, 0.5]
