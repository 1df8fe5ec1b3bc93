"""Faults of the server, the network and the settings."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext

from otel_rollout.export import BatchReport, send_batch
from otel_rollout.export.outcome import DELIVERED, Verdict
from otel_rollout_weave import WeaveSpanExporter

pytestmark = pytest.mark.integration


def hex_ids(spans: list[Any]) -> list[str]:
    """Return the ids of the spans' calls."""
    return [f"{span.context.span_id:016x}" for span in spans]


def deliver(exporter: WeaveSpanExporter, spans: list[Any]) -> BatchReport:
    """Bring a batch to its end as delivery does, without its waiting."""
    left = iter(range(50))
    return send_batch(exporter.send, spans, wait=lambda seconds, outcome: next(left, None) is not None)


def stored_once(server: Any, project: str, spans: list[Any]) -> bool:
    """Return whether each span is in the project, was stored once, and nothing else is there."""
    inserts = server.inserts()
    found = sorted(call["id"] for call in server.calls(project))
    return found == sorted(hex_ids(spans)) and all(inserts[one] == 1 for one in found)


class TestLostAnswer:
    """The server stored a batch, and its answer did not reach us."""

    def test_nothing_is_stored_twice(self, server, exporter, spans, project) -> None:
        """After a lost answer the exporter asks what is there, and sends nothing again."""
        sent = spans.trajectory(ops=5)
        server.set_faults("/calls/complete", "lost")
        assert exporter.send(sent).verdict is Verdict.RETRY
        assert exporter.send(sent) == DELIVERED
        assert stored_once(server, project, sent)

    def test_only_what_is_missing_is_sent(self, server, exporter, spans, project) -> None:
        """Of a batch that was stored in part, only the rest is sent again."""
        small = WeaveSpanExporter(max_request_bytes=1)  # a request per call
        sent = spans.trajectory(ops=2)
        server.set_faults("/calls/complete", "lost")
        assert small.send(sent).verdict is Verdict.RETRY
        server.take_requests()
        assert small.send(sent) == DELIVERED
        small.shutdown()
        assert len(server.take_requests("/calls/complete")) == 2
        assert stored_once(server, project, sent)

    def test_halves_of_a_doubtful_batch(self, server, exporter, spans, project) -> None:
        """Spans are recognised when they come again in other batches than before."""
        sent = spans.trajectory(ops=3)
        server.set_faults("/calls/complete", "lost")
        exporter.send(sent)
        for part in (sent[:1], sent[1:3], sent[3:]):
            assert exporter.send(part) == DELIVERED
        assert stored_once(server, project, sent)

    def test_delivered_spans_are_not_asked_for(self, server, exporter, spans) -> None:
        """Without a fault, no question is asked."""
        exporter.send(spans.trajectory())
        assert server.take_requests("stream_query") == []

    def test_ask_first_recognises_spans_of_another_process(self, server, exporter, spans, project) -> None:
        """With `ask_first`, as in a replay, calls and rewards that another exporter sent are not sent again."""
        sent = spans.trajectory(reward=1.0)
        exporter.send(sent[:2])
        for _ in range(2):
            replay = WeaveSpanExporter(ask_first=True)
            assert replay.send(sent) == DELIVERED
            replay.shutdown()
            assert not replay.follow_up_requests.stats()["rewards"].lost
        assert stored_once(server, project, sent)
        assert len(server.feedback(project)) == 1

    def test_reward_is_filed_once(self, server, exporter, spans, project) -> None:
        """After a lost answer to the feedback, the calls are not sent again and the reward is not filed again."""
        sent = spans.trajectory(reward=0.5)
        server.set_faults("/feedback/batch/create", "lost")
        assert exporter.send(sent) == DELIVERED
        assert exporter.force_flush()
        assert stored_once(server, project, sent)
        assert [row["payload"] for row in server.feedback(project)] == [{"output": 0.5}]

    def test_question_refused(self, server, exporter, spans, project, caplog) -> None:
        """If the key may not read, the batch is sent anyway, with one warning."""
        sent = spans.trajectory()
        server.set_faults("/calls/complete", 503)
        exporter.send(sent)
        server.set_faults("stream_query", 403)
        assert exporter.send(sent) == DELIVERED
        assert stored_once(server, project, sent)
        assert "some may come twice" in caplog.text


