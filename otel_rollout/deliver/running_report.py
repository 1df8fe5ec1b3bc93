"""Notifies an exporter of the running trajectories, so that people see what a step waits for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.finish.payload_finisher import PayloadFinisher
from otel_rollout.finish.redaction import Redactor
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import internal_error
from otel_rollout.record.open_trajectories import OpenTrajectories, OpenTrajectory
from otel_rollout.record.snapshot import Snapshot, to_json

SECONDS_BETWEEN: Final = 2.0
LONGEST_BETWEEN: Final = 8.0
"""`otel-rollout top` considers a process dead after 15 s without a report."""
MAX_SHARE: Final = 0.02
"""The part of the delivery thread's time that notes may take, unless `LONGEST_BETWEEN` asks for more."""
_MAX_INPUTS: Final = 64
"""The longest-running ops have their input in a note."""
_INPUT_BYTES: Final = 2048
_MAX_SNAPSHOT: Final = 2**16
"""The size of a larger input is noted only: reading it would take milliseconds."""
SECONDS_RUNNING: Final = 3.0
"""Trajectories that have run for less are not reported."""


class RunningReport:
    """Calls an exporter's method `note_open` every few seconds, if it has one; on the delivery thread."""

    def __init__(
        self,
        exporter: SpanExporter,
        open_trajectories: OpenTrajectories | None,
        redactor: Redactor | None,
        *,
        has_inputs: bool = True,
    ) -> None:
        self._note: Callable[[Sequence[OpenTrajectory]], object] | None = getattr(exporter, "note_open", None)
        self._open = open_trajectories
        # Nobody counts the secrets of a note: no span had them.
        self._redactor = redactor
        self._finisher = PayloadFinisher(_INPUT_BYTES, redactor)
        self._has_inputs = has_inputs
        self._next = 0.0

    def seconds_left(self) -> float:
        """Return the seconds until the next note; infinity if the exporter takes none."""
        if self._note is None or self._open is None:
            return math.inf
        return max(0.0, self._next - monotonic())

    def note(self) -> None:
        """Report the running trajectories, unless that was done a moment ago."""
        if self._note is None or self._open is None or self.seconds_left():
            return
        start = monotonic()
        try:
            running = self._open.running_for(SECONDS_RUNNING)
            self._note(
                [self._clean(each, has_input=self._has_inputs and at < _MAX_INPUTS) for at, each in enumerate(running)]
            )
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001, RUF100 - SystemExit or CancelledError must not end delivery
            internal_error("noting the running trajectories")
        now = monotonic()
        self._next = now + min(LONGEST_BETWEEN, max(SECONDS_BETWEEN, (now - start) / MAX_SHARE))

    def _clean(self, trajectory: OpenTrajectory, *, has_input: bool) -> OpenTrajectory:
        redactor, op = self._redactor, trajectory.op
        if op is not None:
            op = op._replace(input=self._text_of(op.input) if has_input else None)
        if redactor is None:
            return trajectory._replace(op=op)
        if op is not None:
            op = op._replace(name=redactor.value(op.name)[0], kind=redactor.value(op.kind)[0])
        (name,), tags = redactor.value(((trajectory.name,), trajectory.tags))[0]
        return trajectory._replace(name=name, tags=tags, op=op)

    def _text_of(self, given: Snapshot | str | None) -> str | None:
        """Return the beginning of an op's input as JSON, without secrets and media."""
        if not isinstance(given, Snapshot):
            return given
        if given.size > _MAX_SNAPSHOT:
            return f"…[{given.size:,} bytes]"
        clean, _ = self._finisher.clean(to_json(given))
        return self._finisher.cut(clean)[0].decode()
