"""What the exporter holds, stores and counts, on a store that answers as told."""

from __future__ import annotations

import re
import time

import pytest
from opentelemetry.sdk.resources import Resource

import otel_rollout
from otel_rollout.deliver import SpanOutbox
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.export import send_batch
from otel_rollout.export.http import RequestFailedError
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.finish import PayloadFinisher, SpanReader
from otel_rollout.installing import install_line
from otel_rollout_trackio import TrackioSpanExporter
from otel_rollout_trackio.store import Store, default_folder
from tests.exporters.trackio.spans import make_span, make_trajectory

AWAY = Outcome(Verdict.RETRY, "away")
BAD = 0xBAD
"""The id of a span that the store refuses, in whatever company."""


class _Store(Store):
    """Keeps what it is given; fails while `outcome` is set."""

    def __init__(self):
        self.conversations = []
        self.outcome = None

    def write(self, conversations):
        if self.outcome is not None:
            raise RequestFailedError(self.outcome)
        if any(span["id"] == f"{BAD:016x}" for each in conversations for span in each.trace["spans"]):
            raise RequestFailedError(Outcome(Verdict.REFUSED, "bad"))
        self.conversations += conversations

    def stored_ids(self):
        """Return the ids of all spans."""
        return sorted(span_id for _, ids in self.written() for span_id in ids)

    def read(self, project, run_id, log_id):
        return []

    def close(self):
        pass

    def written(self):
        """Return each conversation's status and span ids."""
        return [
            (each.trace["metadata"]["status"], [int(span["id"], 16) for span in each.trace["spans"]])
            for each in self.conversations
        ]


@pytest.fixture
def store():
    return _Store()


@pytest.fixture
def exporter(store, tmp_path, monkeypatch):
    for variable in ("TRACKIO_DIR", "TRACKIO_SERVER_URL", "TRACKIO_WRITE_TOKEN", "TRACKIO_SPACE_ID"):
        monkeypatch.delenv(variable, raising=False)
    made = TrackioSpanExporter(folder=tmp_path)
    made.export_timeout = 0.2
    made._store = store
    return made