class TestPassingFaults:
    """Faults that pass by themselves."""

    def test_retry_after(self, server, exporter, spans) -> None:
        """The seconds that a 429 asks for reach delivery."""
        server.set_faults("/calls/complete", {"status": 429, "headers": {"Retry-After": "7"}})
        outcome = exporter.send(spans.trajectory())
        assert (outcome.verdict, outcome.retry_after) == (Verdict.RETRY, 7.0)

    @pytest.mark.parametrize("path", ["/graphql", "/file/create", "/obj/create"])
    def test_fault_of_another_request(self, server, exporter, spans, project, path) -> None:
        """A passing fault of any request that comes before the calls delays the batch and loses nothing."""
        sent = spans.trajectory(reward=1.0)
        server.set_faults(path, 503)
        assert exporter.send(sent).verdict is Verdict.RETRY
        assert exporter.send(sent) == DELIVERED
        assert exporter.force_flush()
        assert stored_once(server, project, sent)
        assert len(server.feedback(project)) == 1

    def test_standard_export_repeats(self, server, exporter, spans, project) -> None:
        """Under any span processor, `export` itself repeats a failed attempt."""
        sent = spans.trajectory()
        server.set_faults("/calls/complete", "lost")
        assert exporter.export(sent) is SpanExportResult.SUCCESS
        assert stored_once(server, project, sent)

    def test_outage_and_return(self, server, spans, project, line) -> None:
        """Spans of an outage are kept by who sends them, and arrive once when the server is back."""
        exporter = WeaveSpanExporter(base_url=line.url, trace_server_url=line.url)
        before, during = spans.trajectory(), spans.trajectory()
        assert exporter.send(before) == DELIVERED
        line.cut()
        for _ in range(3):
            outcome = exporter.send(during)
            assert outcome.verdict is Verdict.RETRY
        line.mend()
        assert exporter.send(during) == DELIVERED
        exporter.shutdown()
        assert stored_once(server, project, before + during)


class TestRefusals:
    """Batches that the server finds something wrong with."""

    def bad(self, span: ReadableSpan, **changes: Any) -> ReadableSpan:
        """Return a copy of a span with something that Weave refuses."""
        kept = {"context": span.context, "attributes": span.attributes, "parent": span.parent} | changes
        return ReadableSpan(
            name=span.name,
            resource=span.resource,
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
            **kept,
        )

    def test_400_drops_the_one_bad_call(self, server, exporter, spans, project) -> None:
        """A call that is refused whatever its payload is dropped and counted; the others arrive."""
        good = [spans.op(spans.root()) for _ in range(12)]
        bad = self.bad(good[0], context=SpanContext(good[0].context.trace_id, 2**70, is_remote=False))
        report = deliver(exporter, [*good[:5], bad, *good[5:]])
        assert (report.delivered, dict(report.lost)) == (12, {"refused": 1})
        assert stored_once(server, project, good)

    def test_422_drops_or_cuts_the_one_bad_call(self, server, exporter, spans, project) -> None:
        """A payload that is nested too deep for the server costs only its own call."""
        good = [spans.op(spans.root()) for _ in range(6)]
        attributes = {**good[0].attributes, "input.value": "[" * 400 + "]" * 400}
        bad = self.bad(spans.op(spans.root()), attributes=attributes)
        report = deliver(exporter, [*good[:3], bad, *good[3:]])
        assert report.delivered + report.lost.total() == 7
        assert report.delivered >= 6
        assert report.shrunk == 1 or report.lost == {"refused": 1}
        assert {call["id"] for call in server.calls(project)} >= set(hex_ids(good))

    def test_413_cuts_the_one_large_call(self, server, exporter, spans, project) -> None:
        """A call over the server's 32 MiB arrives with its payload cut; the others arrive whole."""
        good = [spans.op(spans.root()) for _ in range(6)]
        large = spans.root(output={"text": "x" * (33 * 1024 * 1024)})
        report = deliver(exporter, [*good, large])
        assert (report.delivered, report.shrunk, report.lost.total()) == (7, 1, 0)
        assert stored_once(server, project, [*good, large])

    def test_500_that_passes(self, server, exporter, spans, project) -> None:
        """A failure without a reason may have stored the batch: it is asked for before each further attempt."""
        sent = spans.trajectory()
        server.set_faults("/calls/complete", 500, "lost", 500)
        report = deliver(exporter, sent)
        assert (report.delivered, report.lost.total()) == (3, 0)
        assert stored_once(server, project, sent)

    @pytest.mark.parametrize("path", ["/graphql", "/obj/create"])
    def test_page_of_a_proxy(self, server, exporter, spans, project, path) -> None:
        """A page with status 200 that is not the server's answer counts as a failure, and nothing is lost."""
        sent = spans.trajectory()
        server.set_faults(path, {"status": 200, "body": "<html>log in</html>"})
        assert exporter.send(sent).verdict is Verdict.CONFIGURATION_ERROR
        assert exporter.send(sent) == DELIVERED
        assert stored_once(server, project, sent)

    def test_span_that_cannot_be_translated(self, server, exporter, spans, project, caplog) -> None:
        """A malformed span of some other code costs only itself."""
        good = spans.trajectory()
        bad = spans.root()
        bad._start_time = "yesterday"
        report = deliver(exporter, [good[0], bad, *good[1:]])
        assert (report.delivered, dict(report.lost)) == (3, {"refused": 1})
        assert stored_once(server, project, good)
        assert caplog.text.count("a span can't be sent to Weave") == 1

    def test_op_refused(self, server, exporter, spans, project, caplog) -> None:
        """A call whose op can't be registered arrives with the op's plain name."""
        server.set_faults("/obj/create", 400)
        assert exporter.send([spans.root()]) == DELIVERED
        assert server.calls(project)[0]["op_name"] == "agent_loop"
        assert "carry the plain name" in caplog.text


