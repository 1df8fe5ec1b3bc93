"""`nested_weave_ops` in the traced program: weave's calls nest, and whatever weave is there, the block runs."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from otel_rollout import rollout_trace_attr
from otel_rollout.guard import forget_warnings, internal_errors
from otel_rollout_weave import nested_weave_ops

PROGRAM = """
import sys
project, packages = sys.argv[1:]
sys.path.append(packages)
import otel_rollout
from otel_rollout_weave import nested_weave_ops

otel_rollout.init(project, "exp-1", backend="weave")
import weave
weave.init(project)

@weave.op
def inner(x):
    return x + 1

@otel_rollout.rollout_trace_op
def op(x):
    with nested_weave_ops():
        return inner(x)

with otel_rollout.rollout_trace_attr(step=1, sample_index=0, rollout_n=0, name="agent"):
    with nested_weave_ops():
        inner(1)
    op(2)
inner(3)
weave.finish()
assert otel_rollout.shutdown(60)
assert not otel_rollout.stats().internal_errors, otel_rollout.stats().internal_errors
"""


@pytest.mark.slow
@pytest.mark.integration
def test_calls_of_weave_nest(server, project, environment) -> None:
    """A function of weave's is a child of the trajectory or the op around it, and a trace of its own outside."""
    [packages] = Path(environment("weave_client")).glob("lib/python*/site-packages")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, project, str(packages)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **server.variables},
    )
    assert done.returncode == 0, done.stderr

    calls = server.calls(project)

    names = {call["id"]: call["op_name"].rpartition("/")[2].partition(":")[0] for call in calls}
    assert sorted((names[call["id"]], names.get(call["parent_id"], "-")) for call in calls) == [
        ("agent", "-"),
        ("inner", "-"),
        ("inner", "agent"),
        ("inner", "op"),
        ("op", "agent"),
    ]
    (root,) = [call for call in calls if names[call["id"]] == "agent"]
    inside = [call["trace_id"] for call in calls if call["parent_id"]]
    assert set(inside) == {root["trace_id"]}


def weave_of_version(version: str) -> dict[str, types.ModuleType]:
    """Return the modules of a weave that has a version and nothing else."""
    modules = {
        name: types.ModuleType(name)
        for name in ("weave", "weave.trace.context.call_context", "weave.trace.context.weave_client_context")
    }
    modules["weave"].__version__ = version  # type: ignore[attr-defined]
    return modules


@pytest.mark.usefixtures("rollout_spans")
def test_unknown_version(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """With a version that isn't known the block runs, nothing nests, and one warning says so."""
    for name, module in weave_of_version("9.9.0").items():
        monkeypatch.setitem(sys.modules, name, module)
    forget_warnings()
    ran = 0
    with rollout_trace_attr(step=1, sample_index=0):
        for _ in range(2):
            with nested_weave_ops():
                ran += 1
    assert ran == 2
    assert caplog.text.count("weave 9.9.0 is not known") == 1


@pytest.mark.usefixtures("rollout_spans")
def test_weave_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If weave's internals differ, the block runs, its errors are its own, and the fault is counted."""
    forget_warnings()
    monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
    for name, module in weave_of_version("0.54.0").items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(KeyError, match="mine"), rollout_trace_attr(step=1, sample_index=0), nested_weave_ops():
        raise KeyError("mine")
    assert dict(internal_errors) == {"nesting weave's calls": 1}
    forget_warnings()


def test_without_weave() -> None:
    """Without weave, or outside any trajectory, the block runs."""
    with nested_weave_ops():
        ran = True
    assert ran
