"""Spans of a forked process are its own, and reach the backend; each case is a program with a deadline."""

from __future__ import annotations

import os

import pytest

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
        """What the parent holds at a fork is delivered once, by the parent; the child delivers its own."""
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
                os._exit(0 if otel_rollout.flush(20) else 1)
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
                    signal.alarm(20)
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
            assert otel_rollout.flush(20)
            child = os.fork()
            if child == 0:
                signal.alarm(40)
                trace("child")
                os._exit(0 if otel_rollout.flush(20) else 1)
            assert os.waitpid(child, 0)[1] == 0, "the child could not deliver"
            trace("parent after")
            assert otel_rollout.flush(20), otel_rollout.stats()
            server.stdin.close()
            with open(os.environ["SPANS"], "w") as file:
                file.write(server.stdout.read())
            server.wait()
            """
        )
        assert code == 0, errors
        assert program.delivered == [["parent before", "parent after"], ["child"]]