def rewards_of(exporter: WeaveSpanExporter) -> tuple[int, int, dict[str, int]]:
    """Return how many rewards are done, how many wait, and what was lost of them."""
    counts = exporter.follow_up_requests.stats()["rewards"]
    return counts.done, counts.waiting, dict(counts.lost)


class TestRewards:
    """Rewards as feedback, which are follow-up requests."""

    @pytest.mark.parametrize(("path", "status"), [("/feedback/query", 429), ("/feedback/batch/create", 503)])
    def test_fault_changes_no_call(self, server, exporter, spans, project, path, status) -> None:
        """A failing reward leaves each call stored once, whole and delivered; it is filed once the fault has passed."""
        sent = [span for _ in range(3) for span in spans.trajectory(reward=1.0, output={"text": "x" * 20_000})]
        server.set_faults(path, status, status)
        report = deliver(exporter, sent)
        assert (report.delivered, report.shrunk, dict(report.lost)) == (9, 0, {})
        assert exporter.force_flush()
        assert stored_once(server, project, sent)
        roots = [call for call in server.calls(project) if call["parent_id"] is None]
        assert [len(call["output"]["text"]) for call in roots] == [20_000] * 3
        assert rewards_of(exporter) == (3, 0, {})
        assert len(server.feedback(project)) == 3

    def test_refused(self, server, exporter, spans, project, caplog) -> None:
        """A server that takes no feedback has the calls all the same; the rewards are counted as refused."""
        sent = [spans.root(reward=1.0) for _ in range(2)]
        server.set_faults("/feedback/batch/create", *[400] * 3)
        assert deliver(exporter, sent).delivered == 2
        assert not exporter.force_flush()
        assert stored_once(server, project, sent)
        assert rewards_of(exporter) == (0, 0, {"refused": 2})
        assert caplog.text.count("rewards are refused") == 1

    def test_turned_away(self, server, exporter, spans, project) -> None:
        """A key that may not give feedback delays no call; the rewards wait, and a flush says so at once."""
        sent = spans.trajectory(reward=1.0)
        server.set_faults("/feedback/batch/create", 403, 403)
        assert exporter.send(sent) == DELIVERED
        assert not exporter.force_flush(30_000)
        assert rewards_of(exporter) == (0, 1, {})
        server.set_faults("")
        assert exporter.force_flush()
        assert stored_once(server, project, sent)
        assert rewards_of(exporter) == (1, 0, {})

    def test_a_later_reward_replaces_the_first(self, server, spans, project) -> None:
        """A corrected reward, from whichever process and in whichever order it comes, is the only one in the end."""
        one, other = spans.root(reward=0.0), spans.root(reward=0.0)
        late = [spans.span("reward", {"rollout.reward": 1.0}, parent=root) for root in (one, other)]
        for batch in ([one], [late[0]], [one], [late[1]], [other]):
            exporter = WeaveSpanExporter(ask_first=True)
            assert exporter.send(batch) == DELIVERED
            assert exporter.force_flush()
            exporter.shutdown()
        found = {row["weave_ref"]: row["payload"] for row in server.feedback(project)}
        assert len(server.feedback(project)) == 2
        assert found == {
            f"weave:///{project}/call/{root.context.span_id:016x}": {"output": 1.0} for root in (one, other)
        }

    def test_feedback_of_others_is_left_alone(self, server, exporter, spans, project) -> None:
        """Feedback of others on the call, under the same name, stays."""
        root = spans.root(reward=0.0)
        assert exporter.send([root]) == DELIVERED
        assert exporter.force_flush()
        [ours] = server.feedback(project)
        theirs = {key: ours[key] for key in ("project_id", "weave_ref", "feedback_type", "runnable_ref")}
        server.create_feedback({**theirs, "project_id": project, "payload": {"output": 0.7}})
        assert exporter.send([spans.span("reward", {"rollout.reward": 1.0}, parent=root)]) == DELIVERED
        assert exporter.force_flush()
        assert sorted(row["payload"]["output"] for row in server.feedback(project)) == [0.7, 1.0]

    def test_question_refused(self, server, exporter, spans, project, caplog) -> None:
        """If the key may not read, rewards are filed anyway, with one warning."""
        server.set_faults("/feedback/query", 403)
        assert exporter.send([spans.root(reward=1.0)]) == DELIVERED
        assert exporter.force_flush()
        assert len(server.feedback(project)) == 1
        assert caplog.text.count("some may come twice") == 1


