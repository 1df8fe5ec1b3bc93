"""What becomes of a batch when the backend fails in all the ways that backends do."""

from __future__ import annotations

import random

import pytest

from otel_rollout import semconv
from otel_rollout.export import send_batch
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict

pytestmark = pytest.mark.every_python

RETRY = Outcome(Verdict.RETRY, "down")
CONFIGURATION_ERROR = Outcome(Verdict.CONFIGURATION_ERROR, "wrong key")
REFUSED = Outcome(Verdict.REFUSED, "bad span")
TOO_LARGE = Outcome(Verdict.TOO_LARGE, "too large")
UNEXPLAINED = Outcome(Verdict.UNEXPLAINED, "HTTP 500")


class _Backend:
    """A backend that answers by a rule, and knows what it was sent."""

    def __init__(self, rule):
        self.rule = rule
        self.attempts = []
        self.received = []

    def send(self, spans):
        self.attempts.append([span.name for span in spans])
        outcome = self.rule(spans)
        if outcome.verdict is Verdict.DELIVERED:
            self.received += [span.name for span in spans]
        return outcome


class _Clock:
    """Notes what is waited for instead of waiting; gives up after so many seconds."""

    def __init__(self, patience=float("inf")):
        self.patience = patience
        self.waits = []

    def wait(self, seconds, outcome):
        if sum(self.waits) + seconds >= self.patience:
            return False
        if seconds:
            self.waits.append(seconds)
        return True


def answers(*outcomes):
    remaining = list(outcomes)
    return lambda spans: remaining.pop(0) if remaining else DELIVERED


def bad(name, outcome):
    """A rule: whatever holds the span `name` fails, also when it is shrunk."""
    return lambda spans: outcome if any(span.name == name for span in spans) else DELIVERED


def deliver(rule, spans, *, clock=None, **options):
    backend = _Backend(rule)
    report = send_batch(backend.send, spans, wait=(clock or _Clock()).wait, **options)
    assert report.delivered + report.lost.total() + len(report.unsent) == len(spans)
    return backend, report


@pytest.fixture
def spans(make_span):
    return [make_span(str(number), "x" * 100_000) for number in range(8)]


class TestDelivered:
    """What the backend takes."""

    @pytest.mark.parametrize(("rejected", "delivered"), [(3, 5), (99, 0)])
    def test_spans_that_the_backend_rejects_are_counted_as_lost(self, spans, rejected, delivered):
        """Of a partial success the rejected spans are lost, never more than there were."""
        trouble = []
        _, report = deliver(
            answers(Outcome(Verdict.DELIVERED, "3 rejected", rejected=rejected)), spans, on_trouble=trouble.append
        )
        assert report.delivered == delivered
        assert report.lost == {"rejected": 8 - delivered}
        assert len(trouble) == 1


class TestPassingFaults:
    """Network and overload: the same batch, later."""

    def test_a_batch_that_always_times_out_goes_in_parts(self, make_span):
        """A backend that times out on more than 64 spans gets them all, in order, within minutes."""
        spans = [make_span(str(number)) for number in range(512)]
        clock = _Clock()
        backend, report = deliver(lambda part: RETRY if len(part) > 64 else DELIVERED, spans, clock=clock)
        assert backend.received == [str(number) for number in range(512)]
        assert (report.delivered, dict(report.lost), report.shrunk) == (512, {}, 0)
        assert len(backend.attempts) < 25
        assert sum(clock.waits) < 120.0

    def test_waits_vary_without_touching_the_trainers_random_state(self, spans):
        """Jitter differs from time to time, and leaves the seeded generator of the trainer alone."""
        random.seed(1)
        before = random.getstate()
        first, second = _Clock(), _Clock()
        deliver(answers(RETRY, RETRY), spans, clock=first)
        deliver(answers(RETRY, RETRY), spans, clock=second)
        assert first.waits != second.waits
        assert random.getstate() == before

    @pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (86_400.0, 300.0)])
    def test_retry_after_is_honoured_up_to_a_limit(self, spans, asked, waited):
        """The backend's own wish is waited for, five minutes at most."""
        clock = _Clock()
        deliver(answers(Outcome(Verdict.RETRY, "busy", retry_after=asked)), spans, clock=clock)
        assert clock.waits == [waited]

    @pytest.mark.parametrize("asked", [0.0, -30.0])
    def test_a_retry_after_of_no_time_does_not_shorten_the_backoff(self, spans, asked):
        """A backend that is busy and asks for no wait, or for a date that is past, is not hammered."""
        clock = _Clock()
        deliver(answers(*[Outcome(Verdict.RETRY, "busy", retry_after=asked)] * 8), spans, clock=clock)
        assert len(clock.waits) == 8
        assert clock.waits[0] >= 0.375
        assert clock.waits[-1] == 30.0


