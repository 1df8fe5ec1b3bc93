"""One state machine for all outboxes: memory, spool and folder, against one account of what was put."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from otel_rollout import semconv
from otel_rollout.counts import FollowUpStats
from otel_rollout.deliver import QueueLimits, SpanOutbox, Spool, SpooledOutbox
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.follow_up_requests import FollowUpRequests, Kind
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.finish import PayloadFinisher, SpanReader
from otel_rollout.folder import read_losses, scan_frames
from otel_rollout.otlp import decode_spans
from otel_rollout.replay import DeliveredLog, Sender, TrajectorySource, remove_delivered
from otel_rollout_file import FileSpanExporter
from tests.delivery.queues import QUICK, is_balanced

RESOURCE = Resource({})
LIMITS = QueueLimits(max_bytes=20_000, batch_bytes=4_000, batch_spans=8, delay=0.001)
SECONDS = 20.0
"""The longest wait for what must come; nothing waits so long that goes right."""
FAULTS = {
    "fail": Outcome(Verdict.RETRY, "down"),
    "fault": Outcome(Verdict.UNEXPLAINED, "HTTP 500"),
    "unauthorized": Outcome(Verdict.CONFIGURATION_ERROR, "HTTP 403"),
    "too large": Outcome(Verdict.TOO_LARGE, "HTTP 413"),
}


def make_span(number: int, *, is_bad: bool, is_root: bool) -> ReadableSpan:
    """Return a span of a kilobyte; a bad one is refused by each backend."""
    return ReadableSpan(
        name=f"bad {number}" if is_bad else str(number),
        context=SpanContext(number, number, False, TraceFlags(TraceFlags.SAMPLED)),
        parent=None if is_root else SpanContext(number, 2**40, False, TraceFlags(TraceFlags.SAMPLED)),
        attributes={semconv.INPUT_VALUE: "x" * 1000, semconv.STEP: 1},
        resource=RESOURCE,
        start_time=1,
        end_time=2,
    )


class Backend(OutcomeSpanExporter):
    """Stores spans and a reward of each, unless it is told to fail or to hang."""

    def __init__(self, folder: Path | None) -> None:
        self.fault: Outcome | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.stored: Counter[str] = Counter()
        self.rewarded: Counter[str] = Counter()
        self._folder = None if folder is None else FileSpanExporter(folder=folder)
        self.follow_up_requests = FollowUpRequests("backend", {"rewards": Kind(self._reward, 4)}, policy=QUICK)

    def _answer(self, names: list[str]) -> Outcome:
        self.gate.wait(SECONDS)
        if self.fault is not None and (self.fault.verdict is not Verdict.TOO_LARGE or len(names) > 2):
            return self.fault
        return Outcome(Verdict.REFUSED, "bad") if any("bad" in name for name in names) else DELIVERED

    def send(self, spans):
        """Store spans."""
        outcome = self._answer([span.name for span in spans])
        if outcome.verdict is Verdict.DELIVERED and self._folder is not None:
            outcome = self._folder.send(spans)
        if outcome.verdict is Verdict.DELIVERED:
            self.stored.update(span.name for span in spans)
            for span in spans:
                self.follow_up_requests.add("rewards", None, span.name, span.name)
        return outcome

    def _reward(self, group: object, names: list[str]) -> Outcome:
        outcome = self._answer(names)
        if outcome.verdict is Verdict.DELIVERED:
            self.rewarded.update(names)
        return outcome

    def note_lost(self, losses):
        """Write losses into the folder."""
        if self._folder is not None:
            self._folder.note_lost(losses)

    def shutdown(self):
        """Close the folder."""
        if self._folder is not None:
            self._folder.shutdown()

    def after_fork(self):
        """Be a sound backend of the child's own."""
        self.__init__(None)


