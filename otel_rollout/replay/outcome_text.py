"""What came of a replay, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from otel_rollout.plain_text import counted
from otel_rollout.replay.session import Replay

__all__ = ["describe"]

_REASONS: Final = {
    "denied": "turned away",
    "unreachable": "not sent, because the backend took nothing for too long",
    "refused": "refused as invalid",
    "too_large": "refused as too large",
    "rejected": "taken and not kept",
    "export_failed": "failed without a reason",
}


def describe(replay: Replay) -> Iterator[str]:
    """Return the lines.

    Args:
        replay: The replay.
    """
    report = replay.report
    where = f", {replay.destination}" if replay.destination else ""
    units = counted(report.delivered, replay.unit_name)
    yield f"{replay.backend}{where}: {units} delivered ({counted(report.spans, 'span')}) in {report.seconds:.1f} s"
    if report.skipped:
        yield f"  {report.skipped:,} delivered before, and not sent again (--again sends all once more)"
    if report.shrunk:
        yield f"  {counted(report.shrunk, 'span')} with the payload cut: the backend refused it whole"
    if report.undelivered:
        yield f"  {counted(report.undelivered, replay.unit_name)} not delivered, or not whole:"
        for reason, count in sorted(report.lost.items()):
            if count:
                yield f"    {counted(count, 'span')} {_REASONS.get(reason, reason)}"
    if report.unreadable:
        yield f"  {counted(report.unreadable, replay.unit_name)} could not be read"
    if replay.is_interrupted:
        yield f"  interrupted: {counted(report.untried, replay.unit_name)} not tried; run it again to go on"
    elif report.untried:
        yield f"  {counted(report.untried, replay.unit_name)} not tried any more"
    if report.reason and not report.is_whole and not any(report.reason in note for note in replay.notes):
        yield f"  {report.reason}"
    for note in replay.notes:
        yield f"  {note}"
