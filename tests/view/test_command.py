"""`otel-rollout view` as a user meets it: a process, its address, its end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

import otel_rollout
from otel_rollout import read_trajectories
from otel_rollout.cli.main import main
from otel_rollout.installing import install_line
from otel_rollout.look.view import data_name, server
from otel_rollout.look.view.server import DEFAULT_PORT
from otel_rollout_file import FileSpanExporter
from tests.trace_folder.recordings import make_trajectory, write_folder
from tests.view.viewer import Viewer, wait_for

COMMAND = [sys.executable, "-m", "otel_rollout.cli", "view"]


@contextmanager
def view(
    *arguments: object,
    environment: dict[str, str] | None = None,
    command: Sequence[str] = COMMAND,
    folder: Path | None = None,
):
    """Run the command; gives the process, its address and all that it printed."""
    process = subprocess.Popen(
        [*command, *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        printed = ""
        for line in process.stdout:
            printed += line
            if "Ctrl-C" in line:
                break
        address = re.search(r"^    (http\S+)$", printed, re.MULTILINE)
        assert address, printed + process.stderr.read()
        yield process, address[1], printed
    finally:
        process.kill()
        process.communicate()


def token_of(address: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {address.partition('token=')[2]}"}


class TestAddress:
    """The address that the command prints."""

    def test_it_prints_an_address_that_opens_the_pages(self, folder):
        """The printed address has the token, and leads to the run of the folder."""
        with view(folder, "--port", 0) as (_, address, printed):
            assert address.startswith("http://127.0.0.1:")
            assert str(folder) in printed
            with httpx.Client(trust_env=False, follow_redirects=True) as browser:
                page = browser.get(address)
                assert page.status_code == 200
                assert "token" not in str(page.url)
                assert browser.get(page.url.join("api/run")).json()["folders"] == [str(folder)]

    def test_the_next_free_port_is_taken(self, monkeypatch):
        """If the default port is taken, the next one is; a port that was asked for must be free."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            monkeypatch.setattr(server, "DEFAULT_PORT", port)
            with server.listen("127.0.0.1", None) as listener:
                assert port < listener.getsockname()[1] < port + server.PORTS_TO_TRY
            with pytest.raises(Exception, match=f"port {port} of 127.0.0.1"):
                server.listen("127.0.0.1", port)

    def test_help_names_the_default_port(self, capsys):
        """The default port of the help is that of the server."""
        with pytest.raises(SystemExit):
            main(["view", "--help"])
        assert f"default: {DEFAULT_PORT}" in capsys.readouterr().out

    def test_beyond_loopback_it_says_so(self, folder):
        """On all interfaces others can reach it, by the address that is printed, and the token is needed."""
        with view(folder, "--port", 0, "--host", "0.0.0.0", "--no-browser") as (_, address, printed):
            assert "Other machines reach it too" in printed
            port = address.rpartition(":")[2].partition("/")[0]
            assert httpx.get(f"http://127.0.0.1:{port}/api/run", trust_env=False).status_code == 401
            with httpx.Client(trust_env=False, follow_redirects=True) as browser:
                page = browser.get(address)
                assert browser.get(page.url.join("api/run")).status_code == 200

    def test_a_host_that_is_none_is_an_error(self, folder, capsys):
        """An interface that this machine doesn't have is a sentence, and exit code 2."""
        assert main(["view", str(folder), "--host", "192.0.2.1"]) == 2
        assert "192.0.2.1" in capsys.readouterr().err

    def test_the_browser_gets_a_token_that_is_good_once(self, folder, tmp_path):
        """The browser's command line has a token of its own, which opens the pages once."""
        script = tmp_path / "browser"
        script.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/asked.new; mv {tmp_path}/asked.new {tmp_path}/asked\n')
        script.chmod(0o755)
        with view(folder, "--port", 0, environment={"BROWSER": f"{script} %s"}) as (_, address, _printed):
            asked = wait_for(lambda: (tmp_path / "asked").exists() and (tmp_path / "asked").read_text().strip())
            assert asked.partition("?")[0] == address.partition("?")[0]
            assert asked != address
            codes = [httpx.get(asked, trust_env=False).status_code for _ in range(2)]
        assert codes == [303, 401]

    def test_without_a_display_no_browser_is_opened(self, monkeypatch):
        """A machine without a display opens nothing, not even a browser for terminals."""
        for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(server.webbrowser, "open", lambda url: pytest.fail("opened"))
        assert server.open_browser("http://127.0.0.1") is False


