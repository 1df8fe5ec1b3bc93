"""Package folders without the metadata of their distribution, as Ray ships them (`py_modules`)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import opentelemetry.sdk
import pytest

import otel_rollout

PACKAGES = ("otel_rollout", "otel_rollout_console", "otel_rollout_file", "otel_rollout_mlflow", "otel_rollout_otlp")


@pytest.fixture
def run(tmp_path):
    """Runs a program that has these package folders, and all that is installed but otel-rollout."""
    core = Path(otel_rollout.__file__).parent
    exporters = core.parent if (core.parent / "otel_rollout_otlp").exists() else core.parent / "exporters"
    installed = Path(next(iter(opentelemetry.sdk.__path__))).parent.parent
    (tmp_path / "installed").mkdir()
    for entry in installed.iterdir():
        if "otel_rollout" not in entry.name:
            (tmp_path / "installed" / entry.name).symlink_to(entry)

    def run(program: str, *shipped: str, **environment: str) -> str:
        (tmp_path / "shipped").mkdir()
        for package in shipped:
            folder = core if package == "otel_rollout" else exporters / package
            (tmp_path / "shipped" / package).symlink_to(folder)
        done = subprocess.run(
            [sys.executable, "-S", "-c", textwrap.dedent(program)],
            env={
                **os.environ,
                **environment,
                "PYTHONPATH": os.pathsep.join([str(tmp_path / "shipped"), str(tmp_path / "installed")]),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


class TestWithoutMetadata:
    """Exporters that work, and the errors of those that can't."""

    def test_import(self, run):
        """The package can be imported, and knows its version."""
        program = """
            import otel_rollout
            from importlib import metadata
            try:
                metadata.version("otel-rollout")
            except metadata.PackageNotFoundError:
                print(otel_rollout.__version__)
        """

        assert run(program, *PACKAGES) == otel_rollout.__version__

    @pytest.mark.parametrize(
        ("backend", "exporter"),
        [
            ("otlp", "OtlpHttpSpanExporter"),
            ("console", "ConsoleSpanExporter"),
            ("mlflow", "MlflowSpanExporter"),
            ("file", "FileSpanExporter"),
        ],
    )
    def test_exporters(self, run, backend, exporter):
        """Our exporters are found by their names, where their packages stand beside ours."""
        program = f"""
            import otel_rollout
            from otel_rollout.record import runtime
            otel_rollout.init("project", "experiment", backend={backend!r})
            print(type(runtime.pipeline.queues[0].exporter).__name__)
        """

        assert run(program, *PACKAGES) == exporter

    @pytest.mark.parametrize(
        ("backend", "said"),
        [
            ("weave", "otel_rollout is here without the metadata of its distribution"),
            ("../evil", "no exporter is called '../evil'"),
            ("otlp", "ship that package beside otel_rollout, or pip install otel-rollout"),
        ],
    )
    def test_an_exporter_that_is_not_there(self, run, backend, said):
        """The error says what is missing, and what to do."""
        program = f"""
            import otel_rollout
            try:
                otel_rollout.init("project", "experiment", backend={backend!r})
            except otel_rollout.ConfigurationError as error:
                print(error)
        """

        assert said in run(program, "otel_rollout")

    def test_our_sampler(self, run):
        """`rollout_sample_ratio` needs no entry point."""
        program = """
            import otel_rollout
            from otel_rollout.record import runtime
            otel_rollout.init("project", "experiment", backend="console")
            print(runtime.pipeline.tracer._sampler.get_description())
        """

        described = run(program, *PACKAGES, OTEL_TRACES_SAMPLER="rollout_sample_ratio", OTEL_TRACES_SAMPLER_ARG="0.5")
        assert "RolloutSampleRatio{0.5}" in described

    @pytest.mark.parametrize("arguments", [["--version"], ["doctor", "--backend", "console", "--offline"]])
    def test_commands(self, run, arguments):
        """The command line runs."""
        program = f"""
            import sys
            from otel_rollout.cli.main import main
            print(main({arguments!r}))
        """

        assert otel_rollout.__version__ in run(program, *PACKAGES)
