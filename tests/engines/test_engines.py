"""docs/how-to/engines.md: DuckDB, chdb, Ray Data and Spark read what was received, and exported to object storage."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.docs.code_blocks import code_blocks
from tests.servers.process import ServerProcess, free_port, listens

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = [block.text for block in code_blocks(ROOT / "docs" / "how-to" / "engines.md")]
SECONDS = 400


def command(*arguments: str, folder: Path, **variables: str) -> str:
    """Run `otel-rollout`, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "otel_rollout", *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run_folder(s3_server, tmp_path_factory) -> Path:
    """A folder with `rollout-traces`, which `receive` wrote, and its export in s3://traces/run-1 and `run-1`."""
    folder = tmp_path_factory.mktemp("engines")
    port = free_port()
    receiver = ServerProcess(
        "receive",
        [sys.executable, "-m", "otel_rollout", "receive", str(folder / "rollout-traces"), "--port", str(port)],
        lambda: listens(port),
    )
    receiver.start()
    try:
        address = f"http://127.0.0.1:{port}"
        demo = ["demo", "--backend", "otlp", "--steps", "3", "--seed", "1"]
        command(*demo, folder=folder, OTEL_EXPORTER_OTLP_ENDPOINT=address)
    finally:
        # SIGTERM, at which it writes the trajectories whose root has come.
        receiver.stop()
    # The bucket.
    requests.put(f"{s3_server.address}/traces", timeout=60).raise_for_status()
    export = BLOCKS[0].split()
    command(*export[1:], folder=folder, **s3_server.variables)
    command(*export[1:-1], "run-1", folder=folder)
    return folder


@pytest.fixture
def answer(environment, s3_server, run_folder):
    """Run the page's block that uses a module in the engines' environment, and return what it prints."""

    def run(module: str) -> str:
        python = environment("engines") / "bin" / "python"
        (program,) = (block for block in BLOCKS if re.search(rf"^(import|from) {module}\b", block, re.MULTILINE))
        done = subprocess.run(
            [python, "-c", program],
            cwd=run_folder,
            env={**os.environ, **s3_server.variables, "HOME": str(run_folder), "RAY_USAGE_STATS_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    return run


@pytest.fixture
def asked(run_folder):
    """Return the rows of a question that `otel-rollout query` answers from the trace folder."""

    def ask(question: str) -> list[dict[str, object]]:
        lines = command("query", question, "--json", folder=run_folder).splitlines()
        assert lines
        return [json.loads(line) for line in lines]

    return ask


def numbers(line: str) -> list[float]:
    """Return the numbers in a line of a printed table, to three digits."""
    return [round(float(number), 3) for number in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])", line)]


def has_line(printed: str, *texts: object, values: list[float]) -> bool:
    """Return whether a line has the texts, and the values among its numbers."""
    return any(
        all(str(text) in line for text in texts) and {round(value, 3) for value in values} <= {*numbers(line)}
        for line in printed.splitlines()
    )


class TestEngines:
    """Each engine's answer is that of `otel-rollout query` to the folder."""

    def test_duckdb(self, answer, asked):
        """What became of the trajectories."""
        printed = answer("duckdb")
        for row in asked("SELECT step, status, count(*) AS trajectories FROM trajectories GROUP BY 1, 2"):
            assert has_line(printed, row["status"], values=[row["step"], row["trajectories"]]), (row, printed)

    def test_clickhouse(self, answer, asked):
        """What tools complain about."""
        printed = answer("chdb")
        for row in asked(
            "SELECT tool, substr(error, 1, 60) AS error, count(*) AS calls FROM spans"
            " WHERE kind = 'TOOL' AND error IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1"
        ):
            assert has_line(printed, row["tool"], values=[row["calls"]]), (row, printed)

    def test_ray_data(self, answer, asked):
        """Generations by the reason of their end."""
        printed = answer("ray")
        for row in asked(
            "SELECT finish_reason, count(*) AS generations, sum(output_tokens) AS tokens FROM spans"
            " WHERE kind = 'LLM' AND finish_reason IS NOT NULL GROUP BY 1"
        ):
            assert has_line(printed, row["finish_reason"], values=[row["generations"], row["tokens"]]), (row, printed)

    def test_spark(self, answer, asked):
        """The reward by length."""
        printed = answer("pyspark")
        for row in asked(
            "SELECT output_tokens / 50 * 50 AS tokens, count(*) AS trajectories, mean(reward) AS reward"
            " FROM trajectories WHERE reward IS NOT NULL GROUP BY 1"
        ):
            assert has_line(printed, values=[row["tokens"], row["trajectories"], row["reward"]]), (row, printed)
