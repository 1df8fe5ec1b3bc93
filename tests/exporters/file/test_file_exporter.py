"""The `file` exporter: its settings, what it says of faults, and that other tools read what it writes."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from otel_rollout import init, read_trajectories, rollout_trace_attr, rollout_trace_op, shutdown, stats
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.export.outcome import DELIVERED, Verdict
from otel_rollout.guard import internal_errors
from otel_rollout.installing import install_line
from otel_rollout_file import FileSpanExporter


def spans_of(folder):
    """The spans of all trajectories, the roots last."""
    return [span for each in read_trajectories(folder) for span in each.spans]


def ids(spans):
    return sorted(span.context.span_id for span in spans)


@rollout_trace_op(name="generate", kind="LLM")
def generate(prompt):
    return prompt.upper()


class TestSettings:
    """Arguments, variables and defaults."""

    def test_defaults(self, monkeypatch, tmp_path):
        """A folder in the working folder, files of 1 GiB, no bound."""
        monkeypatch.chdir(tmp_path)
        settings = FileSpanExporter().settings
        assert settings == (tmp_path / "rollout-traces", 2**30, None)

    def test_variables(self, monkeypatch, tmp_path):
        """Each has its variable; sizes may have units."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path / "x"))
        monkeypatch.setenv("OTEL_ROLLOUT_FILE_MAX_BYTES", "512MiB")
        monkeypatch.setenv("OTEL_ROLLOUT_DIR_MAX_BYTES", "50GB")
        assert FileSpanExporter().settings == (tmp_path / "x", 2**29, 50 * 10**9)

    def test_arguments_win(self, monkeypatch, tmp_path):
        """An argument counts more than a variable."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", "elsewhere")
        monkeypatch.setenv("OTEL_ROLLOUT_FILE_MAX_BYTES", "1")
        monkeypatch.setenv("OTEL_ROLLOUT_DIR_MAX_BYTES", "1")
        exporter = FileSpanExporter(folder=tmp_path, file_max_bytes=7, max_bytes="1MiB")
        assert exporter.settings == (tmp_path, 7, 2**20)

    def test_the_folder_does_not_move_with_the_working_folder(self, monkeypatch, tmp_path, make_trajectory):
        """A trainer that changes its working folder writes where it began."""
        monkeypatch.chdir(tmp_path)
        exporter = FileSpanExporter()
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        exporter.send(make_trajectory())
        exporter.shutdown()
        assert len(spans_of(tmp_path / "rollout-traces")) == 3

    @pytest.mark.parametrize("variable", ["OTEL_ROLLOUT_FILE_MAX_BYTES", "OTEL_ROLLOUT_DIR_MAX_BYTES"])
    def test_a_size_that_is_none_is_refused(self, monkeypatch, variable):
        """`init` names the variable, its value, and what would be right; another processor's exporter never raises."""
        monkeypatch.setenv(variable, "many")
        with pytest.raises(ConfigurationError, match=f"{variable}='many': .*256MiB"):
            init("project", "experiment", "file")
        assert FileSpanExporter().settings[1:] == (2**30, None)

    def test_a_missing_extra_is_refused_by_init(self, monkeypatch, tmp_path):
        """With the line that mends it; and under other processors the reason is in the outcome."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path))
        monkeypatch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(MissingExtraError, match=r"pip install .*\[file\]'"):
            init("project", "experiment", "file")

    def test_a_missing_extra_is_a_reason(self, monkeypatch, tmp_path, make_trajectory):
        """Without `check`, the outcome has the pip line."""
        monkeypatch.setitem(sys.modules, "zstandard", None)
        outcome = FileSpanExporter(folder=tmp_path).send(make_trajectory())
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert install_line("file") in outcome.reason


class TestTracing:
    """The exporter as a backend."""

    def test_traces_of_a_program_are_in_the_folder(self, monkeypatch, tmp_path):
        """A trajectory with its ops, by step, validation apart, an op outside any trajectory without a step."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path))
        init("project", "experiment", "file")
        for step, validate in ((1, False), (2, True)):
            with rollout_trace_attr(step=step, sample_index=3, rollout_n=0, validate=validate):
                generate("漢字")
        generate("alone")
        assert shutdown(30)
        assert stats().exporters["file"].delivered == 5
        assert sorted(path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.otlp.zst")) == [
            "no-step",
            "steps=000000-000099",
            "validate/steps=000000-000099",
        ]
        child, root = spans_of(tmp_path / "steps=000000-000099")
        assert (child.name, root.name) == ("generate", "rollout_trace")
        assert child.parent.span_id == root.context.span_id
        assert child.attributes["input.value"] == "漢字"
        assert child.attributes["output.value"] == "漢字"
        assert root.attributes["rollout.status"] == "completed"
        assert list(tmp_path.glob("open/*")) == []

    def test_a_forked_worker_writes_its_own_file(self, monkeypatch, tmp_path):
        """A child of a traced process traces into the same folder; both are whole."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path))
        init("project", "experiment", "file")
        with rollout_trace_attr(step=1, sample_index=0, rollout_n=0):
            generate("parent")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with rollout_trace_attr(step=1, sample_index=1, rollout_n=0):
                    generate("child")
                code = 0 if shutdown(30) else 2
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert shutdown(30)
        assert len(list(tmp_path.rglob("*.otlp.zst"))) == 2
        outputs = {span.attributes.get("output.value") for span in spans_of(tmp_path) if span.name == "generate"}
        assert outputs == {"PARENT", "CHILD"}

    def test_a_killed_program_leaves_what_had_ended(self, tmp_path):
        """SIGKILL takes what was still queued; what was delivered stays, running trajectories included."""
        program = """
