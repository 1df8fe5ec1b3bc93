"""One replay: the folder, the exporter, the log of deliveries, and the counts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from otel_rollout import backends
from otel_rollout.deliver.span_outbox import QueueLimits
from otel_rollout.errors import ConfigurationError
from otel_rollout.export.exporter import OutcomeSpanExporter, destination_of
from otel_rollout.export.lane import RetryPolicy
from otel_rollout.folder.selection import Filters
from otel_rollout.guard.clock import monotonic
from otel_rollout.replay.delivered_log import DeliveredLog
from otel_rollout.replay.report import Progress, Replay
from otel_rollout.replay.sender import Sender
from otel_rollout.replay.spool_files import files_in, is_spool, remove_delivered, spool_of
from otel_rollout.replay.trajectories import Total, TrajectorySource
from otel_rollout.settings import Settings


def replay(
    folder: Path,
    backend: str,
    *,
    settings: Settings,
    filters: Filters | None = None,
    trace: str = "",
    is_again: bool = False,
    is_removing: bool = False,
    patience: float = 60.0,
    policy: RetryPolicy | None = None,
    show: Callable[[str, Total], AbstractContextManager[Progress]],
) -> Replay:
    """Send the trajectories of a folder to a backend, without those that it has confirmed before.

    Args:
        folder: A trace folder, or a spool.
        backend: The exporter's name.
        settings: The bounds of a batch.
        filters: The filters of trajectories; without one, all.
        trace: The beginning of the trace id; empty for all.
        is_again: Send also what was delivered before.
        is_removing: Remove each file of a spool once all in it is delivered.
        patience: Seconds without anything delivered after which a backend that can't be reached is given up.
        policy: The policy of retries.
        show: Makes the progress from the backend's name and the total.

    Raises:
        ConfigurationError: The exporter can't work, the folder and the arguments don't go together, or another replay
            of it is running.
        NoTracesError: The folder holds no traces.
    """
    wanted: Filters = filters or {}
    is_filtered = bool(trace) or any(value is not None for value in wanted.values())
    # An earlier replay may have emptied the spool.
    is_of_spool = is_spool(folder, may_be_empty=is_removing)
    if is_removing and (is_filtered or not is_of_spool):
        reason = "it goes without filters" if is_filtered else f"{folder} is a trace folder, which keeps its traces"
        raise ConfigurationError(f"--remove empties a spool: {reason}")
    if is_of_spool:
        folder = spool_of(folder, backend)
    ((_, exporter),) = backends.make_exporters([backend])
    ours = exporter if isinstance(exporter, OutcomeSpanExporter) else None
    destination = destination_of(exporter)
    if destination is not None:
        _refuse_itself(folder, backend, Path(destination), is_emptied=is_removing)
    source = TrajectorySource(folder, wanted, trace)
    if ours is not None:
        ours.expect_repeats()
    log = DeliveredLog(folder, backend, destination, is_ignored=is_again)
    limits = QueueLimits(batch_bytes=settings.max_batch_bytes, batch_spans=settings.max_batch_spans)
    sender = Sender(source, exporter, log, limits, patience=patience, policy=policy)
    started = monotonic()
    is_interrupted = False
    notes: list[str] = []
    try:
        total = source.total()
        with show(backend, total) as sender.on_progress:
            try:
                sender.run()
            except KeyboardInterrupt:
                is_interrupted = True
                sender.report.untried = max(0, total.units - sender.report.settled)
        if is_removing and not is_interrupted:
            notes = remove_delivered(folder, source.final - source.kept)
            if not files_in(folder):
                log.forget()
    finally:
        log.close()
        sender.close(is_interrupted=is_interrupted)
    sender.report.seconds = monotonic() - started
    notes += source.notes() + ([log.trouble] if log.trouble else [])
    return Replay(backend, destination, sender.report, notes, is_interrupted)


def _refuse_itself(folder: Path, backend: str, there: Path, *, is_emptied: bool) -> None:
    """Refuse a destination in which the folder's traces would be twice: the folder, one in it, or one around it."""
    own = folder.resolve()
    if own == there:
        raise ConfigurationError(f"{backend} writes to {folder} itself: replay it to another folder")
    if own in there.parents:
        raise ConfigurationError(f"{backend} writes to {there}, within {folder} itself: replay it to another folder")
    # A spool may lie in the folder that it is emptied into.
    if there.is_absolute() and there in own.parents and not is_emptied:
        raise ConfigurationError(f"{backend} writes to {there}, and {folder} is in there: replay it to another folder")