class TestHolding:
    """Spans of trajectories that still run."""

    def test_until_the_root_comes(self, exporter, store):
        """Spans of a trajectory are held, and stored with its root as one conversation."""
        spans = make_trajectory()
        for span in spans[:-1]:
            assert exporter.send([span]) == DELIVERED
        assert (exporter._held.spans, store.written()) == (3, [])

        assert exporter.send(spans[-1:]) == DELIVERED

        assert store.written() == [("success", [1, 2, 3, 4])]
        assert (exporter._held.spans, exporter._held.bytes) == (0, 0)

    def test_an_annotation_after_the_end_is_a_row_of_its_own(self, exporter, store):
        """In one batch with its trajectory, as a replay has it, it makes the row that it makes live."""
        spans = make_trajectory()
        late = make_span("annotate", 9, seconds=(3600, 3600), attributes={"rollout.late": True, "rollout.reward": 0.75})

        assert exporter.send([*spans[:-1], late, spans[-1]]) == DELIVERED

        assert store.written() == [("success", [1, 2, 3, 4]), ("unfinished", [9])]
        whole, annotation = (each.trace["metadata"] for each in store.conversations)
        assert (whole["reward"], annotation["reward"]) == (0.5, 0.75)
        assert whole["duration_ms"] < 60_000
        live = TrackioSpanExporter(folder=exporter.folder)
        live._store = type(store)()
        live.send(spans)
        live.send([late])
        assert [each.log_id for each in live._store.conversations] == [each.log_id for each in store.conversations]

    def test_a_failed_attempt_changes_nothing(self, exporter, store):
        """While the store fails nothing is taken: the batch stays in the queue, and is stored whole later."""
        spans, other = make_trajectory(), make_span("generate", 2, trace_id=0xDEF)
        exporter.send(spans[:2])
        store.outcome = AWAY

        assert exporter.send([*spans[2:], other]) == AWAY
        assert exporter._held.spans == 2

        store.outcome = None
        assert exporter.send([*spans[2:], other]) == DELIVERED
        assert store.written() == [("success", [1, 2, 3, 4])]
        assert exporter._held.spans == 1

    def test_a_span_twice_is_held_once(self, exporter, store):
        """A span that is sent again is not twice in its conversation."""
        spans = make_trajectory()
        exporter.send(spans[:2])
        exporter.send(spans[:2])

        exporter.send(spans[2:])

        assert store.written() == [("success", [1, 2, 3, 4])]

    def test_the_bound_in_bytes(self, exporter, store, monkeypatch):
        """Above the bound, the trajectories without a new span for longest are stored as unfinished."""
        monkeypatch.setattr(TrackioSpanExporter, "max_held_bytes", 2500)
        for trace_id in range(1, 6):
            exporter.send([make_span("generate", trace_id, trace_id=trace_id)])

        assert store.written()[0] == ("unfinished", [1])
        assert exporter._held.bytes <= 2500
        assert len(store.written()) + exporter._held.spans == 5

    def test_no_new_span_for_an_hour(self, exporter, store, monkeypatch):
        """A trajectory that nothing is heard of is stored as unfinished with the next batch."""
        exporter.send([make_span("generate", 2, trace_id=0x1)])
        monkeypatch.setattr(TrackioSpanExporter, "max_held_seconds", 0.0)

        exporter.send([make_span("generate", 3, trace_id=0x2)])

        assert store.written() == [("unfinished", [2])]
        assert 0x2 in exporter._held

    def test_a_span_after_its_root(self, exporter, store):
        """A span of a stored trajectory is not held for a root that came already."""
        exporter.send(make_trajectory())

        exporter.send([make_span("compute_score", 9)])

        assert store.written() == [("success", [1, 2, 3, 4]), ("unfinished", [9])]
        assert len({each.log_id for each in store.conversations}) == 2

    def test_a_refused_one_is_lost_alone(self, exporter, store):
        """A held span that trackio refuses costs neither its root nor the rest of its trajectory."""
        assert send_batch(exporter.send, [make_span("generate", BAD)], wait=lambda *_: True).delivered == 1

        report = send_batch(exporter.send, make_trajectory(), wait=lambda *_: True)

        assert (report.delivered, report.lost) == (4, {})
        assert store.stored_ids() == [1, 2, 3, 4]
        assert exporter._held.lost == {"refused": 1}
        assert exporter._held.spans == 0

    def test_a_refused_one_does_not_hold_up_others(self, exporter, store, monkeypatch):
        """A trajectory that is stored unfinished loses the span that trackio refuses, and no other trajectory's."""
        exporter.send([make_span("generate", BAD), make_span("generate", 2)])
        monkeypatch.setattr(TrackioSpanExporter, "max_held_seconds", 0.0)

        assert exporter.send([make_span("generate", 3, trace_id=0xDEF)]) == DELIVERED

        assert store.stored_ids() == [2]
        assert exporter._held.lost == {"refused": 1}
        assert exporter._held.spans == 1

    def test_the_store_is_away_amid_the_search(self, exporter, store):
        """If the store goes away while the refused span is looked for, the rest stays held."""
        exporter.send([make_span("generate", 2), make_span("generate", 3), make_span("generate", BAD)])
        write = store.write

        def write_once(conversations):
            write(conversations)
            store.outcome = AWAY

        store.write = write_once
        assert exporter.store_held() == AWAY
        assert (store.stored_ids(), exporter._held.spans) == ([2], 2)

        store.write, store.outcome = write, None
        assert exporter.store_held().verdict is Verdict.REFUSED
        assert (store.stored_ids(), exporter._held.lost) == ([2, 3], {"refused": 1})
        assert exporter.store_held() == DELIVERED

    def test_of_a_parent_process(self, exporter, store):
        """A forked child holds nothing of its parent's."""
        exporter.send(make_trajectory()[:2])

        exporter.after_fork()
        exporter.shutdown()

        assert (exporter._held.spans, store.written()) == (0, [])

    def test_any_order_of_a_replay(self, exporter, store):
        """In one batch with a span that another process parented, the trajectory's root makes the conversation."""
        late = make_span("compute_score", 9, is_parent_remote=True, seconds=(9.0, 9.5))
        spans = make_trajectory()

        exporter.send([spans[-1], late, *spans[:-1]])

        (stored,) = store.conversations
        assert (stored.key, stored.log_id) == ("agent_loop:0.5", f"s12-r1-trace-{0xABC:032x}")
        assert store.written() == [("success", [1, 2, 3, 4, 9])]


class TestShutdown:
    """The end of an exporter."""

    def test_stores_what_is_held(self, exporter, store):
        """Trajectories without a root are stored as unfinished; nothing is lost."""
        exporter.send(make_trajectory()[:2])

        exporter.shutdown()

        assert store.written() == [("unfinished", [2, 3])]
        assert (exporter._held.spans, dict(exporter._held.lost)) == (0, {})

    def test_counts_what_is_lost(self, exporter, store, caplog):
        """Spans that can't be stored in time are counted as lost, with a message."""
        exporter.send(make_trajectory()[:2])
        store.outcome = AWAY

        exporter.shutdown()

        assert (exporter._held.spans, dict(exporter._held.lost)) == (0, {"shutdown": 2})
        assert "trackio lost 2 spans of unfinished trajectories: away" in caplog.text

    def test_takes_nothing_afterwards(self, exporter):
        """After the shutdown no span is taken."""
        exporter.shutdown()

        assert exporter.send(make_trajectory()).verdict is Verdict.CONFIGURATION_ERROR


