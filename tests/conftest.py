"""What every test starts from: no OTEL_* or backend variables, tracing off, and our own faults raised."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from otel_rollout import RolloutTraceConfig

pytest_plugins = ["tests.file_seconds", "tests.servers.fixtures", "tests.session_report"]

# Set on import too: fixtures of a wider scope than a test see the same environment.
CLEARED_PREFIXES = ("OTEL_", "MLFLOW_", "PHOENIX_", "WANDB_", "WEAVE_", "WF_TRACE_")
for _variable in list(os.environ):
    if _variable.startswith(CLEARED_PREFIXES):
        del os.environ[_variable]
# mlflow reports its use to its makers unless it is told not to, and reads this when it is imported.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
# A shell without job control starts a background job with Ctrl-C ignored, and the programs of tests inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests, unless they are asked for."""
    if os.environ.get("SLOW_TESTS") != "1":
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(autouse=True)
def _trace_function() -> Iterator[None]:
    """Put the trace function back after a test that takes it away: coverage would miss all later tests."""
    before = sys.gettrace()
    yield
    if sys.gettrace() is not before:
        sys.settrace(before)


@pytest.fixture(autouse=True)
def _tracing_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS", "1")
    RolloutTraceConfig.reset()
    yield
    RolloutTraceConfig.reset()


@pytest.fixture(scope="session", autouse=True)
def _own_catalogs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the catalogs of trace folders out of the home of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
