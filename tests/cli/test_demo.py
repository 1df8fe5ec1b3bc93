"""`otel-rollout demo` as a user meets it: what it prints, and its exit code."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from otel_rollout.cli.main import main
from otel_rollout.installing import install_line
from tests.cli.terminal import LIMIT, Terminal

COMMAND = [sys.executable, "-m", "otel_rollout.cli", "demo"]
SMALL = ["--steps", "1", "--samples", "4"]


@pytest.fixture(autouse=True)
def _needs_the_extra():
    pytest.importorskip("rich")
    pytest.importorskip("tokenizers")


def run(*arguments: str, folder: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, **environ},
        cwd=folder,
    )


class TestPlainText:
    """Without a terminal."""

    def test_the_commands_that_read_a_folder_work(self, tmp_path):
        """What it says to type next works, also with a validation pass and an earlier demo in the folder."""
        pytest.importorskip("zstandard")
        for _ in range(2):
            done = run("--backend", "file", *SMALL, "--rollouts", "1", folder=tmp_path)
        commands = [line.split() for line in done.stdout.splitlines() if "rollout-traces --" in line]
        said = {name: words for words in commands for name in ("ls", "show") if name in words}
        assert set(said) == {"ls", "show"}
        for name, words in said.items():
            arguments = words[words.index(name) :]
            shown = subprocess.run(
                [*COMMAND[:-1], *arguments], check=False, capture_output=True, text=True, timeout=LIMIT, cwd=tmp_path
            )
            assert (shown.returncode, shown.stderr) == (0, "")

    def test_shows_everything_in_plain_lines(self):
        """Progress, a tree, the group's table, the delivery and where to look next; no control characters."""
        done = run("--backend", "console", *SMALL, PYTHONWARNINGS="error")
        assert (done.returncode, done.stderr) == (0, "")
        headings = re.findall(r"^(\S.*?)(?:  |$)", done.stdout, re.MULTILINE)
        assert headings[:4] == ["otel-rollout demo", "to this screen", "step 1", "validation"]
        assert headings[4:] == ["One trajectory", "Its group", "Delivery", "Where to look next"]
        assert "├─ AgentLoop.run" in done.stdout
        assert "Policy.generate" in done.stdout
        assert "\x1b" not in done.stdout

    @pytest.mark.slow
    def test_without_a_backend(self):
        """`--backend none` runs untraced, and says so."""
        done = run("--backend", "none", *SMALL)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[1] == "tracing is off"
        assert "It was not traced" in done.stdout
        assert "Where to look next" not in done.stdout

    @pytest.mark.slow
    def test_the_default_run_ends_in_every_way(self):
        """Two steps of 64 trajectories and 16 validations, with every way to end among them."""
        # Few at a time, so that on a busy machine too a deadline ends only those that stall.
        done = run("--backend", "console", "--concurrency", "4")
        assert done.returncode == 0
        for outcome in ("truncated", "cancelled", "error"):
            assert re.search(rf"^step \d .*\b[1-9]\d* {outcome}", done.stdout, re.MULTILINE)
        assert "ToolError" in done.stdout

    @pytest.mark.slow
    def test_a_pass_is_one_line(self):
        """However narrow the environment says that the screen is, for whoever reads it line by line."""
        done = run("--backend", "console", *SMALL, COLUMNS="40")
        assert re.search(r"^step 1 .* trajectories in .* s, reward \d", done.stdout, re.MULTILINE)

    @pytest.mark.slow
    def test_survives_an_output_without_unicode(self):
        """Where the output takes ASCII only, other characters are replaced."""
        done = run("--backend", "console", *SMALL, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr


class TestTerminal:
    """With a terminal."""

    def test_has_a_progress_bar_and_colours(self):
        """The bar runs to the end of each pass."""
        terminal = Terminal(COMMAND, "--backend", "console", *SMALL)
        assert terminal.wait() == 0
        assert "━" in terminal.screen
        assert "16/16" in terminal.screen
        assert "\x1b[1;31m" in terminal.screen or "\x1b[36m" in terminal.screen

    @pytest.mark.slow
    def test_respects_no_color(self):
        """With NO_COLOR there are no colours."""
        terminal = Terminal(COMMAND, "--backend", "console", *SMALL, NO_COLOR="1")
        assert terminal.wait() == 0
        assert re.search("\x1b\\[[0-9;]*3[0-9]", terminal.screen) is None

    def test_ctrl_c_delivers_what_was_traced(self):
        """An interrupt ends the rollout, flushes, says so, and exits with 130."""
        terminal = Terminal(COMMAND, "--backend", "console", "--steps", "1000")
        terminal.read_until("step 1")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == 130
        delivered, recorded = re.search(
            r"interrupted; .*: ([\d,]+) of ([\d,]+) spans delivered", terminal.screen
        ).groups()
        assert delivered == recorded
        assert "Traceback" not in terminal.screen


class TestExitCode:
    """What a script learns."""

    def test_an_unreachable_backend_is_1_and_is_said(self):
        """Nothing hangs: the demo says for what it waits, and after the timeout what was lost, and where to."""
        # Bound, and so nobody else's; nobody listens.
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
            done = run(*SMALL, "--timeout", "4", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
        assert done.returncode == 1
        waiting = r"^waiting up to 1 s for otlp to take \d+ spans \(.*connection refused"
        assert re.search(waiting, done.stdout, re.MULTILINE)
        assert re.search(r"NOT DELIVERED +otlp did not take \d+ spans in time", done.stdout)
        assert f"Nothing has arrived at otlp, {endpoint}" in done.stdout
        row = next(line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["otlp"])
        assert (row[2], row[1]) == ("0", row[3]), "the table has the final counts"
        assert "StepCollector" not in done.stdout + done.stderr

    def test_an_unknown_backend_is_2(self):
        """The message lists what is installed."""
        done = run("--backend", "no-such-backend")
        assert done.returncode == 2
        assert "no-such-backend" in done.stderr
        assert "otlp" in done.stderr

    @pytest.mark.parametrize("missing", ["rich", "tokenizers"])
    def test_a_missing_extra_is_2_with_the_line_that_mends_it(self, monkeypatch, capsys, missing):
        """One line, which can be copied."""
        find_spec = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name))
        assert main(["demo"]) == 2
        assert capsys.readouterr().err == f"otel-rollout demo: this needs {missing}: {install_line('demo')}\n"
