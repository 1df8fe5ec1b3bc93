"""Spans of a forked process are its own, and reach the backend; each case is a program with a deadline."""

from __future__ import annotations

import os
import random
import re
import signal
import string
import threading

import pytest

from otel_rollout.finish import Redactor
from tests.installed import CORE, EXPORTERS
from tests.tracing_programs import RECEIVER, program_in


@pytest.fixture
def program(tmp_path):
    """A program to run."""
    with program_in(tmp_path) as program:
        yield program


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestFork:
    """Children."""

    def test_a_forked_child_delivers_its_own_spans_only(self, program):
        """The parent's spans at a fork are delivered once, by the parent; the child delivers its own."""
        code, errors = program.run(
            """
            start()
            trace("parent before")
            child = os.fork()
            if child == 0:
                trace("child")
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            trace("parent after")
            """
        )
        assert code == 0, errors
        assert program.delivered == [["child"], ["parent before", "parent after"]]

    def test_a_forked_child_that_flushes_may_leave_by_os_exit(self, program):
        """os._exit skips everything; a flush before it delivers."""
        code, errors = program.run(
            """
            start()
            child = os.fork()
            if child == 0:
                trace("child")
                os._exit(0 if otel_rollout.flush(120) else 1)
            assert os.waitpid(child, 0)[1] == 0
            """
        )
        assert code == 0, errors
        assert program.delivered == [["child"]]

    def test_a_child_whose_only_span_ends_while_it_exits(self, program):
        """A span that ends while the interpreter exits is delivered, where no thread can be started any more too."""
        code, errors = program.run(
            """
            import atexit
            start()
            child = os.fork()
            if child == 0:
                atexit.register(lambda: trace("late"))
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            """
        )
        assert code == 0, errors
        assert program.delivered == [["late"]]

    def test_locks_that_are_held_at_the_fork(self, program):
        """A child that was forked while threads were recording and delivering does not deadlock."""
        code, errors = program.run(
            """
            start(max_batch_spans=2)
            stop = threading.Event()
            def record():
                while not stop.is_set():
                    trace("parent")
                    time.sleep(0.0005)
            threads = [threading.Thread(target=record) for _ in range(4)]
            for thread in threads:
                thread.start()
            for _ in range(30):
                child = os.fork()
                if child == 0:
                    signal.alarm(300)
                    trace("child")
                    os._exit(0 if otel_rollout.flush(15) else 1)
                assert os.waitpid(child, 0)[1] == 0
            stop.set()
            for thread in threads:
                thread.join()
            """
        )
        assert code == 0, errors
        children = [names for names in program.delivered if "child" in names]
        assert children == [["child"]] * 30

    @pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
    def test_multiprocessing_children_deliver_before_they_exit(self, program, method):
        """A child of multiprocessing leaves by os._exit, and delivers before that."""
        code, errors = program.run(
            f"""
            def work(number):
                if {method!r} != "fork":
                    start()
                trace(f"child {{number}}")

            if __name__ == "__main__":
                start()
                trace("parent")
                context = multiprocessing.get_context({method!r})
                children = [context.Process(target=work, args=(number,)) for number in range(2)]
                for child in children:
                    child.start()
                for child in children:
                    child.join()
                    assert child.exitcode == 0
            """
        )
        assert code == 0, errors
        assert sorted(program.delivered) == [["child 0"], ["child 1"], ["parent"]]

    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_no_connection_is_shared_with_a_child(self, program, protocol):
        """Parent and child deliver over connections of their own, over HTTP and gRPC, before and after the fork."""
        if protocol == "grpc":
            pytest.importorskip("grpc")
        receiver = program.folder / "receiver.py"
        receiver.write_text(RECEIVER)
        code, errors = program.run(
            f"""
            import subprocess
            os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] = {protocol!r}
            command = [sys.executable, {str(receiver)!r}, {protocol!r}]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = server.stdout.readline().strip()
            start("otlp")
            trace("parent before")
            assert otel_rollout.flush(120)
            child = os.fork()
            if child == 0:
                signal.alarm(300)
                trace("child")
                os._exit(0 if otel_rollout.flush(120) else 1)
            assert os.waitpid(child, 0)[1] == 0, "the child could not deliver"
            trace("parent after")
            assert otel_rollout.flush(120), otel_rollout.stats()
            server.stdin.close()
            with open(os.environ["SPANS"], "w") as file:
                file.write(server.stdout.read())
            server.wait()
            """
        )
        assert code == 0, errors
        assert program.delivered == [["parent before", "parent after"], ["child"]]


