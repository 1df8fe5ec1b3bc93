"""Packages that the program imports while it is traced, and those that it doesn't."""

from __future__ import annotations

import importlib.machinery
import sys
import types

import pytest

from otel_rollout import rollout_trace_op
from tests.fresh_interpreter import run_program

pytestmark = pytest.mark.every_python


@pytest.mark.parametrize("name", ["numpy", "torch", "pandas", "PIL", "omegaconf"])
def test_a_package_whose_import_has_not_ended(monkeypatch, rollout_spans, name):
    """While another thread imports a package, its module is empty: a traced call doesn't read it."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__spec__._initializing = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)

    @rollout_trace_op(kind="LLM")
    def generate(given):
        return {"token_ids": given}

    for value in (b"bytes", {1, 2}, types.SimpleNamespace(shape=3), [1, 2]):
        assert generate(value) == {"token_ids": value}


def test_nothing_is_imported_into_the_program():
    """Delivery writes any value, and imports no package that the program hasn't."""
    done = run_program("""
        import sys, otel_rollout
        from otel_rollout.testing import InMemorySpanExporter
        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "e", backend=exporter)

        @otel_rollout.rollout_trace_op
        def op(value):
            return value

        op([b"bytes", {1}, object(), 2**70, "\\ud800"])
        assert otel_rollout.flush(60) and exporter.spans
        print(sorted({"numpy", "pandas", "torch", "PIL", "omegaconf"} & {*sys.modules}))
    """)
    assert done.stdout == "[]\n", done.stderr
