"""verl itself, in an environment of its own, driven by the programs beside these tests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.installed import import_path

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 400

ENTRY_POINTS = """
[verl.plugins]
otel_rollout = otel_rollout.hooks.verl.plugin

[opentelemetry_traces_exporter]
mlflow = otel_rollout_mlflow:MlflowSpanExporter
weave = otel_rollout_weave:WeaveSpanExporter
json = json_exporter:JsonSpanExporter
broken = json_exporter:BrokenSpanExporter
hanging = json_exporter:HangingSpanExporter
"""


@dataclass
class Run:
    """Results of a program of verl."""

    folder: Path
    output: str

    @property
    def digest(self) -> str:
        """One hash of all that training gets from the rollout."""
        return (self.folder / "digest").read_text()

    @property
    def spans(self) -> list[dict[str, Any]]:
        """All spans of all processes, in the order of their starts."""
        lines = [line for file in self.folder.glob("*.jsonl") for line in file.read_text().splitlines()]
        return sorted(map(json.loads, lines), key=lambda span: span["start_time"])

    def traces(self) -> list[list[dict[str, Any]]]:
        """The spans of each trace, its root first."""
        traces: dict[str, list[dict[str, Any]]] = {}
        for span in self.spans:
            traces.setdefault(span["trace_id"], []).append(span)
        return [sorted(spans, key=lambda span: span["parent_id"] is not None) for spans in traces.values()]

    def roots(self) -> list[dict[str, Any]]:
        """The roots of all traces."""
        return [span for span in self.spans if span["parent_id"] is None]

    def trace_of(self, prompt: str) -> list[dict[str, Any]]:
        """The first trace of a prompt, its root first."""
        for trace in self.traces():
            if trace[0]["attributes"]["input.value"] == prompt:
                return trace
        raise AssertionError(f"no trace of {prompt!r}")


@pytest.fixture(scope="session")
def verl_python(environment: Callable[[str], Path]) -> Path:
    """The Python of verl's environment."""
    return environment("verl") / "bin" / "python"


@pytest.fixture(scope="session")
def verl_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables with which verl finds us and the programs, as if otel-rollout was installed beside it."""
    site = tmp_path_factory.mktemp("site")
    info = site / "otel_rollout-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: otel-rollout\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    path = os.pathsep.join(map(str, (site, import_path(), PROGRAMS)))
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "PYTHON"))},
        "PYTHONPATH": path,
        "RAY_AUTH_MODE": "disabled",
        "HF_HUB_OFFLINE": "1",
        "OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS": "1",
    }


RunProgram = Callable[..., Run]


@pytest.fixture(scope="session")
def run_program(
    verl_python: Path, verl_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> RunProgram:
    """Runs one of the programs with verl's Python and returns what it has left behind."""

    def run(program: str, *, variables: dict[str, str] | None = None, seconds: float = SECONDS, **options: Any) -> Run:
        folder = tmp_path_factory.mktemp(program.removesuffix(".py"))
        environment = {**verl_environment, "VERL_TEST_FOLDER": str(folder), **(variables or {})}
        done = subprocess.run(
            [str(verl_python), str(PROGRAMS / program), str(folder), json.dumps(options)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output[-5000:]
        return Run(folder, output)

    return run


def traced(*more: str, backend: str = "json") -> list[str]:
    """Return the settings that switch tracing on."""
    return [f"actor_rollout_ref.rollout.trace.backend={backend}", *more]


TRAINING_FACTS = ("advantage", "fate", "log_prob_gap", "log_prob_gap_max", "entropy", "importance_weight")


def told(run: Run) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The attributes of each trajectory's root, and the facts of training below it: one annotation each, or none."""
    found = []
    for root, *others in run.traces():
        late = [span["attributes"] for span in others if span["name"] == "annotate"]
        assert len(late) <= 1
        facts = late[0] if late else {}
        found.append((root["attributes"], {key.removeprefix("rollout."): value for key, value in facts.items()}))
    return found


def agree(found: dict[str, Any], given: dict[str, Any]) -> bool:
    """Return True if the facts are those that a program has read from the tensors."""
    return found["fate"] == given["fate"] and all(
        found[name] == pytest.approx(given[name], rel=1e-5) for name in TRAINING_FACTS if name != "fate"
    )
