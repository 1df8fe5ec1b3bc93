"""`otel-rollout replay` as a user meets it: what it prints, its exit code, and how it goes on after an interruption."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

import otel_rollout
from otel_rollout.cli.main import main
from otel_rollout.replay import LineProgress, ReplayReport, Total
from otel_rollout_file import FileSpanExporter
from tests.cli.terminal import Terminal
from tests.delivery.queues import until
from tests.faults.faulty_receiver import Fault, FaultyReceiver

COMMAND = [sys.executable, "-m", "otel_rollout.cli", "replay"]
TRAJECTORIES = 8


@pytest.fixture
def folder(tmp_path):
    """A trace folder with eight trajectories of two spans, four in each of two steps."""
    folder = tmp_path / "traces"
    otel_rollout.init("replay", "exp-1", backend=FileSpanExporter(folder=folder))
    op = otel_rollout.rollout_trace_op(lambda: None)
    for step in (1, 2):
        for sample in range(4):
            with otel_rollout.rollout_trace_attr(sample_index=sample, step=step, rollout_n=0):
                op()
    assert otel_rollout.shutdown(60)
    return folder


@pytest.fixture
def receiver():
    """A receiver that takes everything."""
    with FaultyReceiver() as receiver:
        yield receiver


@pytest.fixture
def environ(receiver):
    """The environment that leads a replay to the receiver, two spans in a request."""
    return {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "60",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2",
        "PYTHONWARNINGS": "error",
    }


@pytest.fixture
def replay(request, environ):
    """Run the command to its end, on the trace folder or another one."""

    def run(*arguments, of=None, **variables):
        return subprocess.run(
            [*COMMAND, str(of or request.getfixturevalue("folder")), "--backend", "otlp", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
            env={**environ, **variables},
        )

    return run


class TestOutput:
    """What it says."""

    def test_says_what_was_delivered(self, replay, receiver):
        """Standard output has the count, standard error nothing; the exit code is 0."""
        done = replay()

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"otlp, {receiver.url}/v1/traces: 8 trajectories delivered (16 spans) in ")
        assert set(receiver.stored.values()) == {1}
        assert len(receiver.stored) == 16

    def test_says_what_was_delivered_before(self, replay, receiver):
        """A second replay makes no request, and says why."""
        replay()
        receiver.requests = 0

        done = replay()

        assert (done.returncode, receiver.requests) == (0, 0)
        assert "8 delivered before, and not sent again (--again sends all once more)" in done.stdout

    def test_filters(self, replay, receiver):
        """`--step` and `--sample` choose."""
        done = replay("--step", "2", "--sample", "3")

        assert "1 trajectory delivered (2 spans)" in done.stdout
        assert len(receiver.stored) == 2

    def test_one_trajectory(self, folder, replay, receiver):
        """`--trace` sends the trajectory whose id begins so, and nothing else."""
        one = next(otel_rollout.read_trajectories(folder, step=2, sample_index=3))

        done = replay("--trace", one.trace_id[:12])

        assert "1 trajectory delivered (2 spans)" in done.stdout
        assert set(receiver.stored) == {f"{span.get_span_context().span_id:016x}" for span in one.spans}

    def test_a_trace_that_is_not_there(self, folder, replay, receiver):
        """An id that no trajectory has sends nothing, and is said."""
        done = replay("--trace", "0" * 32)

        assert f"no trajectory in {folder} matches" in done.stdout
        assert receiver.requests == 0

    def test_says_what_was_not_delivered(self, replay, receiver):
        """Counts by reason and what the backend said stand on standard error; the exit code is 1."""
        receiver.steady = Fault(status=401)

        done = replay()

        assert (done.returncode, done.stdout) == (1, "")
        assert (
            "1 trajectory not delivered, or not whole:\n    2 spans refused: auth or configuration error" in done.stderr
        )
        assert "7 trajectories not tried any more" in done.stderr
        assert f"HTTP 401 from {receiver.url}/v1/traces" in done.stderr

    def test_gives_up_a_backend_that_is_away(self, replay, receiver):
        """After `--patience` seconds without anything delivered; the next replay sends all of it."""
        receiver.steady = Fault(status=503)

        done = replay("--patience", "1")

        assert done.returncode == 1
        assert "2 spans not sent, because the backend took nothing for too long" in done.stderr
        receiver.steady = None
        assert replay().returncode == 0
        assert set(receiver.stored.values()) == {1}

    def test_a_single_span(self, tmp_path, monkeypatch, capsys):
        """One span is one span."""
        otel_rollout.init("replay", "exp-1", backend=FileSpanExporter(folder=tmp_path / "one"))
        otel_rollout.rollout_trace_op(lambda: None)()
        assert otel_rollout.shutdown(60)
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path / "copy"))

        assert main(["replay", str(tmp_path / "one"), "--backend", "file"]) == 0
        assert "1 trajectory delivered (1 span) in " in capsys.readouterr().out

    def test_filters_that_nothing_agrees_with(self, folder, tmp_path, monkeypatch, capsys):
        """It says so, as `ls` does."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path / "copy"))

        assert main(["replay", str(folder), "--backend", "file", "--step", "99"]) == 0
        assert f"no trajectory in {folder} matches" in capsys.readouterr().out

    def test_an_unknown_backend(self, folder, capsys):
        """One line on standard error, with the names that there are, and the exit code 2."""
        assert main(["replay", str(folder), "--backend", "otpl"]) == 2
        shown = capsys.readouterr().err
        assert "no exporter is called 'otpl'" in shown
        assert len(shown.splitlines()) == 1

    def test_no_backend(self, folder, capsys):
        """Without --backend and OTEL_TRACES_EXPORTER there is nowhere to send to."""
        assert main(["replay", str(folder)]) == 2
        assert "which backend?" in capsys.readouterr().err

    def test_a_file(self, tmp_path, capsys):
        """A file in the folder's place is named as one: what was delivered is noted in a folder."""
        (tmp_path / "otlp.jsonl").write_text("{}\n")
        assert main(["replay", str(tmp_path / "otlp.jsonl"), "--backend", "otlp"]) == 2
        assert f"{tmp_path / 'otlp.jsonl'} is a file: name the folder" in capsys.readouterr().err

    def test_several_backends(self, replay, receiver, tmp_path):
        """Each of the names gets everything, one after the other; a failure of one shows in the exit code."""
        done = replay("--backend", "otlp,file", OTEL_ROLLOUT_DIR=str(tmp_path / "copy"))

        assert done.returncode == 0, done.stderr
        assert len(receiver.stored) == 16
        assert len(list(otel_rollout.read_trajectories(tmp_path / "copy"))) == TRAJECTORIES


