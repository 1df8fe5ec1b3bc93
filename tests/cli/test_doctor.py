"""`otel-rollout doctor` as a user meets it: what it prints, and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from otel_rollout.cli.main import main
from tests.cli.terminal import Terminal
from tests.faults.faulty_receiver import Fault, FaultyReceiver

COMMAND = [sys.executable, "-m", "otel_rollout.cli", "doctor"]


@pytest.fixture
def receiver(monkeypatch):
    """A receiver that takes everything, and the environment that leads to it."""
    with FaultyReceiver() as receiver:
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        yield receiver


class TestExitCodes:
    """0, 1 and 2."""

    def test_all_is_well(self, receiver, capsys):
        """A backend that takes the trajectory is well, also where it can't be asked for it."""
        assert main(["doctor"]) == 0
        shown = capsys.readouterr().out
        assert f"✓ otlp, {receiver.url}/v1/traces\n      took a trajectory of 2 spans\n" in shown
        assert "not read back: OTLP has no way to ask a receiver what it has" in shown
        assert receiver.stored.total() == 2

    def test_a_backend_failed(self, receiver, capsys):
        """A backend that turns us away is named with what it said."""
        receiver.steady = Fault(status=403)

        assert main(["doctor"]) == 1
        assert f"auth or configuration error: HTTP 403 from {receiver.url}/v1/traces" in capsys.readouterr().out

    def test_one_of_two_backends_failed(self, receiver, capsys, monkeypatch):
        """Each is tried, whatever came of the other."""
        monkeypatch.setenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS", "")

        assert main(["doctor", "--backend", "otlp,mlfow"]) == 2
        shown = capsys.readouterr().out
        assert "✓ otlp" in shown
        assert "✗ mlfow\n      no exporter is called 'mlfow'" in shown

    @pytest.mark.parametrize(
        ("variable", "value", "said"),
        [
            ("OTEL_ROLLOUT_MAX_BATCH_BYTES", "lots", "✗ OTEL_ROLLOUT_MAX_BATCH_BYTES='lots': this should be"),
            ("OTEL_ROLLOUT_RUNID", "7", "✗ OTEL_ROLLOUT_RUNID: nothing reads this variable; did you mean"),
            ("OTEL_TRACES_SAMPLER", "nobody", "✗ OTEL_TRACES_SAMPLER='nobody' is ignored: there is no such sampler"),
            ("OTEL_SDK_DISABLED", "true", "✗ OTEL_SDK_DISABLED is true: tracing is off"),
            ("OTEL_TRACES_EXPORTER", "none,otlp", "✗ OTEL_TRACES_EXPORTER: 'none' turns tracing off and stands alone"),
        ],
    )
    def test_a_setting_needs_a_change(self, receiver, capsys, monkeypatch, variable, value, said):
        """What `init` would raise, and what nothing reads, stands in the report with a mark."""
        monkeypatch.setenv(variable, value)

        assert main(["doctor", "--offline"]) == 2
        assert said in capsys.readouterr().out

    def test_a_spool_that_can_not_be_written_to(self, receiver, capsys, monkeypatch):
        """A spool that `init` would refuse is refused here, with the same text."""
        monkeypatch.setenv("OTEL_ROLLOUT_SPOOL", "/proc/spool")

        assert main(["doctor"]) == 2
        assert "✗ spool='/proc/spool' (OTEL_ROLLOUT_SPOOL): this should be a folder" in capsys.readouterr().out
        assert receiver.requests == 0

    @pytest.mark.parametrize("is_there", [True, False])
    def test_a_spool_is_left_as_it_was(self, capsys, monkeypatch, tmp_path, is_there):
        """No folder is left behind by looking whether the spool can be written to; what was there stays."""
        spool = tmp_path / "a" / "spool"
        if is_there:
            (spool / "weave").mkdir(parents=True)
        monkeypatch.setenv("OTEL_ROLLOUT_SPOOL", str(spool))

        assert main(["doctor", "--offline", "--backend", "otlp,weave"]) == 0
        left = [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))]
        assert left == (["a", "a/spool", "a/spool/weave"] if is_there else [])

    def test_a_spool_that_is_a_file(self, capsys, monkeypatch, tmp_path):
        """A spool that is no folder is refused without a request too."""
        (tmp_path / "spool").touch()
        monkeypatch.setenv("OTEL_ROLLOUT_SPOOL", str(tmp_path / "spool"))

        assert main(["doctor", "--offline", "--backend", "otlp"]) == 2
        assert "(OTEL_ROLLOUT_SPOOL): this should be a folder" in capsys.readouterr().out

    def test_no_backend_is_asked_for(self, capsys):
        """Without a backend tracing is off, which is no fault."""
        assert main(["doctor"]) == 0
        assert "none: tracing is off unless `init` is given a backend" in capsys.readouterr().out


