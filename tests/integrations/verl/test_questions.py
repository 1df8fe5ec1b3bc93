"""The programs of docs/reference/verl.md that ask questions, against real servers that hold the plugin's traces."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.verl.conftest import ROOT, RunProgram, traced

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROJECT = "my-project"
PROMPTS = ["broken b", "plan a", "long c", "garbled d"]
INDICES = [1207, 1208, 1209, 1210]
UID = "5b0ff317-2f4b-4f0e-8b16-1f4f2e6d7a01"
SECONDS = 120

QUESTIONS = {
    "All failed tool calls of step 40": {
        f"{index} {rollout} {tool}"
        for rollout in range(2)
        for index, tools in {
            1207: ("fail", "unknown_tool", "add", "calculator"),
            1210: ("unreadable_tool_call",),
        }.items()
        for tool in tools
    },
    "Rollouts of this prompt side by side": {"0 completed 0.0", "1 completed 0.0"},
    "Truncated responses of step 40": {"1209 0", "1209 1"},
    "By verl's uid, as in the trainer's log": {"1208 0", "1208 1"},
    "Made by old weights": {f"41 {index} {rollout}" for index in INDICES for rollout in range(2)},
}
"""Each question's answer, by the fake engine's turns; the first three words of a failed call."""

FAILURES = (
    "no luck",
    "there is no tool of this name",
    "must be a mapping",
    "name 'x' is not defined",
    "Failed to decode",
)
"""The failed calls' messages, one each."""


def programs() -> dict[str, str]:
    """Return the programs of docs/reference/verl.md by the backend that their heading names."""
    text = (ROOT / "docs" / "reference" / "verl.md").read_text()
    sections = re.split(r"^### (?:W&B )?(MLflow|Phoenix|Weave)$", text, flags=re.MULTILINE)
    pairs = zip(sections[1::2], sections[2::2], strict=True)
    return {backend: section.partition("```python\n")[2].partition("```")[0] for backend, section in pairs}


def step(number: int, *, validate: bool = False, uid: str = "") -> dict[str, Any]:
    """Return a batch of all prompts, the second of which may have a uid of its own."""
    uids = [f"{number}-{validate}-{prompt}" for prompt in PROMPTS]
    uids[1] = uid or uids[1]
    return {"prompts": PROMPTS, "n": 2, "step": number, "validate": validate, "indices": INDICES, "uids": uids}


@pytest.fixture(scope="module")
def variables(phoenix: Any, mlflow_server: Any, weave_server: Any, run_program: RunProgram) -> dict[str, str]:
    """The variables that lead to the servers, which hold two steps and a validation."""
    variables = {
        **weave_server.variables,
        "MLFLOW_TRACKING_URI": mlflow_server.address,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": phoenix.address,
    }
    run_program(
        "run_worker.py",
        variables=variables,
        workers=2,
        engine={"version": 38},
        batches=[step(40, uid=UID), step(41), step(40, validate=True)],
        overrides=traced(f"trainer.project_name={PROJECT}", backend="'mlflow,weave,otlp'"),
    )
    # Of each trajectory the root, the run and two for the reward; turns with their parsing, and tool calls.
    spans = 4 * len(PROMPTS) + (5 * 2 + 4) + (3 * 2 + 2) + 1 + (2 + 1)
    phoenix.api.wait_for_spans(PROJECT, 3 * 2 * spans)
    return {**variables, "PHOENIX_COLLECTOR_ENDPOINT": phoenix.address}


@pytest.mark.parametrize(
    ("backend", "client"), [("MLflow", "mlflow"), ("Phoenix", "phoenix"), ("Weave", "weave_client")]
)
class TestQuestions:
    """Questions of an RL engineer."""

    def test_every_question_is_answered(
        self, backend: str, client: str, environment: Callable[[str], Path], variables: dict[str, str]
    ) -> None:
        """The documented program finds what the question means, and nothing of other steps, prompts or validation."""
        done = subprocess.run(
            [str(environment(client) / "bin" / "python"), "-c", programs()[backend]],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        answers: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            if line in QUESTIONS:
                found = answers[line] = []
            elif answers:
                found.append(line)
        failed = "All failed tool calls of step 40"
        for failure in FAILURES:
            assert sum(failure in line for line in answers[failed]) == 2
        answers[failed] = [" ".join(line.split()[:3]) for line in answers[failed]]
        assert {question: sorted(lines) for question, lines in answers.items()} == {
            question: sorted(lines) for question, lines in QUESTIONS.items()
        }
