"""A receiver under pressure: a full disk, more bytes than it can hold, senders that never end."""

from __future__ import annotations

import asyncio
import errno
import http.client
import random
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from google.rpc.status_pb2 import Status
from starlette.testclient import TestClient

from otel_rollout.receive import Limits, Receiver, make_app, open_folder, span_batch
from tests.receive.receiving import (
    PROTOBUF,
    ids_of,
    make_request,
    make_trace,
    spans_in_frames,
    stored,
    wait_until,
)

MIB = 2**20


def test_full_disk(start, small_disk) -> None:
    """While the disk is full the answer is 503 with Retry-After, and nothing is lost: once there is room it goes on."""
    disk = small_disk(4 * MIB)
    receiver = start("--idle", "2", folder=disk / "traces")
    taken, turned_away = [], []
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        for _ in range(2 * MIB // 4096):
            file.write(bytes(4096))
    for number in range(30):
        spans = make_trace(number, text=random.Random(number).randbytes(40_000).hex())
        answer = receiver.send(spans)
        if answer.status == 200:
            taken += spans
        else:
            assert answer.status == 503
            assert answer.headers["retry-after"] == "1"
            assert "No space left" in Status.FromString(answer.body).message
            turned_away += spans
    assert taken
    assert turned_away
    assert "No space left" in receiver.ask("GET", "/health").body.decode() or spans_in_frames(disk / "traces")
    assert stored(disk / "traces") == ids_of(taken)
    ballast.unlink()
    wait_until(lambda: receiver.send(turned_away[:4]).status == 200)
    for first in range(4, len(turned_away), 4):
        wait_until(lambda first=first: receiver.send(turned_away[first : first + 4]).status == 200)
    assert receiver.stop()[0] == 0
    assert stored(disk / "traces") == ids_of([*taken, *turned_away])
    assert set(spans_in_frames(disk / "traces").values()) == {1}


class TestLimits:
    """Bounds on the bytes that wait, in the server's process."""

    @pytest.fixture
    def receiver(self, tmp_path):
        """A receiver with small limits whose thread can be held up."""
        receiver = Receiver(open_folder(tmp_path / "traces"), Limits(waiting_bytes=10_000, body_seconds=0.5))
        yield receiver
        asyncio.run(receiver.close())

    def test_too_much_waits(self, receiver, tmp_path) -> None:
        """Beyond the bound on waiting bytes the answer is 429 with Retry-After; what waits is stored in the end."""
        gate, waits = threading.Event(), threading.Event()
        receiver._pool.submit(lambda: (waits.set(), gate.wait(120)))
        assert waits.wait(120)
        body = make_request(make_trace(1, text="x" * 1500)).SerializeToString()
        assert 5_000 < len(body) < 10_000
        with TestClient(make_app(receiver)) as client:
            answers = []
            headers = {"Content-Type": PROTOBUF}
            first = threading.Thread(
                target=lambda: answers.append(client.post("/v1/traces", content=body, headers=headers))
            )
            first.start()
            wait_until(lambda: receiver.waiting_bytes == len(body))
            second = client.post("/v1/traces", content=body, headers=headers)
            assert (second.status_code, second.headers["retry-after"]) == (429, "1")
            assert "10,000 bytes wait" in Status.FromString(second.content).message
            gate.set()
            first.join(120)
        assert [answer.status_code for answer in answers] == [200]
        assert receiver.waiting_bytes == 0
        assert stored(tmp_path / "traces") == ids_of(make_trace(1))

    def test_disk_that_fails_within_a_request(self, receiver, tmp_path, monkeypatch) -> None:
        """The answer is 503, though a part of the request is stored; when it comes again each span is stored once."""
        monkeypatch.setattr(span_batch, "GROUP_BYTES", 4096)
        take, failures = receiver.folder.take, [None, OSError(errno.ENOSPC, "No space left on device")]

        def fail_once(spans):
            if failures and (failure := failures.pop(0)) is not None:
                raise failure
            return take(spans)

        monkeypatch.setattr(receiver.folder, "take", fail_once)
        spans = make_trace(1, 6, text="x" * 1000)
        body = make_request(spans).SerializeToString()
        with TestClient(make_app(receiver)) as client:
            headers = {"Content-Type": PROTOBUF}
            first = client.post("/v1/traces", content=body, headers=headers)
            assert (first.status_code, first.headers["retry-after"]) == (503, "1")
            assert 0 < len(stored(tmp_path / "traces")[spans[0].trace_id.hex()]) < 6
            assert client.post("/v1/traces", content=body, headers=headers).status_code == 200
        assert stored(tmp_path / "traces") == ids_of(spans)
        assert (receiver.totals.spans, receiver.totals.doubles > 0) == (6, True)

    def test_slow_body(self, receiver) -> None:
        """A body that does not come in time is answered with a status that senders repeat; nothing of it is kept."""
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/traces",
            "headers": [(b"content-type", PROTOBUF.encode())],
            "query_string": b"",
        }
        parts = [{"type": "http.request", "body": b"x" * 100, "more_body": True}]
        answer = []

        async def receive():
            return parts.pop() if parts else await asyncio.Event().wait()

        async def send(message) -> None:
            answer.append(message)

        asyncio.run(make_app(receiver)(scope, receive, send))
        assert answer[0]["status"] == 503
        assert (b"retry-after", b"1") in answer[0]["headers"]
        assert "0.5 seconds" in Status.FromString(answer[1]["body"]).message
        assert (parts, receiver.waiting_bytes) == ([], 0)


def test_sender_that_goes_away(start, tmp_path) -> None:
    """A sender that leaves in the middle of its body stores nothing, and holds nothing up."""
    receiver = start()
    url = urlsplit(receiver.url)
    body = make_request(make_trace(1)).SerializeToString()
    connection = http.client.HTTPConnection(url.hostname, url.port)
    connection.putrequest("POST", url.path)
    connection.putheader("Content-Type", PROTOBUF)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body[:50])
    connection.close()
    assert receiver.send(make_trace(2)).status == 200
    code, said = receiver.stop()
    assert code == 0
    assert "Traceback" not in said
    assert stored(tmp_path / "traces") == ids_of(make_trace(2))


@pytest.mark.parametrize(
    ("start_line", "piece"),
    [
        (b"POST /", b"x" * 4096),
        (b"POST /v1/traces HTTP/1.1\r\nX-A: ", b"x" * 4096),
        (b"POST /v1/traces HTTP/1.1\r\n", b"X-A: b\r\n" * 500),
        (b"POST /v1/traces HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: b\r\n" * 500),
    ],
)
def test_head_without_end(start, start_line, piece) -> None:
    """A path, a header, headers, trailers without end are cut off: anybody can send them, without a token."""
    receiver = start(environment={"OTEL_ROLLOUT_RECEIVE_TOKEN": "x"})
    url = urlsplit(receiver.url)
    with socket.create_connection((url.hostname, url.port), timeout=30) as connection:
        connection.sendall(start_line)
        # The system takes some megabytes that the receiver doesn't read.
        with pytest.raises(ConnectionError):
            connection.sendall(piece * (32 * MIB // len(piece)))
    assert receiver.ask("GET", "/health").status == 200
    assert "Traceback" not in receiver.stop()[1]
