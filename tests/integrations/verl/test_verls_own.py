"""verl's own tests, as far as its wheel has them and they run on the CPU, with the plugin loaded."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECONDS = 400


class TestVerlsOwnTests:
    """verl's own tests."""

    def test_plugin_is_loaded_by_its_entry_point(self, verl_python: Path, verl_environment: dict[str, str]) -> None:
        """Importing verl is enough: its tracing is started by us, and what it decorates has our decorator."""
        program = (
            "import verl.experimental.agent_loop as loops\n"
            "import verl.tools.base_tool as tool\n"
            "import verl.utils.rollout_trace as trace\n"
            "assert hasattr(trace.RolloutTraceConfig.init, '__otel_rollout_hook__')\n"
            "assert hasattr(loops.AgentLoopWorker._run_agent_loop, '__otel_rollout_hook__')\n"
            "assert hasattr(tool.BaseTool.execute, '__otel_rollout_execute__')\n"
        )
        done = subprocess.run(
            [str(verl_python), "-c", program],
            env=verl_environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert "as this verl is not as expected" not in done.stderr

    def test_tests_of_agent_loops_and_tools_pass(self, verl_python: Path, verl_environment: dict[str, str]) -> None:
        """verl's tests of its agent loops, its fully async training and its tools pass with the plugin loaded."""
        site = next(verl_python.parent.parent.glob("lib/python*/site-packages"))
        folders = [site / "tests" / name for name in ("experimental", "tools")]
        files = sorted(str(file) for folder in folders for file in folder.glob("**/*_on_cpu.py"))
        assert len(files) >= 9
        done = subprocess.run(
            [str(verl_python), "-m", "pytest", "-q", "--asyncio-mode=auto", "-p", "no:cacheprovider", *files],
            cwd=site,
            env=verl_environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stdout[-3000:]
        assert " passed" in done.stdout