class TestDemo:
    """`otel-rollout demo --view`."""

    def test_it_opens_what_it_has_traced(self, tmp_path):
        """The demo traces into the folder, whatever the backend, and then serves it until Ctrl-C."""
        pytest.importorskip("tokenizers")
        command = [*COMMAND[:-1], "demo", "--backend", "console", "--steps", "1", "--samples", "2", "--view"]
        with view(command=command, folder=tmp_path) as (process, address, printed):
            assert f"otel-rollout view {tmp_path / 'rollout-traces'}" in printed
            base = address.partition("?")[0]
            run = httpx.get(f"{base}api/run", headers=token_of(address), trust_env=False).json()
            assert [(step["step"], step["validate"]) for step in run["steps"]] == [(1, False), (1, True)]
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 130


class TestEnd:
    """The end of the command."""

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_it_at_once(self, folder, number):
        """Ctrl-C ends the server within moments while pages wait for changes: exit code 130, nothing on stderr."""
        with view(folder, "--port", 0) as (process, address, _):
            base = address.partition("?")[0]
            connected = threading.Event()

            def wait_for_changes() -> None:
                with httpx.stream("GET", f"{base}api/changes", headers=token_of(address), trust_env=False) as answer:
                    connected.set()
                    try:
                        for _ in answer.iter_bytes():
                            pass
                    except httpx.HTTPError:
                        pass

            waiting = threading.Thread(target=wait_for_changes)
            waiting.start()
            assert connected.wait(120)
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
            waiting.join(120)
        assert (process.returncode, errors) == (130 if number == signal.SIGINT else -signal.SIGTERM, "")


class TestOptions:
    """Options that don't go together, and what is missing."""

    def test_a_missing_extra_is_named(self, folder, monkeypatch, capsys):
        """Without the web server the message is the command that installs it."""
        import importlib.util

        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
        assert main(["view", str(folder)]) == 2
        assert f"this needs uvicorn: {install_line('view')}" in capsys.readouterr().err

    def test_a_file_of_one_trajectory(self, folder, tmp_path, capsys):
        """What `show --json` prints is a run of one trajectory."""
        assert main(["show", str(folder), "--step", "2", "--sample", "0", "--rollout", "0", "--json"]) == 0
        (tmp_path / "one.jsonl").write_text(capsys.readouterr().out)
        assert main(["view", str(tmp_path / "one.jsonl"), "--export", str(tmp_path / "out")]) == 0
        assert "1 step, 1 trajectory" in capsys.readouterr().out

    def test_one_trajectory(self, folder, tmp_path, capsys):
        """`--trace` exports the pages of one trajectory, which name the run's folder."""
        one = next(read_trajectories(folder, step=2, sample_index=0, rollout_n=0))
        out = tmp_path / "out"
        assert main(["view", str(folder), "--trace", one.trace_id[:12], "--export", str(out)]) == 0
        assert "1 step, 1 trajectory, " in capsys.readouterr().out
        assert json.loads((out / "otel-rollout-export.json").read_text())["folders"] == [str(folder)]
        assert (out / "data" / f"{data_name(f'trajectory/{one.trace_id}')}.js").is_file()
        other = [each.trace_id for each in read_trajectories(folder) if each.trace_id != one.trace_id]
        assert not [name for name in other if list((out / "data").glob(f"*{name}*"))]

    def test_replaced_secrets_are_counted(self, tmp_path, capsys):
        """What redaction replaced in an export is part of its last line."""
        otel_rollout.init("p", "exp", backend=FileSpanExporter(folder=tmp_path / "traces"))
        with otel_rollout.rollout_trace_attr(sample_index=0, step=1, rollout_n=0):
            otel_rollout.annotate(input={"password": "hunter2hunter2"})
        assert otel_rollout.shutdown(60)
        assert main(["view", str(tmp_path / "traces"), "--export", str(tmp_path / "out")]) == 0
        assert "1 trajectory, 1 secret replaced, " in capsys.readouterr().out

    def test_a_trace_is_one_trajectory(self, tmp_path, capsys):
        """An id that no trajectory has, or that several begin with, is a sentence; nothing is written."""
        write_folder(tmp_path / "traces", *(make_trajectory(7, 12, rollout) for rollout in range(17)))
        # Of 17 ids, two begin with the same of 16 digits.
        digits = Counter(each.trace_id[0] for each in read_trajectories(tmp_path / "traces"))
        for trace, message in ((digits.most_common(1)[0][0], "several trajectories"), ("f" * 32, "no trajectory")):
            assert main(["view", str(tmp_path / "traces"), "--trace", trace, "--export", str(tmp_path / "out")]) == 2
            assert message in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("options", [["--experiment", "exp"], ["--run", "ru"]])
    def test_one_experiment_or_run(self, folder, tmp_path, capsys, options):
        """The pages are those of the experiment, or of the run, alone."""
        counts = []
        for given in ([], options):
            assert main(["view", str(folder), "--export", str(tmp_path / "out"), *given]) == 0
            counts.append(capsys.readouterr().out.split(",")[:2])
        assert counts[0] == counts[1]
        option, value = options
        assert main(["view", str(folder), "--export", str(tmp_path / "none"), option, f"{value}x"]) == 2
        assert capsys.readouterr().err == "otel-rollout view: no step matches\n"

    def test_a_step_is_for_an_export(self, folder, capsys):
        """`--step` without `--export` is refused with a hint."""
        assert main(["view", str(folder), "--step", "1"]) == 2
        assert "#/step/N" in capsys.readouterr().err

    def test_an_export_is_written(self, folder, tmp_path, capsys):
        """`--export` writes the pages, and prints their address."""
        assert main(["view", str(folder), "--export", str(tmp_path / "out"), "--step", "2"]) == 0
        printed = capsys.readouterr().out
        assert "1 step, 4 trajectories" in printed
        address = (tmp_path / "out" / "index.html").as_uri()
        assert address in printed


