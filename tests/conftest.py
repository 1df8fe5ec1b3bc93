"""What every test starts from: no OTEL_* or backend variables, tracing off, and our own faults raised."""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from opentelemetry import propagate, trace

from otel_rollout import RolloutTraceConfig
from tests import environment

pytest_plugins = ["tests.file_seconds", "tests.servers.fixtures", "tests.session_report"]

# On import: fixtures of a wider scope than a test see the same environment, and so do the programs of tests.
environment.clean()
IS_SLOW = os.environ.get("SLOW_TESTS") == "1"
# The same examples in every run of `make test`, others in each of `make test-slow`; neither fails on a busy machine.
settings.register_profile(
    "tests",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    derandomize=not IS_SLOW,
    max_examples=500 if IS_SLOW else 25,
)
settings.load_profile("tests")
# A shell without job control starts a background job with Ctrl-C ignored, and the programs of tests inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests, unless they are asked for; refuse names that differ between the processes."""
    if addressed := next((item.nodeid for item in items if " at 0x" in item.nodeid), None):
        raise pytest.UsageError(f"the name of a test has an address, so pytest-xdist can't share it out: {addressed}")
    if not IS_SLOW:
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


ATTRIBUTES: Final = (
    (sys, "excepthook"),
    (trace, "_TRACER_PROVIDER"),
    (trace._TRACER_PROVIDER_SET_ONCE, "_done"),
    (propagate, "propagator"),
)
"""What holds for the whole process. (Ids of spans come from `random`: its state goes on, so that none comes again.)"""


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Restore what a test may change for the whole process: the next one starts from the same."""
    variables, folder, modules, tracing = dict(os.environ), Path.cwd(), dict(sys.modules), sys.gettrace()
    interval, thresholds, is_collecting = sys.getswitchinterval(), gc.get_threshold(), gc.isenabled()
    attributes = [getattr(owner, name) for owner, name in ATTRIBUTES]
    # Hypothesis measures collections from its first test on: what a signal handler raises in there would be lost.
    lists = [(each, list(each)) for each in (sys.path, gc.callbacks)]
    loggers = _loggers()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM)}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    if dict(os.environ) != variables:
        os.environ.clear()
        os.environ.update(variables)
    os.chdir(folder)
    # A module that is imported a second time has classes that are not those of the first.
    sys.modules.update({name: module for name, module in modules.items() if sys.modules.get(name) is not module})
    # Coverage would miss all later tests.
    if sys.gettrace() is not tracing:
        sys.settrace(tracing)
    sys.setswitchinterval(interval)
    for (owner, name), value in zip(ATTRIBUTES, attributes, strict=True):
        setattr(owner, name, value)
    for each, items in lists:
        each[:] = items
    for logger, kept in loggers.items():
        vars(logger).update(kept | {"handlers": list(kept["handlers"])})
    # Loggers remember which levels are on.
    logging.getLogger().manager._clear_cache()
    gc.set_threshold(*thresholds)
    (gc.enable if is_collecting else gc.disable)()


def _loggers() -> dict[logging.Logger, dict[str, Any]]:
    """Return what is set of our loggers and of OpenTelemetry's: Alembic, say, may disable all that are there."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith(("otel_rollout", "opentelemetry"))]
    settings = ("level", "propagate", "disabled", "handlers")
    found = {}
    for logger in map(logging.getLogger, ["otel_rollout", *names]):
        found[logger] = {name: getattr(logger, name) for name in settings} | {"handlers": list(logger.handlers)}
    return found


@pytest.fixture(scope="module", autouse=True)
def _own_garbage() -> Iterator[None]:
    """Collect what a file's tests have left before the next file: its finalizers run in no other's tests."""
    yield
    gc.collect()
    # What is left is alive: the next collection doesn't walk through it again.
    gc.freeze()


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


@pytest.fixture(scope="session", autouse=True)
def _computed_once() -> Iterator[None]:
    """Compute what nearly all of an `init` is once in each process: thousands of tests call it."""
    compile_look = resolve_name("otel_rollout.finish.redaction:_compile")
    branches = resolve_name("otel_rollout.finish.secret_keys:branches")
    edits = resolve_name("otel_rollout.text.misspelt_variables:edits")
    # A forked child compiles its own: see `Redactor.after_fork`.
    compiled = functools.cache(lambda pattern, engine, **options: compile_look(pattern, **options))
    branched = functools.cache(lambda words: branches(dict(words)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "otel_rollout.finish.redaction._compile",
            # Of this process, and by this engine.
            lambda pattern, **options: compiled(pattern, (os.getpid(), find_spec("re2") is None), **options),
        )
        patch.setattr("otel_rollout.finish.secret_keys.branches", lambda words: branched(tuple(words.items())))
        patch.setattr("otel_rollout.text.misspelt_variables.edits", functools.cache(edits))
        yield


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts file systems of so many bytes, which only root may do; elsewhere the test is skipped."""
    mounted: list[Path] = []

    def mount(size: int | str, name: str = "disk") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
