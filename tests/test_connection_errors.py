"""What is said of a request that gets no answer: one line, with the usual remedy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from otel_rollout.export import describe_grpc_error
from otel_rollout.export.http import HttpAnswer, HttpClient, outcome_of_answer
from otel_rollout.export.outcome import Verdict

HTTP2_SETTINGS = b"\x00\x00\x18\x04\x00\x00\x00\x00\x00\x00\x04\x00\x3f\xff\xff"


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """Serve one connection with some bytes, or with silence; the value is the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                if answer is None:
                    done.wait(120)
                else:
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    # Closed with unread bytes, the connection is reset, and the answer may be lost.
                    connection.settimeout(60)
                    with suppress(ConnectionError):
                        while connection.recv(65536):
                            pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        done.set()
        thread.join(120)


def fault(url: str, seconds: float = 60) -> tuple[str, bool]:
    """Return what is said of a request to `url`, and True if trying again can't help."""
    client = HttpClient(timeout=seconds)
    answer = client.request("POST", url, b"x")
    client.close()
    return answer.fault, answer.is_permanent


def test_nothing_listens():
    """A closed port is a refused connection, without a word of the library's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert fault(f"http://localhost:{port}/v1/traces") == (
        f"connection refused: nothing listens on localhost:{port}",
        False,
    )


def test_an_unknown_host():
    """A host without an address is named."""
    assert fault("http://nowhere.invalid:4318/") == ("unknown host: nowhere.invalid has no address", False)


def test_http_to_a_grpc_port():
    """The first bytes of HTTP/2 are recognised: it is a wrong setting, with both remedies."""
    with answering(HTTP2_SETTINGS) as port:
        said, is_permanent = fault(f"http://127.0.0.1:{port}/v1/traces")

    assert said == (
        f"127.0.0.1:{port} speaks gRPC, not HTTP: give its port for HTTP (4318 rather than 4317), or set "
        "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
    )
    assert is_permanent


def test_https_to_an_http_port():
    """A server without TLS is recognised."""
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        said, is_permanent = fault(f"https://127.0.0.1:{port}/")

    assert said == f"127.0.0.1:{port} speaks no TLS: write http:// in place of https://"
    assert is_permanent


def test_no_answer_in_time():
    """A server that hangs is told from one that isn't there."""
    with answering(None) as port:
        assert fault(f"http://127.0.0.1:{port}/", 0.5) == (f"no whole answer of 127.0.0.1:{port} within 0.5 s", False)


def test_a_closed_connection():
    """A server that closes the connection has given no answer."""
    with answering(b"") as port:
        assert fault(f"http://127.0.0.1:{port}/") == (
            f"127.0.0.1:{port} closed the connection without an answer",
            False,
        )


def test_a_missing_scheme_is_named():
    """A URL without a scheme is an error of one line."""
    said, is_permanent = fault("localhost:4318/v1/traces")

    assert said == "InvalidSchema: No connection adapters were found for 'localhost:4318/v1/traces'"
    assert is_permanent


@pytest.mark.parametrize("status", [404, 405])
def test_a_doubled_path(status: int):
    """A 404 or 405 from a URL with the path twice says so."""
    url = "http://localhost:6006/v1/traces/v1/traces"
    said = "the URL has /v1/traces twice: leave it out of OTEL_EXPORTER_OTLP_ENDPOINT"

    assert said in outcome_of_answer(HttpAnswer(status), url).reason
    assert said not in outcome_of_answer(HttpAnswer(status), "http://localhost:6006/v1/traces").reason
    assert said not in outcome_of_answer(HttpAnswer(500), url).reason


def test_a_doubled_path_is_a_configuration_error():
    """Nothing is sent again until the URL is right."""
    with answering(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n") as port:
        url = f"http://127.0.0.1:{port}/v1/traces/v1/traces"
        client = HttpClient(timeout=60)
        outcome = outcome_of_answer(client.request("POST", url, b"x"), url)
        client.close()

    assert outcome.verdict is Verdict.CONFIGURATION_ERROR
    assert outcome.reason.startswith(f"HTTP 405 from {url}; the URL has /v1/traces twice")


@pytest.mark.parametrize(
    ("details", "said"),
    [
        (
            (
                "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:4317: Failed to connect to "
                "remote host: connect: Connection refused (111)"
            ),
            "connection refused: nothing listens on localhost:4317",
        ),
        (
            (
                "failed to connect to all addresses; last error: INTERNAL: ipv4:127.0.0.1:6006: Failed parsing HTTP/2 "
                "(Expected SETTINGS frame as the first frame, got frame type 80)"
            ),
            (
                "localhost:4317 speaks HTTP, not gRPC: give its port for gRPC (4317 rather than 4318), or set "
                "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
            ),
        ),
        (
            "Ssl handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: WRONG_VERSION_NUMBER",
            "localhost:4317 speaks no TLS: write http:// in place of https://",
        ),
        ("DNS resolution failed for localhost:4317", "unknown host: localhost has no address"),
        ("the server is busy", "the server is busy"),
    ],
)
def test_grpc(details: str, said: str):
    """gRPC's details become the same words; others stay."""
    assert describe_grpc_error(details, "http://localhost:4317") == said
    assert describe_grpc_error(details, "localhost:4317") == said
