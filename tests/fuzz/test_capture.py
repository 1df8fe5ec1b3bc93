"""The fuzz of capture: a short form of it, and that it can fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from otel_rollout.record import Snapshot
from tests.fuzz.capture import ROOT, outcome
from tests.fuzz.forms import FORMS, Turn, checked
from tests.fuzz.hostile import Hostility, behave, make_hostile
from tests.fuzz.watch import WATCH, Watch

SECONDS = 5


@pytest.fixture
def watch():
    """What this process has found; forgotten before and after the test."""
    for forgotten in (WATCH.findings, WATCH.details):
        forgotten.clear()
    yield WATCH
    # Python asks the hostile classes too when another test compares a value with a base class of theirs.
    behave("lie")
    for forgotten in (WATCH.findings, WATCH.details):
        forgotten.clear()


class TestOutcome:
    """What the end of a process means."""

    def end(self, code, output='{"spans": 3}\n', errors="", last=""):
        """Return the kinds of findings of a process that ends like this."""
        found, _ = outcome("values", code, output, errors, last, "command")
        return [finding.kind for finding in found]

    def test_nothing_found(self):
        """A process that ends well and has looked at spans found nothing."""
        assert self.end(0) == []

    def test_a_process_that_did_nothing(self):
        """A process that looked at no span, or printed nothing, is a finding."""
        assert self.end(0, '{"spans": 0}\n') == ["values: exit 0, 0 spans"]
        assert self.end(2, "") == ["values: exit 2, 0 spans"]

    def test_findings(self):
        """What a process found is handed on."""
        assert self.end(1, '{"kind": "wrong", "count": 2, "detail": ""}\n{"spans": 3}\n') == ["values: wrong"]

    def test_a_crash(self):
        """An exit by a signal is named, with where it was and what was done last."""
        crashed = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", "import ctypes; ctypes.string_at(0)"],
            capture_output=True,
            text=True,
            check=False,
        )
        errors = crashed.stderr.replace("Current thread's C stack", "")
        (found,), _ = outcome("races", crashed.returncode, "", errors, "sync of list", "command")
        assert found.kind.startswith("races: exit by SIGSEGV in __init__.py:")
        assert found.detail == "sync of list"


class TestWatch:
    """Who may call what is the user's."""

    def test_the_program_may(self):
        """Outside of a window the program's own threads call their methods."""
        assert not Watch().called("Owner", "method")

    def test_another_thread_may_not(self):
        """A call on a thread that is not the program's is found."""
        watch = Watch()
        thread = threading.Thread(target=watch.called, args=("Owner", "method"))
        thread.start()
        thread.join()
        assert list(watch.findings) == ["Owner.method was called on another thread by None"]


class TestChecked:
    """What is noted of a call."""

    @pytest.mark.parametrize("form", sorted(FORMS.keys() - {"trajectory"}))
    def test_a_capture_that_calls(self, form, watch, rollout_spans, monkeypatch):
        """A capture that takes the `repr` of a value is found, whatever form the op has, and so is what it raises."""

        def calling(value, budget=0):
            return Snapshot(repr(list(value.values()) if type(value) is dict else value), 0)

        monkeypatch.setattr("otel_rollout.record.call.take_snapshot", calling)
        behave("BaseException")
        value = make_hostile(object)()
        checked(form, Turn(value, value))
        assert any("HostileObject.__repr__ was called on the caller's thread" in kind for kind in watch.findings)
        assert any(f"{form}: Hostility came" in kind for kind in watch.findings)

    @pytest.mark.parametrize("form", FORMS)
    def test_a_call_that_is_changed(self, form, watch):
        """Another result, another exception and a missing one are found."""
        turn = Turn("value", object())
        turn.body = lambda: "another"
        checked(form, turn)
        assert f"{form}: the result is not the user's object" in watch.findings
        turn = Turn("value", object(), ValueError("no"))
        turn.body = lambda: turn.result
        checked(form, turn)
        assert f"{form}: the user's exception did not come" in watch.findings
        turn.body = lambda: (_ for _ in ()).throw(Hostility("another"))
        checked(form, turn)
        assert f"{form}: Hostility came in the place of the user's exception" in watch.findings

    @pytest.mark.parametrize("form", FORMS)
    def test_a_call_as_it_should_be(self, form, watch):
        """Without tracing, nothing is found."""
        checked(form, Turn(make_hostile(dict)(key=1), object()))
        checked(form, Turn(make_hostile(list)([1]), object(), ValueError("no")))
        assert watch.findings == {}


class TestCapture:
    """The fuzz itself, briefly; `make fuzz` takes minutes."""

    @pytest.mark.slow
    @pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
    def test_a_few_seconds(self):
        """No value, race or signal ends the process, changes a call, or runs code of a user's class."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.capture", "--seconds", str(SECONDS), "--seed", "1"],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
