"""The HTTP client against a server that misbehaves."""

from __future__ import annotations

import email.utils
import gzip
import http.server
import logging
import os
import socket
import ssl
import struct
import subprocess
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from otel_rollout.export.http import HttpAnswer, HttpClient, outcome_of_answer
from otel_rollout.export.outcome import Verdict


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        self.server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        self.server.peers.add(self.client_address)
        self.server.answer(self)

    def log_message(self, *arguments):
        pass


def _answer(handler, status=200, body=b"ok", headers=()):
    handler.send_response(status)
    for name, value in headers:
        handler.send_header(name, value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def serving(answer=_answer, tls=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.answer, server.requests, server.peers = answer, [], set()
    server.handle_error = lambda *arguments: None
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}/v1/traces"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def client(**arguments):
    made = HttpClient(**{"timeout": 5.0, **arguments})
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*command, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True, timeout=30)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return files


class TestRequest:
    """One request over a real socket."""

    def test_headers_and_body_arrive(self):
        """The server gets the client's headers, the request's own, and the body."""
        with serving() as server, client(headers={"x-key": "secret"}) as http_client:
            answer = http_client.request("POST", server.url, b"body", {"content-encoding": "gzip"})
        assert (answer.status, answer.body) == (200, b"ok")
        [(path, headers, body)] = server.requests
        assert path == "/v1/traces"
        assert (headers["x-key"], headers["content-encoding"], body) == ("secret", "gzip", b"body")

    def test_the_connection_is_kept(self):
        """Requests one after the other go over one connection."""
        with serving() as server, client() as http_client:
            for _ in range(3):
                assert http_client.request("POST", server.url, b"").status == 200
        assert len(server.peers) == 1

    def test_after_close_a_new_connection_is_opened(self):
        """A closed client can be used again."""
        with serving() as server, client() as http_client:
            http_client.request("POST", server.url, b"")
            http_client.close()
            assert http_client.request("POST", server.url, b"").status == 200
        assert len(server.peers) == 2

    def test_a_redirect_is_not_followed(self):
        """Credentials are not carried to another address."""
        redirect = partial(_answer, status=307, headers=[("location", "/other")])
        with serving(redirect) as server, client() as http_client:
            assert http_client.request("POST", server.url, b"").status == 307
        assert len(server.requests) == 1

    def test_our_authorization_wins_over_netrc(self, tmp_path, monkeypatch):
        """An entry for the host in netrc does not replace the header that was configured."""
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login other password other\n")
        monkeypatch.setenv("NETRC", str(netrc))
        with serving() as server, client(headers={"Authorization": "Bearer ours"}) as http_client:
            http_client.request("POST", server.url, b"")
        assert server.requests[0][1]["authorization"] == "Bearer ours"

    @pytest.mark.parametrize(
        ("value", "expected"),
        [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("nan", None), ("inf", None), ("soon", None), ("", None)],
    )
    def test_retry_after_in_seconds(self, value, expected):
        """Retry-After is read as seconds; what is no number is no wish."""
        busy = partial(_answer, status=429, headers=[("Retry-After", value)])
        with serving(busy) as server, client() as http_client:
            assert http_client.request("POST", server.url, b"").retry_after == expected

    def test_retry_after_as_a_date(self):
        """Retry-After may be a date."""
        date = email.utils.formatdate(time.time() + 100, usegmt=True)
        busy = partial(_answer, status=503, headers=[("Retry-After", date)])
        with serving(busy) as server, client() as http_client:
            assert 90 < http_client.request("POST", server.url, b"").retry_after <= 100


def _reset(handler):
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.rfile.close()
    handler.connection.close()
    handler.close_connection = True


def _reset_in_the_body(handler):
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b"part")
    handler.wfile.flush()
    _reset(handler)


def _hang(handler):
    handler.server.released = threading.Event()
    handler.server.released.wait(120)