class TestProgress:
    """What is seen meanwhile."""

    def test_a_bar_on_a_terminal(self, folder, environ):
        """On a terminal there is a bar with the count and the time that is left."""
        terminal = Terminal(COMMAND, str(folder), "--backend", "otlp", **{**environ, "COLUMNS": "100"})

        assert terminal.wait() == 0
        text = terminal.screen
        assert "8/8" in text
        assert "left:" in text
        assert "\x1b[" in text

    def test_output_goes_where_it_is_sent(self, folder, environ, tmp_path):
        """With the bar on a terminal, what the backend prints is in the file that standard output is."""
        terminal, other = pty.openpty()
        with (tmp_path / "trees.txt").open("wb") as file:
            done = subprocess.run(
                [*COMMAND, str(folder), "--backend", "console"],
                stdout=file,
                stderr=other,
                stdin=other,
                env={**environ, "TERM": "xterm-256color", "COLUMNS": "100"},
                timeout=300,
                check=False,
            )
        os.close(other)
        os.close(terminal)

        assert done.returncode == 0
        assert (tmp_path / "trees.txt").read_text().count("step=") == 8

    def test_lines_elsewhere(self, capsys):
        """What is no terminal gets whole lines with the counts and the time that is left, without escape sequences."""
        progress = LineProgress("mlflow", Total(4, 400), seconds=0.0)
        report = ReplayReport(skipped=1)
        progress(report, 100)
        report.delivered, report.spans = 1, 1

        progress(report, 100)
        report.delivered, report.spans = 2, 2
        progress(report, 100)

        lines = capsys.readouterr().err.splitlines()
        # The first that is sent waits for the backend to be opened, which is no measure of the rest.
        assert lines[:2] == ["mlflow: 1 of 4, 0 spans, 1 before", "mlflow: 2 of 4, 1 span, 1 before"]
        assert lines[2].startswith("mlflow: 3 of 4, 2 spans, 1 before, about ")
        assert lines[2].endswith(" left")

    def test_lines_are_seldom(self, capsys):
        """Between two lines it is quiet for some time, however many trajectories are settled."""
        progress = LineProgress("mlflow", Total(1000, 1000), seconds=3600.0)
        for _ in range(1000):
            progress(ReplayReport(), 1)

        assert capsys.readouterr().err == ""