PREFIX = "/user/me/proxy/8642"


class Proxy(BaseHTTPRequestHandler):
    """A proxy as Jupyter's: it takes a prefix off the path, and hands on the rest, the Host header too."""

    target: str

    def do_GET(self):
        """Hand on one request."""
        connection = HTTPConnection(self.target, timeout=120)
        try:
            connection.request("GET", self.path.removeprefix(PREFIX), headers=dict(self.headers))
            answer = connection.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() != "transfer-encoding":
                    self.send_header(name, value)
            self.end_headers()
            while data := answer.read1():
                self.wfile.write(data)
        except OSError:
            # One of the ends has gone.
            pass
        finally:
            connection.close()

    def log_message(self, *unused):
        """Log nothing."""


class ProxyServer(ThreadingHTTPServer):
    """Serves proxies."""

    daemon_threads = True

    def handle_error(self, *unused):
        """A browser that goes away is no error."""


@contextmanager
def proxy(target: str):
    """Run such a proxy; gives its address."""
    handler = type("Handler", (Proxy,), {"target": target.removeprefix("http://")})
    with ProxyServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}{PREFIX}/"
        finally:
            running.shutdown()
            thread.join(120)


class TestPrefix:
    """Behind a proxy with a path prefix."""

    def test_the_redirect_keeps_the_prefix(self, viewer: Viewer):
        """The visit with the token leads back under the prefix, and the cookie belongs to it."""
        from tests.view.viewer import TOKEN

        with proxy(viewer.address) as address, httpx.Client(trust_env=False, follow_redirects=True) as browser:
            page = browser.get(f"{address}?token={TOKEN}")
            assert str(page.url) == address
            [cookie] = browser.cookies.jar
            assert cookie.path == PREFIX
            assert browser.get(f"{address}api/run").status_code == 200

    def test_the_pages_work_under_a_prefix(self, browser, viewer: Viewer, tmp_path: Path):
        """Every address of the pages is relative: under a prefix they find their modules and data."""
        from tests.servers.browser import wait_for_words
        from tests.view.viewer import TOKEN

        with proxy(viewer.address) as address, browser.open(f"{address}?token={TOKEN}#/step/1") as page:
            wait_for_words(page, "Step 1", "Mean reward", picture=tmp_path / "page.png", seconds=120)
            assert page.url == f"{address}#/step/1"
