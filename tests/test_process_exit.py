"""Spans reach the backend before the process ends, however it ends; each case is a program with a deadline."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.tracing_programs import program_in


@pytest.fixture
def program(tmp_path):
    """A program to run."""
    with program_in(tmp_path) as program:
        yield program


class TestExit:
    """The end of a process that nobody killed."""

    @pytest.mark.parametrize(
        ("end", "code"),
        [
            ("", 0),
            ("sys.exit(3)", 3),
            ("raise ValueError('no')", 1),
            ("os.kill(os.getpid(), signal.SIGINT); await_signal()", -signal.SIGINT),
        ],
        ids=["end of program", "sys.exit", "exception", "ctrl-c"],
    )
    def test_what_is_queued_is_delivered(self, program, end, code):
        """Spans queued at the end of the program, by sys.exit, by an exception or by Ctrl-C are delivered."""
        returned, errors = program.run(f"start()\ntrace('last')\n{end}")
        assert returned == code
        assert program.delivered == [["last"]]
        assert "internal error" not in errors

    def test_threads_that_are_alive_at_the_end(self, program):
        """Spans of a thread that the interpreter waits for are delivered; a daemon thread delays nothing."""
        code, errors = program.run(
            """
            start()
            def work():
                time.sleep(0.3)
                trace("thread")
            def forever():
                while True:
                    trace("daemon")
                    time.sleep(0.01)
            threading.Thread(target=work).start()
            threading.Thread(target=forever, daemon=True).start()
            trace("main")
            """
        )
        assert code == 0, errors
        [names] = program.delivered
        assert {"main", "thread", "daemon"} == set(names)

    def test_an_exporter_that_hangs_does_not_keep_the_process(self, program):
        """The process ends at the shutdown timeout, and one line says what isn't known to be delivered."""
        code, errors = program.run("start(Hanging(), shutdown_timeout_ms=300)\ntrace('lost')")
        assert code == 0
        lines = [line for line in errors.splitlines() if "delivered" in line]
        assert lines == ["Hanging: 0 of 1 spans delivered, 1 unknown (a request without an answer)"]

    def test_no_thread_finishes_a_span_at_the_interpreters_end(self, program):
        """A thread that comes back from google-re2 then aborts the process, up to Python 3.13: more often than not."""
        for _ in range(6):
            code, errors = program.run(
                """
                text = open(os.__file__).read() * 8

                @otel_rollout.rollout_trace_op
                def read(text):
                    return text

                start(shutdown_timeout_ms=10)
                for _ in range(64):
                    read(text)
                otel_rollout.flush(0)
                """
            )
            assert code == 0, errors
            assert "lost (shutdown" in errors

    def test_an_exit_without_losses_says_nothing(self, program):
        """If every span arrived, nothing is written to standard error."""
        assert program.run("start()\ntrace('fine')") == (0, "")


RECIPE = """\
import asyncio, os, signal, sys


def exit_on_sigterm(*_):
    try:
        asyncio.get_running_loop().call_soon_threadsafe(sys.exit, 143)
    except RuntimeError:  # no loop runs in the main thread
        sys.exit(143)


signal.signal(signal.SIGTERM, exit_on_sigterm)
os.register_at_fork(
    before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
    after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]),
    after_in_child=lambda: (
        signal.signal(signal.SIGTERM, signal.SIG_DFL),
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]),
    ),
)
"""
"""The lines of docs/how-to/processes.md that deliver queued spans at SIGTERM."""

HANDLER = f"exec({RECIPE!r}, globals())"
SIGTERM_STATUS = 143