class TestFaults:
    """Requests that get no answer."""

    def test_an_answer_over_the_bound_is_not_read(self, monkeypatch):
        """Of an answer without a known end no more is kept than the bound."""
        monkeypatch.setattr("otel_rollout.export.http_transport.MAX_BYTES", 100_000)

        def flood(handler):
            handler.send_response(200)
            handler.end_headers()
            with suppress(OSError):
                while True:
                    handler.wfile.write(bytes(65_536))

        with serving(flood) as server, client() as http_client:
            assert http_client.request("POST", server.url, b"").fault.startswith("the answer is over")
            server.answer = _answer
            assert http_client.request("POST", server.url, b"").status == 200

    def test_gzip_is_read(self):
        """A compressed answer comes decompressed, and one that is cut off is a passing fault."""
        text = gzip.compress(b"x" * 1000)
        zipped = partial(_answer, body=text, headers=[("content-encoding", "gzip")])
        with serving(zipped) as server, client() as http_client:
            assert http_client.request("POST", server.url, b"").body == b"x" * 1000
            server.answer = partial(zipped, body=text[:-9])
            answer = http_client.request("POST", server.url, b"")
        assert (answer.status, answer.is_permanent) == (0, False)
        assert "cut off" in answer.fault

    def test_a_proxy_of_the_environment_is_named(self, monkeypatch):
        """A proxy that refuses, or is down, is in the message, with its variable and without its password."""
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with serving(partial(_answer, status=502)) as proxy, client() as http_client:
            monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//ada:secret@"))
            url = "http://collector.invalid:4318/v1/traces"
            refused = outcome_of_answer(http_client.request("POST", url, b""), url).reason
            assert proxy.requests[0][0] == url
        down = outcome_of_answer(http_client.request("POST", url, b""), url).reason
        named = f"the proxy 127.0.0.1:{proxy.server_address[1]} of http_proxy"
        assert refused == f"HTTP 502 from {url} through {named}: ok"
        assert f"nothing listens on {named}, on the way to collector.invalid:4318" in down

    def test_a_host_without_a_proxy(self, monkeypatch):
        """Where no_proxy names the host, no proxy is named."""
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with serving(partial(_answer, status=502)) as server, client() as http_client:
            answer = http_client.request("POST", server.url, b"")
        assert "proxy" not in outcome_of_answer(answer, server.url).reason

    def test_certificates_that_are_not_checked_are_one_warning(self, certificate, caplog):
        """Not one a request, and none of urllib3's."""
        with (
            serving(tls=_tls(certificate)) as server,
            client(verify=False) as http_client,
            caplog.at_level(logging.WARNING, logger="otel_rollout"),
            warnings.catch_warnings(record=True) as caught,
        ):
            for _ in range(3):
                assert http_client.request("POST", server.url, b"").status == 200
                http_client.close()
        assert caught == []
        assert len([entry for entry in caplog.records if "are not checked" in entry.getMessage()]) <= 1

    @pytest.mark.parametrize("misbehave", [_reset, _reset_in_the_body], ids=["reset", "reset in the body"])
    def test_a_broken_connection_is_a_passing_fault(self, misbehave):
        """A connection that breaks before or in the answer is tried again, over a new one."""
        with serving(misbehave) as server, client() as http_client:
            answer = http_client.request("POST", server.url, b"body")
            assert outcome_of_answer(answer, server.url).verdict is Verdict.RETRY
            server.answer = _answer
            assert http_client.request("POST", server.url, b"body").status == 200

    def test_a_server_that_hangs_is_a_passing_fault(self):
        """A request ends at the timeout."""
        with serving(_hang) as server, client(timeout=0.1) as http_client:
            answer = http_client.request("POST", server.url, b"body")
            server.released.set()
        assert (answer.status, answer.is_permanent) == (0, False)

    def test_a_server_that_is_not_there_is_a_passing_fault(self):
        """A refused connection is tried again."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
            with client() as http_client:
                answer = http_client.request("POST", url, b"")
        assert outcome_of_answer(answer, url).verdict is Verdict.RETRY

    @pytest.mark.parametrize(
        "url", ["", "nowhere", "ftp://127.0.0.1/", "http://", "http://[::1", "http://a b/", "http://.x/"]
    )
    def test_a_bad_url_is_our_fault(self, url):
        """A URL that can't work is not tried over and over."""
        with client() as http_client:
            answer = http_client.request("POST", url, b"")
        assert answer.is_permanent
        assert outcome_of_answer(answer, url).verdict is Verdict.CONFIGURATION_ERROR

    @pytest.mark.parametrize(
        "url",
        [
            "http://xavier:hunter2@127.0.0.1:1/x",
            "http://xavier:hunter2@/x",
            "http://xavier:hunter2@a b/x",
            "http://xavier:hunt/er2@host/x",
            "http://xavier:hunt#er2@host/x",
            "http://xavier:hunt@er2@127.0.0.1:1/x",
            "http://xavier:hunt er2@.x/",
            "nothing://xavier:hunter2@host/x",
            "xavier:hunter2@host/x",
        ],
    )
    def test_a_password_in_a_url_is_in_no_message(self, url):
        """The user and password of a URL are left out of what is logged, also where the URL can't work."""
        with client(timeout=0.5) as http_client:
            answer = http_client.request("POST", url, b"")
        outcome = outcome_of_answer(answer, url)
        refused = outcome_of_answer(HttpAnswer(401), url)
        for message in (answer.fault, outcome.reason, refused.reason):
            assert message
            assert not any(word in message for word in ("xavier", "hunt", "er2"))

    @pytest.mark.parametrize("value", ["a\nb", "漢字"])
    def test_a_header_that_cannot_be_sent_is_our_fault(self, value):
        """A header with a line break or beyond Latin-1 is reported, not raised."""
        with serving() as server, client(headers={"x-key": value}) as http_client:
            answer = http_client.request("POST", server.url, b"")
        assert answer.is_permanent

    def test_a_certificate_that_is_not_trusted_is_our_fault(self, certificate):
        """A server whose certificate nobody vouches for is not spoken to, nor asked again and again."""
        with serving(tls=_tls(certificate)) as server, client() as http_client:
            answer = http_client.request("POST", server.url, b"secret")
        assert answer.is_permanent
        assert "isn't trusted: self-signed certificate" in answer.fault
        assert server.requests == []

    def test_a_certificate_that_we_are_told_to_trust_is_trusted(self, certificate, monkeypatch):
        """A file of trusted certificates is used, and goes before the variable of the requests library."""
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", ssl.get_default_verify_paths().cafile or "/nowhere.pem")
        with serving(tls=_tls(certificate)) as server, client(verify=str(certificate[0])) as http_client:
            assert http_client.request("POST", server.url, b"body").status == 200

    def test_our_own_certificate_is_shown(self, certificate):
        """A server that asks for a client certificate gets it, and refuses requests without one."""
        context = _tls(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificate[0])
        trusted, own = str(certificate[0]), (str(certificate[0]), str(certificate[1]))
        with serving(tls=context) as server:
            with client(verify=trusted, cert=own) as http_client:
                assert http_client.request("POST", server.url, b"body").status == 200
            with client(verify=trusted) as http_client:
                assert http_client.request("POST", server.url, b"body").status == 0

    def test_a_file_of_certificates_that_is_missing_is_our_fault(self, certificate):
        """A certificate file that is gone is reported, not raised."""
        with serving(tls=_tls(certificate)) as server, client(verify="/nowhere/ca.pem") as http_client:
            assert http_client.request("POST", server.url, b"").is_permanent

    def test_a_handshake_that_breaks_off_is_a_passing_fault(self):
        """A server that goes away during the TLS handshake is tried again."""
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def accept_and_close():
                connection, _ = listener.accept()
                connection.recv(10)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
                connection.close()

            thread = threading.Thread(target=accept_and_close)
            thread.start()
            with client() as http_client:
                answer = http_client.request("POST", f"https://127.0.0.1:{listener.getsockname()[1]}/", b"")
            thread.join()
        assert (answer.status, answer.is_permanent) == (0, False), answer.fault


def _tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestFork:
    """A forked child."""

    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
    def test_a_forked_child_opens_its_own_connection(self):
        """Parent and child never write into one connection."""
        with serving() as server, client() as http_client:
            assert http_client.request("POST", server.url, b"parent").status == 200
            child = os.fork()
            if child == 0:
                status = http_client.request("POST", server.url, b"child").status
                os._exit(0 if status == 200 else 1)
            assert os.waitpid(child, 0)[1] == 0
            assert http_client.request("POST", server.url, b"parent").status == 200
        assert len(server.peers) == 2
