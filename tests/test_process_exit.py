"""Spans reach the backend before the process ends, however it ends; each case is a program with a deadline."""

from __future__ import annotations

import signal
import time

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
            ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
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
        """What a thread records until the interpreter waits for it is delivered; a daemon thread holds up nothing."""
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
        """The process ends at the shutdown timeout, and one line says what was lost."""
        start = time.monotonic()
        code, errors = program.run("start(Hanging(), shutdown_timeout_ms=300)\ntrace('lost')")
        assert code == 0
        assert time.monotonic() - start < 30
        lines = [line for line in errors.splitlines() if "lost" in line]
        assert lines == ["Hanging: 0 of 1 spans delivered, 1 lost (shutdown 1)"]

    def test_an_exit_without_losses_says_nothing(self, program):
        """Where everything arrived there is no line on standard error."""
        assert program.run("start()\ntrace('fine')") == (0, "")


class TestSigterm:
    """The handler that `handle_sigterm` asks for."""

    def test_without_the_setting_the_signal_is_left_as_it_is(self, program):
        """The handler is opt-in."""
        code, _ = program.run(
            """
            start()
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            """
        )
        assert code == 0

    def test_what_is_queued_is_delivered_and_the_process_dies_of_the_signal(self, program):
        """With the setting SIGTERM delivers first; the exit status is that of the signal."""
        program.start(
            f"""
            start(handle_sigterm=True)
            trace("last")
            open({str(program.folder / "ready")!r}, "w").close()
            time.sleep(60)
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == -signal.SIGTERM, errors
        assert program.delivered == [["last"]]

    def test_a_signal_during_shutdown_waits_for_it(self, program):
        """SIGTERM while tracing is shut down doesn't cut the delivery short, and is passed on afterwards."""
        program.start(
            f"""
            class Slow(File):
                def export(self, spans):
                    open({str(program.folder / "ready")!r}, "w").close()
                    while not os.path.exists({str(program.folder / "signalled")!r}):
                        time.sleep(0.01)
                    return super().export(spans)
            start(Slow(), handle_sigterm=True)
            trace("last")
            otel_rollout.shutdown()
            time.sleep(60)
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        (program.folder / "signalled").touch()
        code, errors = program.wait()
        assert code == -signal.SIGTERM, errors
        assert program.delivered == [["last"]]

    def test_the_previous_handler_is_called_after_delivery(self, program):
        """A handler of the program's own is called once what is queued is delivered, and tracing goes on."""
        program.start(
            f"""
            stopped = []
            def previous(number, frame):
                with open(os.environ["SPANS"]) as file:
                    stopped.append(file.read().split(" ")[1].strip())
            signal.signal(signal.SIGTERM, previous)
            start(handle_sigterm=True)
            trace("before")
            open({str(program.folder / "ready")!r}, "w").close()
            while not stopped:
                time.sleep(0.01)
            assert stopped == ["before"], stopped
            trace("checkpoint")
            sys.exit(5)
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == 5, errors
        assert program.delivered == [["before", "checkpoint"]]

    def test_signal_in_the_first_moment_of_a_shutdown(self, program):
        """One that comes when tracing is off already, and nothing is delivered yet, waits as well."""
        program.start(
            """
            from otel_rollout import config

            class Config(config.RolloutTraceConfig):
                @classmethod
                def forget(cls):
                    os.kill(os.getpid(), signal.SIGTERM)

            config.RolloutTraceConfig = Config
            start(handle_sigterm=True)
            trace("last")
            otel_rollout.shutdown()
            """
        )
        code, errors = program.wait()
        assert code == -signal.SIGTERM, errors
        assert program.delivered == [["last"]]

    def test_a_signal_that_was_ignored_stays_ignored(self, program):
        """A program that ignores SIGTERM lives on, and is traced on."""
        program.start(
            f"""
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            start(handle_sigterm=True)
            trace("before")
            open({str(program.folder / "ready")!r}, "w").close()
            while not os.path.exists(os.environ["SPANS"]):
                time.sleep(0.01)
            trace("after")
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == 0, errors
        assert program.delivered == [["before", "after"]]

    def test_a_lock_that_the_main_thread_holds_is_no_deadlock(self, program):
        """A signal that comes while the main thread is inside a lock that delivery needs is no deadlock."""
        program.start(
            f"""
            start(handle_sigterm=True)
            trace("last")
            from otel_rollout import runtime
            [queue] = runtime.pipeline.queues
            with queue._lock:
                open({str(program.folder / "ready")!r}, "w").close()
                time.sleep(1.0)
            time.sleep(60)
            """
        )
        program.await_file("ready")
        start = time.monotonic()
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert time.monotonic() - start < 20
        assert code == -signal.SIGTERM, errors
        assert program.delivered == [["last"]]

    def test_an_exporter_that_hangs_does_not_keep_the_process(self, program):
        """The process dies at the shutdown timeout, a second signal or not."""
        program.start(
            f"""
            start(Hanging(), handle_sigterm=True, shutdown_timeout_ms=500)
            trace("lost")
            open({str(program.folder / "ready")!r}, "w").close()
            time.sleep(60)
            """
        )
        program.await_file("ready")
        start = time.monotonic()
        program.process.send_signal(signal.SIGTERM)
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert time.monotonic() - start < 20
        assert code == -signal.SIGTERM
        assert "1 lost (shutdown 1)" in errors

    def test_a_second_signal_waits_for_the_first(self, program):
        """One that comes while what is queued is being delivered does not cut that short: the loss is still counted."""
        program.start(
            f"""
            import threading
            from otel_rollout import runtime

            def tell():
                while runtime.pipeline is not None:
                    time.sleep(0.001)
                open({str(program.folder / "delivering")!r}, "w").close()

            start(Hanging(), handle_sigterm=True, shutdown_timeout_ms=2000)
            trace("lost")
            threading.Thread(target=tell, daemon=True).start()
            open({str(program.folder / "ready")!r}, "w").close()
            time.sleep(60)
            """
        )
        program.await_file("ready")
        program.process.send_signal(signal.SIGTERM)
        program.await_file("delivering")
        program.process.send_signal(signal.SIGTERM)
        code, errors = program.wait()
        assert code == -signal.SIGTERM
        assert "1 lost (shutdown 1)" in errors

    def test_shutdown_puts_the_previous_handler_back(self, program):
        """After `shutdown` the signal is handled as before `init`."""
        code, errors = program.run(
            """
            def previous(number, frame):
                pass
            signal.signal(signal.SIGTERM, previous)
            start(handle_sigterm=True)
            assert signal.getsignal(signal.SIGTERM) is not previous
            otel_rollout.shutdown(10)
            assert signal.getsignal(signal.SIGTERM) is previous
            """
        )
        assert code == 0, errors

    def test_outside_the_main_thread_a_line_says_that_it_cannot_be(self, program):
        """`init` in another thread can't install a handler, and says so."""
        code, errors = program.run(
            """
            thread = threading.Thread(target=lambda: start(handle_sigterm=True))
            thread.start()
            thread.join()
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            """
        )
        assert code == 0
        assert "init was not called in the main thread" in errors