class Delivery(RuleBasedStateMachine):
    """An outbox whose backend is sound, fails, refuses or hangs, in a process that forks, ends, dies and starts again.

    What must hold at any time: the account is exact, and nothing is stored twice. What must hold at each end: each span
    is in the backend, on disk, or counted as lost, by its reason; what is unknown may be in the backend.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.numbers = itertools.count(1)
        self.before = self.rewards_before = 0
        self.outbox: SpanOutbox | None = None

    @initialize(store=st.sampled_from(["memory", "spool", "folder"]))
    def start(self, store):
        """Start a process."""
        self.store = store
        self.folder = self.root / "folder"
        self.backend = Backend(self.folder if store == "folder" else None)
        self.has_fault = self.is_hanging = False
        reader = SpanReader(RESOURCE, InstrumentationScope("test"), PayloadFinisher(2**30, None))
        arguments = "backend", self.backend, reader, LIMITS, QUICK
        spool = Spool(self.root / "spool", 2**30)
        self.outbox = SpooledOutbox(*arguments, spool=spool) if store == "spool" else SpanOutbox(*arguments)
        self.put_names: list[str] = []

    # --- what the program does

    @precondition(lambda self: self.outbox)
    @rule(count=st.integers(1, 30), is_bad=st.booleans(), is_root=st.booleans())
    def put(self, count, is_bad, is_root):
        """End spans; the last of them is bad or not."""
        for left in range(count, 0, -1):
            span = make_span(next(self.numbers), is_bad=is_bad and left == 1, is_root=is_root)
            self.put_names.append(span.name)
            self.outbox.put(span)

    @precondition(lambda self: self.outbox)
    @rule()
    def flush(self):
        """It says True if the backend has everything and nothing was lost since the last one, else False."""
        if self.has_fault or self.is_hanging:
            waits = self.outbox.stats()
            if self.outbox.flush(0.02):
                assert not waits.queued + waits.spooled or self.backend.fault is FAULTS["too large"]
            return
        lost = self.outbox.stats().lost
        is_whole = self.outbox.flush(SECONDS)
        stats = self.outbox.stats()
        assert (stats.queued, stats.spooled) == (0, 0)
        assert not (is_whole and stats.lost != lost)
        good = {name for name in self.put_names if "bad" not in name}
        full = stats.lost.get("queue_full", 0)
        assert len(good - set(self.backend.stored)) <= full
        if is_whole:
            assert stats.follow_up_requests["rewards"] == FollowUpStats(done=len(self.backend.rewarded))

    @precondition(lambda self: self.outbox)
    @rule()
    def fork(self):
        """A child begins with nothing, delivers its own, and changes nothing of its parent's."""
        child = os.fork()
        if child == 0:
            try:
                self.outbox.after_fork()
                is_empty = self.outbox.stats().recorded == 0
                self.outbox.put(make_span(2**39, is_bad=False, is_root=True))
                is_right = is_empty and self.outbox.flush(SECONDS) and self.outbox.stats().delivered == 1
                os._exit(0 if is_right else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0

    # --- what the backend does

    @precondition(lambda self: self.outbox)
    @rule(fault=st.sampled_from(sorted(FAULTS)))
    def fail(self, fault):
        """The backend answers with a fault from now on."""
        self.backend.fault, self.has_fault = FAULTS[fault], True

    @precondition(lambda self: self.outbox)
    @rule()
    def hang(self):
        """The backend doesn't answer from now on."""
        self.backend.gate.clear()
        self.is_hanging = True

    @precondition(lambda self: self.outbox)
    @rule()
    def heal(self):
        """The backend is sound again."""
        self.backend.fault = None
        self.backend.gate.set()
        self.has_fault = self.is_hanging = False

    # --- how a process ends

    @precondition(lambda self: self.outbox)
    @rule(seconds=st.sampled_from([0.0, 0.1]))
    def shutdown(self, seconds):
        """The process ends in time, and says where each span is."""
        if not (self.has_fault or self.is_hanging):
            seconds = SECONDS
        self.outbox.shutdown(time.monotonic() + seconds)
        is_whole = self.outbox.join()
        stats = self.outbox.stats()
        assert is_balanced(stats)
        assert stats.recorded == len(self.put_names)
        self.backend.gate.set()
        # An answer that comes late makes known what was unknown, in the account and in the folder.
        self.outbox._await_end(time.monotonic() + SECONDS)
        if self.store == "spool" and self.put_names:
            self.outbox.await_progress(lambda: self.outbox._has_spilled, time.monotonic() + SECONDS)
        late = self.outbox.stats()
        assert is_balanced(late)
        assert late.queued == 0
        assert late.delivered >= stats.delivered
        assert "unknown" not in late.lost
        own = set(self.put_names)
        on_disk = Counter(name for name in self._on_disk() if name in own)
        assert late.spooled == on_disk.total()
        stored = Counter(name for name in self.put_names if name in self.backend.stored)
        if not self.is_hanging or self.store != "spool":
            # What hangs to the end is put on disk as well.
            assert not set(stored) & set(on_disk)
            assert late.delivered == len(stored)
            missing = set(self.put_names) - set(stored) - set(on_disk)
            assert len(missing) == sum(late.lost.values())
        if is_whole:
            assert len(stored) == len(self.put_names)
        if self.store == "folder":
            assert sum(each.spans for each in read_losses([self.folder])) - self.before == sum(late.lost.values())
            self.before += sum(late.lost.values())
        self.outbox = None

    @precondition(lambda self: self.outbox and self.store == "spool")
    @rule(count=st.integers(20, 40))
    def kill(self, count):
        """A process is killed beside a dead backend: what it had on disk can be read, and was put."""
        child = os.fork()
        if child == 0:
            try:
                self.outbox.after_fork()
                self.backend.fault = FAULTS["fail"]
                for _ in range(count):
                    self.outbox.put(make_span(next(self.numbers), is_bad=False, is_root=True))
                end = time.monotonic() + SECONDS
                while not self.outbox.stats().spooled and time.monotonic() < end:
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(2)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        first = next(self.numbers)
        self.numbers = itertools.count(first + count)
        names = [name for name in self._on_disk() if name.isdigit() and first <= int(name) < first + count]
        assert len(names) == len(set(names)) > 0

    @precondition(lambda self: not self.outbox)
    @rule()
    def restart(self):
        """The program is started again; what lies on disk stays for a replay."""
        self.start(self.store)

    @precondition(lambda self: not self.outbox and self.store == "spool")
    @rule(is_sound=st.booleans())
    def replay(self, is_sound):
        """A replay delivers what is on disk once, and keeps what the backend doesn't take."""
        (self.root / "spool").mkdir(exist_ok=True)
        before = Counter(self._on_disk())
        backend = Backend(None)
        backend.fault = None if is_sound else FAULTS["unauthorized"]
        source = TrajectorySource(self.root / "spool", {})
        log = DeliveredLog(self.root / "spool", "backend", None)
        sender = Sender(source, backend, log, LIMITS, patience=SECONDS, policy=QUICK)
        report = sender.run()
        sender.close()
        remove_delivered(self.root / "spool", source.final - source.kept)
        good = {name for name in before if "bad" not in name}
        assert set(backend.stored) == (good if is_sound else set())
        assert backend.stored == Counter({name: before[name] for name in backend.stored})
        assert report.spans == backend.stored.total()
        assert sum(report.lost.values()) == len(before) - report.spans or not is_sound
        left = set(self._on_disk())
        assert left == set() if is_sound and good == set(before) else left <= set(before)

    # --- at any time

    @invariant()
    def the_account_is_exact(self):
        """Recorded is delivered, queued, spooled and lost, and the backend has each span once."""
        if self.outbox is None:
            return
        stats = self.outbox.stats()
        assert is_balanced(stats)
        assert stats.recorded == len(self.put_names)
        assert stats.queued_bytes <= LIMITS.max_bytes
        assert stats.lost.get("refused", 0) + stats.lost.get("too_large", 0) <= sum(
            "bad" in name for name in self.put_names
        )
        assert set(self.backend.stored.values()) <= {1}
        assert set(self.backend.stored) <= set(self.put_names)

    def _on_disk(self) -> list[str]:
        return [
            span.name
            for path in sorted((self.root / "spool").glob("*.otlp.zst"))
            for frame in scan_frames(path)
            if frame.request is not None
            for span in decode_spans(frame.request)
        ]

    def teardown(self):
        """End the process."""
        if self.outbox is not None:
            self.heal()
            self.shutdown(SECONDS)
        shutil.rmtree(self.root, ignore_errors=True)


def run(examples: int, steps: int, *, derandomize: bool) -> None:
    """Run the machine."""
    run_state_machine_as_test(
        Delivery,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=derandomize,
            database=None,
            # Shrinking would repeat waits for minutes.
            phases=[Phase.generate],
        ),
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestOutbox:
    """Memory, spool and folder under one model."""

    def test_each_span_is_where_the_account_says(self):
        """Whatever the program, the backend and the process do, each span is delivered, on disk, or counted as lost."""
        run(20, 12, derandomize=True)

    @pytest.mark.slow
    def test_each_span_is_where_the_account_says_in_other_orders(self):
        """So it is in orders that nobody has tried."""
        run(100, 30, derandomize=False)
