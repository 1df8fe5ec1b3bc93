"""Spans reach the backend before the process ends, however it ends; each case is a program with a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

DEADLINE = 60.0

PRELUDE = """
import multiprocessing, os, signal, sys, threading, time
import otel_rollout
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

class File(SpanExporter):
    '''Appends a line for each span: the process that delivers it, and its name.'''

    def export(self, spans):
        with open(os.environ["SPANS"], "a") as file:
            for span in spans:
                file.write(f"{os.getpid()} {span.name}\\n")
        return SpanExportResult.SUCCESS

class Hanging(SpanExporter):
    '''Never returns.'''

    def export(self, spans):
        threading.Event().wait()

def start(exporter=None, **settings):
    otel_rollout.init("project", "experiment", backend=exporter or File(), schedule_delay_ms=60_000, **settings)

def trace(name):
    with otel_rollout.rollout_trace_attr(0, 1, 0, name=name):
        pass
"""

RECEIVER = '''
"""An OTLP receiver; when standard input is closed it prints a line for each span: the connection, and the name."""
import http.server, os, sys, threading
from concurrent import futures
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service

received = []

def note(peer, request):
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            received.extend(f"{peer} {span.name}" for span in scope_spans.spans)

def export(request, context):
    note(context.peer(), request)
    return trace_service.ExportTraceServiceResponse()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        note(self.client_address[1], trace_service.ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass

if sys.argv[1] == "grpc":
    import grpc
    method = grpc.unary_unary_rpc_method_handler(
        export,
        trace_service.ExportTraceServiceRequest.FromString,
        trace_service.ExportTraceServiceResponse.SerializeToString,
    )
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": method})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
else:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{port}", flush=True)
sys.stdin.read()
print(*received, sep="\\n", flush=True)
os._exit(0)
'''


class _Program:
    """A program that runs, and the spans that it delivered."""

    def __init__(self, folder):
        self.spans = folder / "spans"
        self.folder = folder
        self.process = None

    def start(self, body, *, python=sys.executable):
        """Start a program made of the prelude and `body`."""
        file = self.folder / "program.py"
        file.write_text(PRELUDE + textwrap.dedent(body))
        environment = {**os.environ, "SPANS": str(self.spans), "PYTHONWARNINGS": "ignore::DeprecationWarning"}
        environment.pop("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS", None)
        self.process = subprocess.Popen(
            [python, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def wait(self):
        """Wait for the end; return the exit code and what was written to standard error."""
        try:
            _, errors = self.process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, errors = self.process.communicate()
            raise AssertionError(f"the program did not end: {errors}") from None
        return self.process.returncode, errors

    def run(self, body):
        """Run a program to its end."""
        self.start(body)
        return self.wait()

    def await_file(self, name):
        """Wait until the program has made a file."""
        deadline = time.monotonic() + DEADLINE
        while not (self.folder / name).exists():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @property
    def delivered(self):
        """The names of the spans that were delivered, by process, in order."""
        lines = self.spans.read_text().splitlines() if self.spans.exists() else []
        processes = {}
        for line in lines:
            process, _, name = line.partition(" ")
            processes.setdefault(process, []).append(name)
        return list(processes.values())


@pytest.fixture
def program(tmp_path):
    """A program to run."""
    program = _Program(tmp_path)
    yield program
    if program.process is not None and program.process.poll() is None:
        program.process.kill()
        program.process.communicate()


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