class TestDelivery:
    """The counts of otel-rollout's delivery."""

    @pytest.fixture
    def queue(self, exporter):
        """A queue in front of the exporter."""
        return SpanOutbox("trackio", exporter, SpanReader(Resource({}), None, PayloadFinisher(2**30, None)))

    def test_held_spans_count_as_queued(self, queue, store):
        """A held span is not delivered: it counts as queued, and a flush says at once that it isn't stored."""
        spans = make_trajectory()
        for span in spans[:-1]:
            queue.put(span)
        assert not queue.flush(3600.0)
        assert (queue.stats().delivered, queue.stats().queued, queue.stats().lost) == (0, 3, {})
        assert queue.stats().queued_bytes > 0

        queue.put(spans[-1])

        assert queue.flush(60)
        assert (queue.stats().delivered, queue.stats().queued) == (4, 0)
        queue.shutdown(time.monotonic() + 5.0)
        assert queue.join()

    def test_a_held_span_that_is_refused_fails_the_next_flush(self, queue):
        """A flush returns False once if a held span was lost since the last one, though its batch was taken."""
        queue.put(make_span("generate", BAD))
        queue.flush(30.0)

        queue.put(make_trajectory()[-1])

        assert not queue.flush(30.0)
        assert queue.stats().lost == {"refused": 1}
        assert queue.flush(60)

    def test_spans_lost_at_the_shutdown_are_not_delivered(self, queue, store):
        """Held spans that the shutdown can't store are lost in the counts, and `join` says so."""
        for span in make_trajectory()[:-1]:
            queue.put(span)
        queue.flush(30.0)
        store.outcome = AWAY

        queue.shutdown(time.monotonic() + 5.0)

        assert not queue.join()
        stats = queue.stats()
        assert (stats.recorded, stats.delivered, stats.queued, stats.lost) == (3, 0, 0, {"shutdown": 3})


class TestSettings:
    """Arguments and environment."""

    def test_the_folder_is_trackios(self, tmp_path, monkeypatch):
        """`TRACKIO_DIR`, else the folder in `HF_HOME`, else the one in the cache: as trackio has it."""
        monkeypatch.delenv("TRACKIO_DIR", raising=False)
        monkeypatch.delenv("HF_HOME", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert default_folder() == tmp_path / "huggingface" / "trackio"
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
        assert default_folder() == tmp_path / "hub" / "trackio"
        monkeypatch.setenv("TRACKIO_DIR", "here")
        monkeypatch.chdir(tmp_path)
        assert TrackioSpanExporter().folder == tmp_path / "here"

    def test_a_missing_package(self, exporter):
        """Without trackio, `init` says how to install it."""
        with pytest.raises(MissingExtraError, match=re.escape(install_line("trackio"))):
            exporter.check()

    @pytest.mark.parametrize(
        ("url", "fault"), [("trackio:7860", "http://host:port"), ("http://host:7860", "TRACKIO_WRITE_TOKEN")]
    )
    def test_a_server_that_can_not_work(self, monkeypatch, url, fault):
        """A malformed URL and a missing token fail in `init`, not in the constructor."""
        monkeypatch.setenv("TRACKIO_SERVER_URL", url)
        monkeypatch.delenv("TRACKIO_WRITE_TOKEN", raising=False)

        made = TrackioSpanExporter()

        with pytest.raises(ConfigurationError, match=fault):
            made.check()
        assert made.destination is None
        assert made.send(make_trajectory()).verdict is Verdict.CONFIGURATION_ERROR

    def test_a_space_is_told_about(self, exporter, monkeypatch, caplog):
        """A Space can't be written to: one warning names the folder."""
        monkeypatch.setenv("TRACKIO_SPACE_ID", "me/space")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name)

        exporter.check()

        assert str(exporter.folder) in caplog.text

    def test_where_to_look(self, exporter, monkeypatch):
        """The commands name the folder and the project."""
        lines = "\n".join(exporter.where_to_look("math", "exp-1"))

        assert f"TRACKIO_DIR={exporter.folder} trackio show --project math" in lines
        assert "trackio list traces --project math --run exp-1 --step 1 --limit 10000" in lines
        served = TrackioSpanExporter(server_url="http://host:7860", write_token="s3cret")
        assert served.where_to_look("math", "exp-1")[-1] == "Open http://host:7860"

    @pytest.mark.parametrize("name", ["registry-math", "math_traces", "a" * 201])
    def test_a_name_that_trackio_cannot_take_fails_in_init(self, name):
        """A reserved name, and one that is no file's, is an error before the first span."""
        exporter = TrackioSpanExporter(server_url="http://127.0.0.1:9", write_token="token")
        with pytest.raises(ConfigurationError, match="trackio takes names"):
            otel_rollout.init(name, "experiment", backend=exporter)
        exporter.check_project("math")
