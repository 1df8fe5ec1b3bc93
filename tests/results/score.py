"""How many results of tools are judged right: `python -m tests.results.score FILE…`.

A file has `ODD`, results that hold nothing or are errors, and `ORDINARY`, each with `name` and `value`. Each goes the
real way: a tool returns it, and the exported span's output is judged.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import otel_rollout
from otel_rollout import rollout_trace_op, semconv
from otel_rollout.facts import is_odd_result
from otel_rollout.testing import InMemorySpanExporter


def outputs_of(cases: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return what the spans of tools have that return the cases' values."""
    exporter = InMemorySpanExporter()
    otel_rollout.init("corpus", "results", exporter)
    try:
        for case in cases:
            rollout_trace_op(lambda value=case["value"]: value, kind="TOOL", name="tool", capture_inputs=False)()
    finally:
        otel_rollout.shutdown()
    return [(span.attributes or {}).get(semconv.OUTPUT_VALUE) for span in exporter.spans]


def wrong_of(cases: Iterable[Mapping[str, Any]], *, is_odd: bool) -> list[tuple[str, Any]]:
    """Return the names and outputs of the cases that are judged wrong."""
    known = list(cases)
    outputs = outputs_of(known)
    assert len(outputs) == len(known)
    return [
        (case["name"], output)
        for case, output in zip(known, outputs, strict=True)
        if is_odd_result(output) is not is_odd
    ]


def load(path: str) -> Any:
    """Return a file of cases as a module."""
    specification = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def main(paths: Iterable[str]) -> None:
    """Print the cases that are judged wrong, and how many are right."""
    for path in paths:
        module = load(path)
        for kind, is_odd in (("ODD", True), ("ORDINARY", False)):
            cases = getattr(module, kind)
            wrong = wrong_of(cases, is_odd=is_odd)
            for name, output in wrong:
                sys.stdout.write(f"  {kind} {name}: {output!s:.200}\n")
            sys.stdout.write(f"{path} {kind}: {len(cases) - len(wrong)} of {len(cases)} right\n")


if __name__ == "__main__":
    main(sys.argv[1:])
