"""verl's versions before the one that all other tests run: how far the hooks reach there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import environments
from tests.integrations.verl.conftest import RunProgram, traced
from tests.servers.fixtures import missing

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PLUGIN = "otel_rollout.hooks.verl.plugin"
STEP = {"prompts": ["plan a", "broken b"], "n": 2, "step": 6}
SECONDS = 300

Older = Callable[[str], dict[str, str]]


@pytest.fixture(scope="module")
def older(verl_python: Path, verl_environment: dict[str, str]) -> Older:
    """Makes the variables with which verl's environment has an older verl, from its wheel."""

    def variables(version: str) -> dict[str, str]:
        folder = environments.cache_folder() / f"verl-wheel-{version}"
        if not folder.exists():
            made = Path(tempfile.mkdtemp(dir=folder.parent))
            command = [verl_python.with_name("uv"), "pip", "install", "--quiet", "--no-deps", "--target", made / "all"]
            try:
                subprocess.run([*command, f"verl=={version}"], check=True, timeout=SECONDS)
            except (subprocess.SubprocessError, OSError) as error:
                missing(f"verl {version} can't be installed here: {error}")
            # The wheel has a package `tests` too.
            (made / "all" / "verl").rename(made / "verl")
            shutil.rmtree(made / "all")
            made.rename(folder)
        path = os.pathsep.join([str(folder), verl_environment["PYTHONPATH"]])
        return {"PYTHONPATH": path, "VERL_USE_EXTERNAL_MODULES": PLUGIN if version < "0.9" else ""}

    return variables


class TestOlderVersions:
    """verl's agent loop of an older version, in one process."""

    @pytest.mark.parametrize(
        ("version", "index_from", "number_from", "warnings"),
        [("0.9.0", "index", "batch", []), ("0.8.0", "uid", "worker", ["engine request ids are not recorded"])],
    )
    def test_step(
        self,
        run_program: RunProgram,
        older: Older,
        version: str,
        index_from: str,
        number_from: str,
        warnings: list[str],
    ) -> None:
        """Trees, rewards and tool errors are there, training gets the same, and one warning says what is not."""
        options = {"workers": 2, "batches": [STEP]}
        run = run_program("run_worker.py", variables=older(version), overrides=traced(), **options)
        assert Counter(trace[0]["name"] for trace in run.traces()) == {"agent_loop": 4}
        for trace in run.traces():
            ids = {span["span_id"] for span in trace}
            assert all(span["parent_id"] in ids for span in trace[1:])
            root = trace[0]["attributes"]
            assert {"rollout.reward", "rollout.uid", "rollout.num_turns", "rollout.response_length"} <= root.keys()
            assert (root["rollout.sample_index_from"], root["rollout.rollout_n_from"]) == (index_from, number_from)
            assert root["rollout.tool_errors"] == (0 if root["rollout.dataset_index"] == 10 else 4)
            [score] = [span for span in trace if span["name"] == "RewardLoopWorker.compute_score"]
            assert score["parent_id"] == trace[0]["span_id"]
        assert run.output.count("as this verl is not as expected") == len(warnings)
        assert all(f"verl: {warning}" in run.output for warning in warnings)
        off = {**older(version), "OTEL_ROLLOUT_VERL": "off", "VERL_USE_EXTERNAL_MODULES": ""}
        assert run.digest == run_program("run_worker.py", variables=off, **options).digest
