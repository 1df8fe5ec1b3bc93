"""otel-rollout's trace folder: the exporter `file`, and `otel_rollout.read_trajectories`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from benchmarks.trace_files.stores.store import Group, Root, Store
from otel_rollout.folder.reader import read_trajectories
from otel_rollout_file import FileSpanExporter


class TraceFolder(Store):
    title = "trace folder"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._exporter = FileSpanExporter(folder=folder)

    def write(self, spans: Sequence[ReadableSpan]) -> None:
        outcome = self._exporter.send(spans)
        if outcome.reason:
            raise RuntimeError(outcome.reason)

    def finish(self) -> None:
        self._exporter.shutdown()

    def roots(self, step: int) -> Sequence[Root]:
        return [
            Root(
                trajectory.trace_id,
                trajectory.sample_index,
                trajectory.rollout_n,
                trajectory.status,
                trajectory.reward,
                trajectory.start_time,
                trajectory.end_time,
            )
            for trajectory in read_trajectories(self.folder, step=step)
        ]

    def trajectory(self, step: int, sample_index: int, rollout_n: int) -> Sequence[Any]:
        return next(read_trajectories(self.folder, step=step, sample_index=sample_index, rollout_n=rollout_n)).spans

    def spans(self, step: int) -> Sequence[Any]:
        return [span for trajectory in read_trajectories(self.folder, step=step) for span in trajectory.spans]

    def groups(self) -> Sequence[Group]:
        rewards: dict[tuple[int, int], list[float]] = {}
        for trajectory in read_trajectories(self.folder):
            rewards.setdefault((trajectory.step, trajectory.sample_index), []).append(trajectory.reward)
        return [Group(*key, len(values), statistics.fmean(values)) for key, values in rewards.items()]

    def attributes_of(self, span: Any) -> dict[str, Any]:
        return dict(span.attributes)