class TestSettings:
    """Credentials, addresses and projects."""

    def test_project_is_made_if_it_is_missing(self, server, exporter, spans, project) -> None:
        """The first batch of a project makes it, the second one does not ask again."""
        assert exporter.send(spans.trajectory()) == DELIVERED
        assert len(server.take_requests("/graphql")) == 2
        assert exporter.send(spans.trajectory()) == DELIVERED
        assert server.take_requests("/graphql") == []

    def test_project_removed_while_running(self, server, exporter, spans, project, caplog) -> None:
        """A project that was removed is made again at the attempt after the one that finds it missing."""
        exporter.send(spans.trajectory())
        server.remove_project(project)
        sent = spans.trajectory()
        assert exporter.send(sent).verdict is Verdict.CONFIGURATION_ERROR
        assert exporter.send(sent) == DELIVERED

    def test_entity_of_the_environment(self, server, exporter, spans, project, monkeypatch) -> None:
        """A project without an entity belongs to WANDB_ENTITY."""
        monkeypatch.setenv("WANDB_ENTITY", "a-team")
        name = project.replace("/", "-")
        sent = type(spans)(name).trajectory()
        assert exporter.send(sent) == DELIVERED
        assert stored_once(server, f"a-team/{name}", sent)

    def test_default_entity_of_the_key(self, server, exporter, spans, project) -> None:
        """A project without an entity, and no WANDB_ENTITY, belongs to the default of the key's owner."""
        name = project.replace("/", "-")
        sent = type(spans)(name).trajectory()
        assert exporter.send(sent) == DELIVERED
        assert stored_once(server, f"default-team/{name}", sent)

    def test_key_of_netrc(self, server, exporter, spans, tmp_path, monkeypatch) -> None:
        """Without WANDB_API_KEY, the netrc entry that `wandb login` writes is used."""
        key = os.environ["WANDB_API_KEY"]
        monkeypatch.delenv("WANDB_API_KEY")
        monkeypatch.setenv("HOME", str(tmp_path))
        host = urlsplit(server.url).netloc
        (tmp_path / ".netrc").write_text(f"machine {host}\n  login user\n  password {key}\n")
        assert exporter.send(spans.trajectory()) == DELIVERED

    def test_key_wins_over_netrc(self, server, exporter, spans, tmp_path, monkeypatch) -> None:
        """WANDB_API_KEY is used where the netrc file holds another key for the same host."""
        monkeypatch.setenv("HOME", str(tmp_path))
        host = urlsplit(server.url).hostname
        (tmp_path / ".netrc").write_text(f"machine {host}\n  login user\n  password wrong\n")
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        assert exporter.send(spans.trajectory()) == DELIVERED

    def test_wrong_key(self, server, exporter, spans, project, monkeypatch) -> None:
        """A refused key costs one request an attempt; the reason names the variable and hides the key."""
        key = os.environ["WANDB_API_KEY"]
        monkeypatch.setenv("WANDB_API_KEY", "a-wrong-key")
        sent = spans.trajectory()
        outcome = exporter.send(sent)
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "HTTP 401" in outcome.reason
        assert "WANDB_API_KEY" in outcome.reason
        assert "a-wrong-key" not in outcome.reason
        assert len(server.take_requests()) == 1
        monkeypatch.setenv("WANDB_API_KEY", key)
        assert exporter.send(sent) == DELIVERED
        assert stored_once(server, project, sent)

    def test_no_key(self, server, exporter, spans, monkeypatch, tmp_path) -> None:
        """Without a key nothing is sent, and the reason says what to set."""
        monkeypatch.delenv("WANDB_API_KEY")
        monkeypatch.setenv("HOME", str(tmp_path))
        outcome = exporter.send(spans.trajectory())
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "WANDB_API_KEY" in outcome.reason
        assert server.take_requests() == []
