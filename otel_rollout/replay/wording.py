"""What came of a replay, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

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
    units = _count(report.delivered, replay.unit_name)
    yield f"{replay.backend}{where}: {units} delivered ({_count(report.spans, 'span')}) in {report.seconds:.1f} s"
    if report.skipped:
        yield f"  {report.skipped:,} delivered before, and not sent again (--again sends all once more)"
    if report.shrunk:
        yield f"  {_count(report.shrunk, 'span')} with the payload cut: the backend refused it whole"
    if report.undelivered:
        yield f"  {_count(report.undelivered, replay.unit_name)} not delivered, or not whole:"
        for reason, count in sorted(report.lost.items()):
            if count:
                yield f"    {_count(count, 'span')} {_REASONS.get(reason, reason)}"
    if report.unreadable:
        yield f"  {_count(report.unreadable, replay.unit_name)} could not be read"
    if replay.is_interrupted:
        yield f"  interrupted: {_count(report.untried, replay.unit_name)} not tried; run it again to go on"
    elif report.untried:
        yield f"  {_count(report.untried, replay.unit_name)} not tried any more"
    if report.reason and not report.is_whole and not any(report.reason in note for note in replay.notes):
        yield f"  {report.reason}"
    for note in replay.notes:
        yield f"  {note}"


def _count(number: int, noun: str) -> str:
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun}"