import os, sys
from otel_rollout import flush, init, rollout_trace_attr, rollout_trace_op
@rollout_trace_op
def generate(x):
    return x
init("project", "experiment", "file")
with rollout_trace_attr(step=1, sample_index=0, rollout_n=0):
    generate(1)
with rollout_trace_attr(step=1, sample_index=1, rollout_n=0):
    generate(2)
    assert flush(30)
    os.kill(os.getpid(), 9)
"""
        environment = {**os.environ, "OTEL_ROLLOUT_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=60, check=False)
        assert done.returncode == -9
        assert [span.name for span in spans_of(tmp_path / "steps=000000-000099")] == ["generate", "rollout_trace"]
        [span] = spans_of(tmp_path / "open")
        assert span.attributes["output.value"] == "2"


class TestFaults:
    """The outcomes of disk errors, and delivery after them."""

    def test_a_full_disk_passes(self, small_disk, make_trajectory):
        """Without space an attempt is to be repeated; repeated with space, all is there once."""
        disk = small_disk(2**20)
        ballast = disk / "ballast"
        ballast.write_bytes(b"\0" * 900_000)
        exporter = FileSpanExporter(folder=disk / "traces")
        trajectories = [make_trajectory(children=6, characters=20_000) for _ in range(3)]
        batch = [span for spans in trajectories for span in spans]
        outcome = exporter.send(batch)
        assert outcome.verdict is Verdict.RETRY
        assert "No space left on device: free space" in outcome.reason
        ballast.unlink()
        # As delivery does it where a batch fails again and again: in halves.
        for half in (batch[:7], batch[7:]):
            assert exporter.send(half) == DELIVERED
        exporter.shutdown()
        assert ids(spans_of(exporter.settings.folder)) == ids(batch)

    @pytest.mark.parametrize("place", ["disk", "disk/below"])
    def test_a_disk_that_is_read_only_is_denied(self, small_disk, make_trajectory, tmp_path, place):
        """Somebody has to mend that; the reason says where and what."""
        small_disk("1m,ro")
        outcome = FileSpanExporter(folder=tmp_path / place).send(make_trajectory())
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert str(tmp_path / place) in outcome.reason
        assert "OTEL_ROLLOUT_DIR" in outcome.reason

    def test_a_folder_without_permission_is_denied(self, tmp_path, make_trajectory):
        """As for a disk that is read-only; tried as another user where root runs the tests."""
        tmp_path.chmod(0o500)
        exporter = FileSpanExporter(folder=tmp_path / "x")
        pid = os.fork()
        if pid == 0:
            verdict = None
            try:
                if os.geteuid() == 0:
                    os.setuid(65534)
                verdict = exporter.send(make_trajectory()).verdict
            finally:
                os._exit(0 if verdict is Verdict.CONFIGURATION_ERROR else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert not (tmp_path / "x").exists()

    @pytest.mark.parametrize("below", ["", "/below", "/below/it"])
    def test_a_file_in_the_folders_place_is_denied(self, tmp_path, make_trajectory, below):
        """Also where it is higher up."""
        (tmp_path / "file").write_text("")
        outcome = FileSpanExporter(folder=f"{tmp_path}/file{below}").send(make_trajectory())
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert "must be a folder" in outcome.reason

    def test_a_span_that_cannot_be_encoded_is_refused_alone(self, tmp_path, make_trajectory):
        """Delivery halves the batch until it is found; the others are stored once."""
        nested = ()
        for _ in range(2000):
            nested = (nested,)
        spans = make_trajectory(children=3)
        odd = make_trajectory(children=0)
        odd[0]._attributes = {"x": nested}
        exporter = FileSpanExporter(folder=tmp_path)
        outcome = exporter.send([*spans[:2], *odd, *spans[2:]])
        assert outcome.verdict is Verdict.REFUSED
        assert exporter.send([*spans[:2]]) == DELIVERED
        assert exporter.send(odd).verdict is Verdict.REFUSED
        assert exporter.send(spans[2:]) == DELIVERED
        exporter.shutdown()
        assert ids(spans_of(tmp_path)) == ids(spans)

    def test_a_fault_in_counting_costs_no_span(self, monkeypatch, tmp_path, make_trajectory):
        """If the durations for `top` can't be counted, the spans are delivered, and our fault is counted."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
        exporter = FileSpanExporter(folder=tmp_path)
        spans = make_trajectory()
        with mock.patch("otel_rollout.folder.op_durations.OpDurations.add", side_effect=ZeroDivisionError):
            assert exporter.send(spans) == DELIVERED
        exporter.shutdown()
        assert ids(spans_of(tmp_path)) == ids(spans)
        assert internal_errors == {"counting the durations of ops": 1}

    def test_after_the_shutdown_nothing_is_written(self, tmp_path, make_trajectory):
        """It says so, instead of opening files that nobody closes."""
        exporter = FileSpanExporter(folder=tmp_path)
        exporter.shutdown()
        assert exporter.send(make_trajectory()).reason == "the exporter is shut down"
        assert list(tmp_path.iterdir()) == []


