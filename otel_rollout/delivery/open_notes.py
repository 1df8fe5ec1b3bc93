"""Tells an exporter which trajectories are running, so that people see what a step waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.processing.redaction import Redactor
from otel_rollout.safety.log_once import internal_error
from otel_rollout.spans.open_trajectories import OpenTrajectories, OpenTrajectory

__all__ = ["OpenNotes"]

SECONDS_BETWEEN: Final = 2.0
SECONDS_RUNNING: Final = 3.0
"""Trajectories that run for less are not told of."""


class OpenNotes:
    """Calls an exporter's method `note_open` every few seconds, if it has one; on the delivery thread.

    Args:
        exporter: The exporter.
        open_trajectories: Knows the running trajectories.
        redactor: Replaces secrets in names and tags; None if nothing is redacted.
    """

    def __init__(
        self, exporter: SpanExporter, open_trajectories: OpenTrajectories | None, redactor: Redactor | None
    ) -> None:
        self._note: Callable[[Sequence[OpenTrajectory]], object] | None = getattr(exporter, "note_open", None)
        self._open = open_trajectories
        self._redactor = redactor
        self._next = 0.0

    def note(self) -> None:
        """Tell of the running trajectories, unless that was done a moment ago."""
        now = time.monotonic()
        if self._note is None or self._open is None or now < self._next:
            return
        self._next = now + SECONDS_BETWEEN
        try:
            self._note([self._clean(each) for each in self._open.running_for(SECONDS_RUNNING)])
        except Exception:
            internal_error("noting the running trajectories")

    def _clean(self, trajectory: OpenTrajectory) -> OpenTrajectory:
        redactor = self._redactor
        if redactor is None:
            return trajectory
        op, tags = trajectory.op, redactor.attributes(trajectory.tags)
        name, op_name = redactor.label(trajectory.name), None if op is None else redactor.label(op.name)
        changes: dict[str, Any] = {"name": name, "tags": tags}
        if op is not None and op_name is not None:
            changes["op"] = op._replace(name=op_name)
        return trajectory._replace(**changes)