class TestOutput:
    """What it prints."""

    def test_offline_sends_nothing(self, receiver, capsys):
        """With --offline the backends are named with their addresses, and left alone."""
        assert main(["doctor", "--offline"]) == 0
        assert f"  - otlp, {receiver.url}/v1/traces\n      not tried\n" in capsys.readouterr().out
        assert receiver.requests == 0

    @pytest.mark.parametrize(
        ("name", "said"), [("mlfow", "did you mean 'mlflow'?"), ("mlflow", "MLFLOW_TRACKING_URI='htp://a'")]
    )
    def test_offline_says_what_init_would_refuse(self, capsys, monkeypatch, name, said):
        """A name that nobody has, or an address that can't work, needs no backend to be found."""
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "htp://a")

        assert main(["doctor", "--offline", "--backend", name]) == 2
        assert said in capsys.readouterr().out

    def test_each_setting_has_a_value_and_an_origin(self, capsys, monkeypatch):
        """A setting that a variable gives names it, the others say that they are defaults."""
        monkeypatch.setenv("OTEL_ROLLOUT_MAX_QUEUE_BYTES", "64MiB")

        main(["doctor", "--offline"])

        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["max_queue_bytes", "64", "MiB", "OTEL_ROLLOUT_MAX_QUEUE_BYTES"] in rows
        assert ["max_batch_bytes", "4", "MiB", "default"] in rows

    def test_no_secret_is_printed(self, receiver, capsys, monkeypatch):
        """Neither the text nor the JSON has a key, a token or a password in it."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret")
        monkeypatch.setenv("WANDB_API_KEY", "s3cret")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "htp://me:s3cret@127.0.0.1:9/db?password=s3cret")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{receiver.url}/v1/traces?token=s3cret")

        for more in ([], ["--json"]):
            main(["doctor", "--backend", "otlp,mlflow", *more])
            shown = capsys.readouterr()
            assert "s3cret" not in shown.out + shown.err

    def test_json(self, receiver, capsys):
        """`--json` has all of it in one object."""
        assert main(["doctor", "--json"]) == 0

        found = json.loads(capsys.readouterr().out)

        assert found["exit_code"] == 0
        assert found["asked"] == ["otlp"]
        (backend,) = found["backends"]
        assert (backend["name"], backend["result"]) == ("otlp", "ok")
        assert {"name": "max_batch_spans", "value": "512", "origin": "default", "fault": ""} in found["environment"][
            "settings"
        ]
        assert "otlp" in [exporter["name"] for exporter in found["installation"]["exporters"]]

    def test_the_consoles_tree_is_not_in_the_json(self, capsys):
        """The console exporter prints on standard output, where the JSON stands alone."""
        assert main(["doctor", "--json", "--backend", "console"]) == 0

        shown = capsys.readouterr()
        assert json.loads(shown.out)["backends"][0]["result"] == "ok"
        assert "otel-rollout doctor" in shown.err

    def test_needs_no_extra(self):
        """It runs without rich, zstandard and the backends' packages: it is there to say what is missing."""
        probe = (
            "import sys; sys.modules.update(dict.fromkeys(['rich', 'zstandard', 'mlflow', 'grpc']));"
            "from otel_rollout.cli.main import main; sys.exit(main(['doctor', '--offline']))"
        )
        done = subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Settings" in done.stdout

    @pytest.mark.parametrize(("variables", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
    def test_colour_is_for_terminals(self, variables, is_coloured):
        """On a terminal marks have a colour, unless NO_COLOR is set; a pipe never sees an escape sequence."""
        command = [*COMMAND, "--offline"]
        terminal = Terminal(command, TERM="xterm", **variables)
        assert terminal.wait() == 0
        piped = subprocess.run(command, check=False, capture_output=True, timeout=300)

        assert ("\x1b[1m" in terminal.screen) is is_coloured
        assert b"\x1b" not in piped.stdout