class TestInterruption:
    """A replay that is ended in the middle goes on where it was."""

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
    def test_goes_on_where_it_was(self, folder, environ, receiver, replay, number, code):
        """What was confirmed before is not sent again, the rest is; a third replay sends nothing."""
        receiver.faults += [None] * 3
        receiver.steady = Fault(hangs=True)
        with subprocess.Popen(
            [*COMMAND, str(folder), "--backend", "otlp"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            until(lambda: receiver.requests == 4, 300)
            # Three trajectories are confirmed; the fourth is with the receiver, which does not answer.
            process.send_signal(number)
            output, errors = process.communicate(timeout=300)
        assert process.returncode == code, errors
        before = set(receiver.stored)
        assert len(before) == 6
        receiver.release()

        second = replay()
        receiver.requests = 0
        third = replay()

        assert "5 trajectories delivered (10 spans)" in second.stdout
        assert "3 delivered before" in second.stdout
        assert len(receiver.stored) == 16
        assert {receiver.stored[span_id] for span_id in before} == {1}
        assert (third.returncode, receiver.requests) == (0, 0)
        if number == signal.SIGINT:
            assert b"interrupted: 5 trajectories not tried; run it again to go on" in errors + output


TRAINER = """
import os, signal, sys
import otel_rollout
otel_rollout.init("replay", "exp-1", run_id="run-1", shutdown_timeout_ms=1500.0)
op = otel_rollout.rollout_trace_op(lambda: None)
for sample in range(4):
    with otel_rollout.rollout_trace_attr(sample_index=sample, step=1, rollout_n=0):
        op()
        if sample == 3 and sys.argv[1] == "crash":
            otel_rollout.flush(30.0)
            os.kill(os.getpid(), signal.SIGKILL)
"""


def train(how, environ):
    return subprocess.run(
        [sys.executable, "-c", TRAINER, how], env=environ, check=False, timeout=300, capture_output=True
    )


class TestAfterTheProcess:
    """What a trainer's process has left behind."""

    def test_a_spool_is_emptied(self, replay, environ, receiver, tmp_path):
        """What a process could not deliver by its end is on disk; `--remove` delivers it, once, and removes it."""
        spool = tmp_path / "spool"
        away = {
            **environ,
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
            "OTEL_ROLLOUT_SPOOL": str(spool),
        }
        train("to the end", away)
        assert list(spool.rglob("*.otlp.zst"))

        done = replay("--remove", of=spool)

        assert done.returncode == 0, done.stderr
        assert (len(receiver.stored), set(receiver.stored.values())) == (8, {1})
        assert list(spool.rglob("*.otlp.zst")) == []

    def test_what_a_killed_process_recorded_is_replayed(self, replay, environ, receiver, tmp_path):
        """A process that was killed in the middle of a trajectory has recorded what it had flushed; all of it goes."""
        folder = tmp_path / "traces"
        recording = {**environ, "OTEL_TRACES_EXPORTER": "file", "OTEL_ROLLOUT_DIR": str(folder)}
        assert train("crash", recording).returncode == -signal.SIGKILL
        assert list((folder / "open").iterdir())

        done = replay(of=folder)

        assert done.returncode == 0, done.stderr
        assert "4 trajectories delivered (7 spans)" in done.stdout
        assert "1 without a root: their process ended before they did" in done.stdout
        assert len(receiver.stored) == 7
