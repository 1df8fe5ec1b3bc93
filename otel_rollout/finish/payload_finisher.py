"""A payload's JSON text as it is exported: redacted, without media, within the limits."""

from __future__ import annotations

from typing import Any, NamedTuple

from otel_rollout.finish.payload_limits import (
    cut_json,
    cut_json_characters,
    cut_media,
    may_need_cleaning,
    narrow_integers,
)
from otel_rollout.finish.redaction import Redactor
from otel_rollout.guard.log_once import internal_error
from otel_rollout.record.trajectory_state import TrajectoryState
from otel_rollout.text.plain_json import dumps, loads


class FinishedText(NamedTuple):
    """A payload's JSON text as it is exported.

    Args:
        json_bytes: The text.
        cut: The number of bytes cut from it.
        redacted: The number of secrets replaced in it.
    """

    json_bytes: bytes
    cut: int
    redacted: int


class FinishCounts:
    """Counts what limits and redaction took from the spans of the process."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Count from zero."""
        self.truncated_bytes = self.redacted = 0

    def add(self, trajectory: TrajectoryState | None, cut: int, redacted: int) -> None:
        """Count for the process, and for the trajectory, whose root reports it.

        Args:
            trajectory: The span's trajectory, if it has one.
            cut: Bytes and characters that were cut.
            redacted: Secrets that were replaced.
        """
        self.truncated_bytes += cut
        self.redacted += redacted
        if trajectory is not None:
            trajectory.truncated_bytes += cut
            trajectory.redacted += redacted


class PayloadFinisher:
    """Redacts and cuts the JSON text of a payload.

    Args:
        max_bytes: Bytes that a text may have; longer ones are cut inside the JSON.
        redactor: Replaces secrets.
        max_characters: Characters that a text may have, if OpenTelemetry's limit of attributes is set.
    """

    def __init__(self, max_bytes: int, redactor: Redactor | None, max_characters: int | None = None) -> None:
        self.max_bytes = max_bytes
        self.max_characters = max_characters
        self.redactor = redactor

    @property
    def limit(self) -> int:
        """Bytes that fit both limits, whatever the characters are."""
        return self.max_bytes if self.max_characters is None else min(self.max_bytes, self.max_characters)

    def is_clean(self, json_bytes: bytes) -> bool:
        """Return True if `json_bytes` (one or more JSON texts) needs no change, as is usual."""
        return (
            len(json_bytes) <= self.limit
            and not may_need_cleaning(json_bytes)
            and not (self.redactor is not None and self.redactor.may_find(json_bytes))
        )

    def finish(self, json_bytes: bytes) -> FinishedText:
        """Return the finished text; on an error, a note in place of it."""
        try:
            clean, redacted = self._clean(json_bytes)
            return FinishedText(*self.cut(clean), redacted)
        except Exception:
            # The span is still sent.
            internal_error("finishing a payload")
            return FinishedText(dumps("…[the payload could not be read]"), max(0, len(json_bytes) - 40), 0)

    def clean(self, json_bytes: bytes) -> tuple[Any, int]:
        """Return the value of a JSON text without secrets and media, its texts uncut, and the number of secrets."""
        clean, redacted = self._clean(json_bytes)
        return loads(clean), redacted

    def cut(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return a clean JSON text within the limits, and the number of bytes cut from it."""
        finished = cut_json(json_bytes, self.max_bytes)
        if self.max_characters is not None:
            finished = cut_json_characters(finished, self.max_characters)
        return finished, max(0, len(json_bytes) - len(finished))

    def _clean(self, json_bytes: bytes) -> tuple[bytes, int]:
        json_bytes = narrow_integers(cut_media(json_bytes))
        return (json_bytes, 0) if self.redactor is None else self.redactor(json_bytes)


def plain_text(json_bytes: bytes) -> bytes | None:
    """Return the text of a JSON string, as backends show it; None if the JSON is another value."""
    return loads(json_bytes).encode() if json_bytes[:1] == b'"' else None