LOCKS = {
    "otel_rollout/config.py": ["config._lock"],
    "otel_rollout/record/trajectory_state.py": ["trajectory_state._lock"],
    "otel_rollout/export/outbox.py": ["queue._lock", "mlflow_exporter.follow_up_requests._lock"],
    "otel_rollout/finish/span_conversion.py": ["queue._reader._lock"],
    "otel_rollout/deliver/spool.py": ["queue._spool._lock"],
    "otel_rollout/deliver/spooled_outbox.py": ["queue._taking"],
    "otel_rollout/folder/folder_writer.py": ["queue.exporter._writer._lock"],
    "otel_rollout/folder/retention.py": ["queue.exporter._writer._files._bound._lock"],
    "otel_rollout_mlflow/exporter.py": ["mlflow_exporter._turn"],
    "otel_rollout_mlflow/nesting.py": ["nesting._lock"],
}
"""The locks of each file that makes any, by how a traced program gets at them; those of the same lock stand once."""

OUT_OF_REACH = {
    "otel_rollout/demo/session.py",
    "otel_rollout/folder/stored_file.py",
    "otel_rollout/guard/background_thread.py",
    "otel_rollout/guard/signal_safe_lock.py",
    "otel_rollout/guard/wake.py",
    "otel_rollout/look/view/run_state.py",
    "otel_rollout/look/view/server.py",
}
"""No child gets at the locks of these: they are of a program of ours, of readers, or of one call or wait."""

OF_DELIVERY = {
    "otel_rollout_mlflow/exporter.py",
    "otel_rollout/deliver/spool.py",
    "otel_rollout/deliver/spooled_outbox.py",
    "otel_rollout/finish/span_conversion.py",
    "otel_rollout/folder/folder_writer.py",
    "otel_rollout/folder/retention.py",
}
"""Only delivery's own threads wait for the locks of these, and no signal handler interrupts those threads."""


