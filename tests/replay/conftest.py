"""Recordings to replay, made by the tracer itself."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExporter

import otel_rollout
from otel_rollout import backends
from otel_rollout.export import RetryPolicy
from otel_rollout.folder import AppendFile, append_frame
from otel_rollout.otlp import encode_spans
from otel_rollout.replay import Replay, replay
from otel_rollout.settings import resolve_settings
from otel_rollout.testing import InMemorySpanExporter
from otel_rollout_file import FileSpanExporter
from tests.replay.recordings import Memory, run_agent

QUICK = RetryPolicy(initial_delay=0.01, max_delay=0.02, configuration_delay=0.01)


@pytest.fixture
def project() -> str:
    """A project's name that no other test uses."""
    return f"replay-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def record(tmp_path: Path, project: str) -> Callable[..., Path]:
    """Trace trajectories into a trace folder, and live to other exporters beside it."""

    def run(*live: SpanExporter, steps: Sequence[int] = (1, 2), samples: int = 2, folder: Path | None = None) -> Path:
        folder = folder or tmp_path / "traces"
        otel_rollout.init(project, "exp-1", backend=[FileSpanExporter(folder=folder), *live], run_id="run-1")
        for step in steps:
            for sample in range(samples):
                run_agent(step, sample, 0, reward=0.25 * (sample + 1))
        run_agent(steps[-1], 0, 0, validate=True)
        assert otel_rollout.shutdown(60.0), otel_rollout.stats()
        return folder

    return run


@pytest.fixture
def spool(tmp_path: Path, project: str) -> Callable[..., Path]:
    """Make a spool as a process leaves it that could not deliver: batches of one trajectory each."""

    def run(*, exporter: str = "memory", files: int = 2, batches: int = 2) -> Path:
        memory = InMemorySpanExporter()
        folder = tmp_path / "spool"
        otel_rollout.init(project, "exp-1", backend=memory)
        for number in range(files):
            file = AppendFile(folder / exporter / f"host-1-abcd-{number:06d}.otlp.zst")
            for batch in range(batches):
                memory.clear()
                run_agent(batch, number, 0)
                assert otel_rollout.flush(60)
                append_frame(file, encode_spans(memory.spans))
            file.close()
        otel_rollout.shutdown(30.0)
        return folder

    return run


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Replay]:
    """Replay a folder to an exporter that is given, or named."""

    def run(folder: Path, to: SpanExporter | str, *, patience: float = 5.0, **options: Any) -> Replay:
        name = to if isinstance(to, str) else "memory"
        if not isinstance(to, str):
            monkeypatch.setattr(backends, "make_exporters", lambda names, **_: [(names[0], to)])
        return replay(
            folder,
            name,
            settings=options.pop("settings", None) or resolve_settings({}),
            patience=patience,
            policy=options.pop("policy", QUICK),
            show=options.pop("show", nothing_shown),
            **options,
        )

    return run


@contextlib.contextmanager
def nothing_shown(name: str, total: Any) -> Iterator[Any]:
    """A progress that nobody sees."""
    yield lambda report, size: None


@pytest.fixture
def memory() -> Memory:
    """An exporter that keeps its spans."""
    return Memory()