class TestOtherTools:
    """Requests are what OTLP receivers take."""

    @pytest.mark.integration
    @pytest.mark.skipif(not shutil.which("zstdcat") or not shutil.which("curl"), reason="needs zstd and curl")
    def test_the_command_of_the_documentation_fills_mlflow(self, mlflow_server, tmp_path, make_trajectory):
        """zstdcat and curl, as the docs have them, put every trajectory into MLflow, with all its spans."""
        import requests

        trajectories = [make_trajectory(children=3, characters=3000) for _ in range(4)]
        exporter = FileSpanExporter(folder=tmp_path / "rollout-traces")
        for spans in trajectories:
            exporter.send(spans)
        exporter.shutdown()
        page = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "trace-folder.md").read_text(encoding="utf-8")
        [[command, printed]] = re.findall(
            r"```sh\n(for file [^`]*?/v1/traces\n.*?)```\n+```text\n(.*?)```", page, re.DOTALL
        )
        assert printed.split()[1] == "200"
        done = subprocess.run(
            ["bash", "-c", command.replace("http://127.0.0.1:5000", mlflow_server.address)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stdout.split() == ["1", "200"], done.stderr
        for spans in trajectories:
            answer = requests.get(
                f"{mlflow_server.address}/api/3.0/mlflow/traces/get",
                params={"trace_id": f"tr-{spans[0].context.trace_id:032x}"},
                timeout=30,
            )
            stored = {
                (base64.b64decode(span["span_id"]).hex(), span["name"], int(span["start_time_unix_nano"]))
                for span in answer.json()["trace"]["spans"]
            }
            assert stored == {(f"{span.context.span_id:016x}", span.name, span.start_time) for span in spans}


class TestCheck:
    """What `init` finds before the first span."""

    def test_a_folder_below_a_file_is_an_error(self, tmp_path):
        """A path through a file names the file."""
        (tmp_path / "file").touch()

        with pytest.raises(ConfigurationError, match=r"^OTEL_ROLLOUT_DIR=.*can be written: .*file is a file"):
            FileSpanExporter(folder=tmp_path / "file" / "traces").check()

    def test_a_folder_without_permission_is_an_error(self, tmp_path, monkeypatch):
        """A folder that the process may not write to, or make, is named, and nothing is made."""
        monkeypatch.setattr(os, "access", lambda path, mode: False)

        with pytest.raises(ConfigurationError, match=f"no permission to write in {tmp_path}"):
            FileSpanExporter(folder=tmp_path / "a" / "traces").check()
        assert list(tmp_path.iterdir()) == []

    def test_a_file_system_without_folders(self):
        """A folder that not even root can make is found before the first span."""
        with pytest.raises(ConfigurationError, match=r"/proc: No such file|no permission to write in /proc"):
            FileSpanExporter(folder="/proc/x/traces").check()

    def test_nothing_is_left(self, tmp_path):
        """The check leaves nothing behind."""
        FileSpanExporter(folder=tmp_path / "a" / "traces").check()
        assert list(tmp_path.iterdir()) == []