def files_with(pattern):
    """Return the files of ours that hold a pattern."""
    files = [(package.parent, path) for package in (CORE, *EXPORTERS) for path in package.rglob("*.py")]
    return {str(path.relative_to(parent)) for parent, path in files if re.search(pattern, path.read_text())}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestLocksAtFork:
    """A forked child has a copy of every lock as it was: nobody lets go of one that another thread held."""

    def test_every_lock_is_tried(self):
        """Each file of ours that makes locks is in the table above."""
        found = files_with(r"(threading\.(R?Lock|Condition|Event|(Bounded)?Semaphore|Barrier)|SignalSafeLock)\(")
        assert found - OUT_OF_REACH == set(LOCKS)

    def test_every_lock_that_the_program_takes(self):
        """A lock that is no `SignalSafeLock` is one of delivery's own."""
        assert files_with(r"threading\.R?Lock\(") - OUT_OF_REACH == OF_DELIVERY

    def test_a_search_that_another_thread_makes(self):
        """A child that was forked while a thread searched for secrets searches too: google-re2 locks its patterns."""
        redactor, stop, generator = Redactor(), threading.Event(), random.Random(0)

        def search():
            redactor.value("".join(generator.choices(string.printable, k=3000)))

        def search_on():
            while not stop.is_set():
                search()

        thread = threading.Thread(target=search_on)
        thread.start()
        try:
            for _ in range(30):
                child = os.fork()
                if child == 0:
                    signal.alarm(60)
                    redactor.after_fork()
                    search()
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            stop.set()
            thread.join()

    @pytest.mark.parametrize(
        "lock",
        [
            pytest.param(lock, marks=pytest.mark.slow if file in OF_DELIVERY else ())
            for file, locks in LOCKS.items()
            for lock in locks
        ],
    )
    def test_a_lock_that_another_thread_holds(self, program, lock):
        """A child that was forked while a thread held the lock traces, counts, delivers and ends."""
        pytest.importorskip("zstandard")
        if "nesting" in lock:
            pytest.importorskip("mlflow.tracing")
        code, errors = program.run(
            f"""
            import contextlib
            from otel_rollout import config
            from otel_rollout.record import runtime
            from otel_rollout.record import trajectory_state
            if "nesting" in {lock!r}:
                import mlflow.tracing
                from otel_rollout_mlflow import nesting
            os.environ["OTEL_ROLLOUT_DIR"] = {str(program.folder / "traces")!r}
            os.environ["OTEL_ROLLOUT_DIR_MAX_BYTES"] = "1GiB"
            os.environ["OTEL_ROLLOUT_DIR_MAX_BYTES"] = "1GiB"
            backends = ["file", File()]
            if "mlflow_exporter" in {lock!r}:
                from otel_rollout_mlflow import MlflowSpanExporter
                mlflow_exporter = MlflowSpanExporter(tracking_uri="http://127.0.0.1:9")
                backends.append(mlflow_exporter)
            start(backends, spool={str(program.folder / "spool")!r})

            @otel_rollout.rollout_trace_op(kind="LLM")
            def turn():
                with nesting.nested_mlflow_spans() if "nesting" in {lock!r} else contextlib.nullcontext():
                    return 1

            def work(name):
                with otel_rollout.rollout_trace_attr(0, 1, 0, name=name):
                    turn()
                otel_rollout.stats()
                if len(backends) == 2:
                    assert otel_rollout.flush(120)
                else:
                    # Nothing answers there; an attempt is made.
                    otel_rollout.flush(0)
                    while not otel_rollout.stats().exporters["MlflowSpanExporter"].last_error:
                        time.sleep(0.01)

            work("before")
            queue = runtime.pipeline.queues[0]
            held, done = threading.Event(), threading.Event()
            def hold():
                with {lock}:
                    held.set()
                    done.wait()
            threading.Thread(target=hold).start()
            held.wait()
            child = os.fork()
            if child == 0:
                signal.alarm(300)
                work("child")
                otel_rollout.annotate(reward=1)
                otel_rollout.shutdown(120 if len(backends) == 2 else 1)
                start(File())
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            done.set()
            assert status == 0, f"the child ended with {{status}}"
            """
        )
        assert code == 0, errors
        assert ["turn", "child"] in program.delivered
        assert "annotate() was called outside" in errors

    def test_a_fork_amid_a_shutdown(self, program):
        """A child that is forked while the parent shuts tracing down ends, and leaves that to the parent."""
        code, errors = program.run(
            f"""
            class Slow(File):
                def export(self, spans):
                    open({str(program.folder / "sending")!r}, "w").close()
                    while not os.path.exists({str(program.folder / "forked")!r}):
                        time.sleep(0.01)
                    return super().export(spans)
            start(Slow())
            trace("parent")
            from otel_rollout.record import runtime
            [queue] = runtime.pipeline.queues
            thread = threading.Thread(target=otel_rollout.shutdown)
            thread.start()
            while not os.path.exists({str(program.folder / "sending")!r}):
                time.sleep(0.01)
            with queue._lock:
                child = os.fork()
            if child == 0:
                signal.alarm(300)
                otel_rollout.stats()
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            open({str(program.folder / "forked")!r}, "w").close()
            thread.join()
            """
        )
        assert code == 0, errors
        assert program.delivered == [["parent"]]

    def test_a_fork_amid_the_first_init(self, program):
        """A child that is forked while another thread runs the first `init` starts tracing of its own."""
        code, errors = program.run(
            """
            from otel_rollout.export.exporter import OutcomeSpanExporter

            checking, forked = threading.Event(), threading.Event()

            class Slow(OutcomeSpanExporter):
                def check(self):
                    checking.set()
                    forked.wait(120)

                def send(self, spans):
                    raise AssertionError("nothing is recorded in the parent")

            thread = threading.Thread(target=start, args=(Slow(),))
            thread.start()
            assert checking.wait(120)
            child = os.fork()
            if child == 0:
                signal.alarm(300)
                start()
                trace("child")
                os._exit(0 if otel_rollout.flush(15) else 1)
            status = os.waitpid(child, 0)[1]
            forked.set()
            thread.join()
            assert status == 0, f"the child ended with {status}"
            """
        )
        assert code == 0, errors
        assert program.delivered == [["child"]]

    @pytest.mark.parametrize(
        ("backend", "protocol", "module"),
        [
            ("otlp", "http/protobuf", "requests"),
            ("otlp", "grpc", "grpc"),
            ("weave", "", "requests"),
            ("mlflow", "", "requests"),
        ],
    )
    def test_what_delivery_needs_is_imported_by_init(self, program, backend, protocol, module):
        """A child that is forked amid an import waits for it for ever: what is imported for long is so before."""
        pytest.importorskip(module)
        code, errors = program.run(
            f"""
            os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] = {protocol!r}
            os.environ["MLFLOW_TRACKING_URI"] = "http://localhost:1"
            assert {module!r} not in sys.modules
            start({backend!r})
            assert {module!r} in sys.modules
            """
        )
        assert code == 0, errors
