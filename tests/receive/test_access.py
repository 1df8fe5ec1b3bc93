"""Who may send: the token, the address, TLS; and where it can't start."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from google.rpc.status_pb2 import Status
from starlette.testclient import TestClient

from otel_rollout.cli.main import main
from otel_rollout.cli.options import host
from otel_rollout.receive import Receiver, make_app, open_folder, read_token
from tests.receive.receiving import PROTOBUF, make_request, make_trace, stored

TOKEN = "a-token-of-the-team"


def test_token(start, tmp_path) -> None:
    """Without the token nothing is stored, however it differs; with it all is."""
    receiver = start(environment={"OTEL_ROLLOUT_RECEIVE_TOKEN": TOKEN})
    for headers in (
        {},
        {"Authorization": "Bearer x"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer "},
    ):
        answer = receiver.send(make_trace(1), **headers)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert "no valid token" in Status.FromString(answer.body).message
    assert not (tmp_path / "traces").exists()
    assert receiver.ask("GET", "/health").status == 200
    assert receiver.send(make_trace(1), Authorization=f"Bearer {TOKEN}").status == 200
    assert len(stored(tmp_path / "traces")) == 1


def test_health(tmp_path) -> None:
    """The disk's error, which has paths, is told with the token alone; without it the status is a word."""
    receiver = Receiver(open_folder(tmp_path / "traces"))
    (tmp_path / "traces").write_text("no folder")
    spans = make_request(make_trace(1)).SerializeToString()
    with TestClient(make_app(receiver, TOKEN)) as client:
        known = {"Authorization": f"Bearer {TOKEN}"}
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/health", headers=known).json() == {"status": "ok", "open_traces": 0}
        sent = client.post("/v1/traces", content=spans, headers={**known, "Content-Type": PROTOBUF})
        assert sent.status_code == 503
        for headers in ({}, {"Authorization": "Bearer x"}):
            assert client.get("/health", headers=headers).json() == {"status": "the disk fails"}
        told = client.get("/health", headers=known).json()
        assert (told["status"], str(tmp_path) in told["cause"]) == ("the disk fails", True)
    asyncio.run(receiver.close())


def test_token_file(start, tmp_path) -> None:
    """A token in a file goes before that of the environment; its line end is no part of it."""
    (tmp_path / "token").write_text(TOKEN + "\n")
    receiver = start("--token-file", str(tmp_path / "token"), environment={"OTEL_ROLLOUT_RECEIVE_TOKEN": "another"})
    assert receiver.send(make_trace(1), Authorization="Bearer another").status == 401
    assert receiver.send(make_trace(1), Authorization=f"bearer {TOKEN}").status == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "set OTEL_ROLLOUT_RECEIVE_TOKEN"),
        (["--host", "::"], "set OTEL_ROLLOUT_RECEIVE_TOKEN"),
        (["--token-file", "missing"], "--token-file missing"),
        (["--certificate", "c.pem"], "needs both"),
        (["--certificate", "c.pem", "--key", "k.pem"], "--certificate c.pem"),
        (["--host", "192.0.2.1", "--token-file", "token"], "--host 192.0.2.1"),
        (["--port", "99999"], "--port 99999"),
    ],
)
def test_cannot_start(tmp_path, monkeypatch, capsys, options, words) -> None:
    """A setting that can't work is named in one line, with exit code 2; other machines need a token."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTEL_ROLLOUT_RECEIVE_TOKEN", raising=False)
    (tmp_path / "token").write_text(TOKEN)
    assert main(["receive", "traces", *options]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "traces").exists()


def test_folder_that_cannot_be_written(tmp_path, monkeypatch, capsys) -> None:
    """A folder that can never take spans is named at the start: senders would wait for it in vain."""
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "traces"):
        assert main(["receive", str(folder), "--port", "0"]) == 2
        assert f"{tmp_path / 'file'} is a file" in capsys.readouterr().err
    # Root may write everywhere but on a disk that is mounted for reading.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert main(["receive", str(tmp_path / "new" / "traces"), "--port", "0"]) == 2
    assert f"can't write into the folder {tmp_path}\n" in capsys.readouterr().err


def test_port_in_use(start, capsys) -> None:
    """A port that another process listens on is named."""
    receiver = start()
    assert main(["receive", "traces", "--port", receiver.url.split(":")[2].split("/")[0]]) == 2
    assert "in use" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["127.0.0.1", "localhost", "::1", "[::1]"])
def test_this_machine_alone_needs_no_token(given) -> None:
    """An address of the loopback interface, with the brackets of a URL or without, needs none."""
    assert read_token(host(given), None, {}) == ""


@pytest.fixture
def certified(tmp_path) -> tuple[list[str], ssl.SSLContext]:
    """The options of a certificate, and what a client checks it with."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return ["--certificate", str(certificate), "--key", str(key)], ssl.create_default_context(cafile=certificate)


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_idle_connections_hold_up_nothing(start, certified, is_encrypted) -> None:
    """A sender that keeps its connection open delays the end by a moment, and is no error."""
    options, context = certified if is_encrypted else ([], None)
    receiver = start(*options, context=context)
    address = urlsplit(receiver.url)
    plain = socket.create_connection((address.hostname, address.port), timeout=300)
    with context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain as sender:
        sender.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert sender.recv(1).startswith(b"H")
        code, said = receiver.stop()
    assert code == 0
    assert "ERROR" not in said


def test_tls(start, certified, tmp_path) -> None:
    """With `--certificate` and `--key` it speaks TLS, and nothing else."""
    options, context = certified
    receiver = start(*options, context=context)
    assert receiver.url.startswith("https://")
    assert receiver.send(make_trace(1)).status == 200
    receiver.url = receiver.url.replace("https", "http")
    with pytest.raises(OSError):
        receiver.send(make_trace(2))
    assert len(stored(tmp_path / "traces")) == 1


def test_without_the_extra(tmp_path) -> None:
    """Without its web server the command says what to install."""
    program = (
        "import sys; sys.modules['uvicorn'] = None; from otel_rollout.cli.main import main; sys.exit(main(['receive']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "[receive]" in done.stderr