class TestRefused:
    """Bad spans and batches that are too large."""

    @pytest.mark.parametrize("outcome", [REFUSED, TOO_LARGE, UNEXPLAINED])
    @pytest.mark.parametrize("name", ["0", "3", "7"])
    def test_the_one_bad_span_is_found_shrunk_and_dropped(self, spans, outcome, name):
        """Halving leaves the bad span alone; it is tried once more, then dropped; all others arrive in order."""
        backend, report = deliver(bad(name, outcome), spans)
        assert backend.received == [other for other in "01234567" if other != name]
        assert report.lost == {"export_failed" if outcome is UNEXPLAINED else outcome.verdict.value: 1}
        assert 2 <= backend.attempts.count([name]) <= 4

    @pytest.mark.parametrize("outcome", [REFUSED, TOO_LARGE])
    def test_a_span_that_is_taken_once_it_is_shrunk_is_delivered(self, spans, outcome):
        """A span whose payload alone is at fault arrives with the payload cut."""

        def rule(part):
            large = any(span.name == "3" and len(span.attributes[semconv.INPUT_VALUE]) > 10_000 for span in part)
            return outcome if large else DELIVERED

        backend, report = deliver(rule, spans)
        assert backend.received == list("01234567")
        assert (report.delivered, report.shrunk, dict(report.lost)) == (8, 1, {})

    def test_a_whole_span_is_never_overwritten_by_a_shrunk_one(self, spans):
        """A backend that stores a span and then fails for it, whenever it comes, has it whole in the end."""
        stored = {}

        def rule(part):
            stored.update((span.name, len(span.attributes[semconv.INPUT_VALUE])) for span in part)
            return UNEXPLAINED if any(span.name == "3" for span in part) else DELIVERED

        whole = {span.name: len(span.attributes[semconv.INPUT_VALUE]) for span in spans}
        _, report = deliver(rule, spans)
        assert stored == whole
        assert (report.delivered, report.shrunk, dict(report.lost)) == (7, 0, {"export_failed": 1})

    def test_a_backend_that_refuses_everything_is_not_hammered(self, make_span):
        """Where part after part is refused and none taken, there is a pause of a minute, and most spans are kept."""
        spans = [make_span() for _ in range(512)]
        clock = _Clock(patience=100.0)
        backend, report = deliver(lambda part: REFUSED, spans, clock=clock)
        assert clock.waits == [60.0]
        assert len(backend.attempts) < 50
        assert report.lost["refused"] < 30
        assert len(report.unsent) > 480


class TestUnexplained:
    """Failures without a reason."""

    @pytest.mark.parametrize("size", [20, 512])
    def test_an_outage_of_hours_loses_nothing(self, make_span, size):
        """Where nothing of a batch ever got through it is kept, at a pace of twice a minute, until the shutdown."""
        spans = [make_span(str(number)) for number in range(size)]
        clock = _Clock(patience=4 * 3600.0)
        backend, report = deliver(lambda part: UNEXPLAINED, spans, clock=clock)
        assert (len(report.unsent), dict(report.lost)) == (size, {})
        assert len(backend.attempts) < 24 * 500
        clock = _Clock()
        backend, report = deliver(
            lambda part: UNEXPLAINED if sum(clock.waits) < 3600 else DELIVERED, spans, clock=clock
        )
        assert sorted(backend.received, key=int) == [str(number) for number in range(size)]
        assert (report.delivered, dict(report.lost), report.shrunk) == (size, {}, 0)

    def test_many_bad_spans_do_not_keep_the_good_ones(self, make_span):
        """Behind more bad spans than are looked at before a pause the good ones are found; only the bad are lost."""
        spans = [make_span("bad" if number < 100 else "good") for number in range(128)]
        clock = _Clock(patience=4 * 3600.0)
        backend, report = deliver(bad("bad", UNEXPLAINED), spans, clock=clock)
        assert backend.received == ["good"] * 28
        assert report.lost == {"export_failed": 100}

    def test_ctrl_c_is_not_swallowed(self, spans):
        """KeyboardInterrupt in the main thread goes on to the program."""

        def rule(part):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            deliver(rule, spans)