class TestSigterm:
    """SIGTERM is the program's own; with the handler of the docs it ends the program as `sys.exit` does."""

    def test_the_documentation_has_the_handler(self):
        """The handler that is tested here is the one in the documentation."""
        pages = Path(__file__).resolve().parent.parent / "docs"
        assert f"```python\n{RECIPE}```\n" in (pages / "how-to" / "processes.md").read_text()

    def test_init_leaves_the_signal_as_it_is(self, program):
        """`init`, `flush` and `shutdown` install no handler."""
        code, errors = program.run(
            """
            start()
            trace("one")
            assert otel_rollout.flush(60) and otel_rollout.shutdown(10)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            """
        )
        assert code == 0, errors

    def test_what_is_queued_is_delivered(self, program):
        """Spans queued at the signal are delivered before the process ends."""
        program.start(
            f"""
            {HANDLER}
            start()
            trace("last")
            open({str(program.folder / "ready")!r}, "w").close()
            await_signal()
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == SIGTERM_STATUS, errors
        assert program.delivered == [["last"]]

    def test_rollouts_that_run(self, program):
        """Trajectories that run in an event loop when the signal comes are cancelled, closed and delivered."""
        program.start(
            f"""
            import asyncio
            {HANDLER}
            start()

            @otel_rollout.rollout_trace_op(name="turn")
            async def turn():
                open({str(program.folder / "ready")!r}, "w").close()
                while True:
                    await asyncio.sleep(0.01)

            async def rollout():
                with otel_rollout.rollout_trace_attr(0, 1, 0, name="trajectory"):
                    await turn()

            asyncio.run(rollout())
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == SIGTERM_STATUS, errors
        assert program.delivered == [["turn", "trajectory"]]

    def test_a_lock_that_the_main_thread_holds_is_no_deadlock(self, program):
        """A signal that comes while the main thread is inside a lock that delivery needs is no deadlock."""
        program.start(
            f"""
            {HANDLER}
            start()
            trace("last")
            from otel_rollout.record import runtime
            [queue] = runtime.pipeline.queues
            with queue._lock:
                open({str(program.folder / "ready")!r}, "w").close()
                await_signal()
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == SIGTERM_STATUS, errors
        assert program.delivered == [["last"]]

    def test_a_hung_backend_does_not_keep_the_process(self, program):
        """The process ends at the shutdown timeout, and one line says what isn't known to be delivered."""
        program.start(
            f"""
            {HANDLER}
            os.environ["OTEL_ROLLOUT_SHUTDOWN_TIMEOUT_MS"] = "500"
            start(Hanging())
            trace("lost")
            open({str(program.folder / "ready")!r}, "w").close()
            await_signal()
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == SIGTERM_STATUS
        assert "Hanging: 0 of 1 spans delivered, 1 unknown (a request without an answer)" in errors

    def test_a_signal_during_the_exit(self, program):
        """SIGTERM while the end of the program waits for the backend does not cut that short."""
        program.start(
            f"""
            class Slow(File):
                def export(self, spans):
                    open({str(program.folder / "ready")!r}, "w").close()
                    while not os.path.exists({str(program.folder / "signalled")!r}):
                        time.sleep(0.01)
                    return super().export(spans)
            def answer(number, frame):
                open({str(program.folder / "signalled")!r}, "w").close()
                sys.exit(143)
            signal.signal(signal.SIGTERM, answer)
            start(Slow())
            trace("last")
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == 0, errors
        assert program.delivered == [["last"]]

    def test_a_signal_during_shutdown(self, program):
        """SIGTERM amid `shutdown()` passes through it at once; the exit goes on with what it has left."""
        program.start(
            f"""
            class Slow(File):
                def export(self, spans):
                    open({str(program.folder / "ready")!r}, "w").close()
                    while not os.path.exists({str(program.folder / "signalled")!r}):
                        time.sleep(0.01)
                    return super().export(spans)
            def answer(number, frame):
                open({str(program.folder / "signalled")!r}, "w").close()
                sys.exit(143)
            signal.signal(signal.SIGTERM, answer)
            start(Slow())
            trace("last")
            otel_rollout.shutdown()
            await_signal()
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == SIGTERM_STATUS, errors
        assert program.delivered == [["last"]]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    def test_workers_of_a_pool_are_ended(self, program):
        """A pool ends its workers by SIGTERM at once, also one that is just starting: the signal is not missed."""
        code, errors = program.run(
            f"""
            {HANDLER}
            start()
            for _ in range(20):
                with multiprocessing.get_context("fork").Pool(3) as pool:
                    assert pool.map(abs, range(3), chunksize=1) == [0, 1, 2]
            trace("parent")
            """
        )
        assert code == 0, errors
        assert program.delivered == [["parent"]]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    def test_workers_of_a_pool_that_is_closed(self, program):
        """Workers of a pool that is closed and joined come to their own end, and deliver what they have."""
        code, errors = program.run(
            f"""
            {HANDLER}

            def work(number):
                trace(f"task {{number}}")
                return number

            start()
            pool = multiprocessing.get_context("fork").Pool(2)
            assert pool.map(work, range(8), chunksize=1) == list(range(8))
            pool.close()
            pool.join()
            trace("parent")
            """
        )
        assert code == 0, errors
        names = sorted(name for names in program.delivered for name in names)
        assert names == ["parent", *(f"task {number}" for number in range(8))]

    @pytest.mark.parametrize("exporter", ["File()", "Hanging()"])
    def test_workers_of_a_launcher(self, program, exporter):
        """A launcher that sends SIGTERM, and SIGKILL after a grace period, as torchrun does, kills no worker."""
        program.start(
            f"""
            import subprocess

            def worker(rank):
                {HANDLER}
                start({exporter}, shutdown_timeout_ms=500)
                trace(f"rank {{rank}}")
                open({str(program.folder)!r} + f"/ready-{{rank}}", "w").close()
                await_signal()

            def launcher():
                workers = [
                    subprocess.Popen([sys.executable, __file__, str(rank)], start_new_session=True) for rank in range(2)
                ]
                class Terminated(Exception):
                    pass
                def terminate(number, frame):
                    raise Terminated
                signal.signal(signal.SIGTERM, terminate)
                open({str(program.folder / "launched")!r}, "w").close()
                try:
                    for one in workers:
                        one.wait()
                except Terminated:
                    for one in workers:
                        one.send_signal(signal.SIGTERM)
                    deadline = time.monotonic() + 60
                    for one in workers:
                        try:
                            one.wait(max(0, deadline - time.monotonic()))
                        except subprocess.TimeoutExpired:
                            one.kill()
                            one.wait()
                assert [one.returncode for one in workers] == [{SIGTERM_STATUS}] * 2

            worker(sys.argv[1]) if sys.argv[1:] else launcher()
            """
        )
        for name in ("launched", "ready-0", "ready-1"):
            program.await_file(name)
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == 0, errors
        if exporter == "File()":
            assert sorted(program.delivered) == [["rank 0"], ["rank 1"]]
        else:
            assert errors.count("Hanging: 0 of 1 spans delivered, 1 unknown (a request without an answer)") == 2
