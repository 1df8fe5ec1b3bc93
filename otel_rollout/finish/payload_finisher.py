"""A payload's JSON text as it is exported: redacted, without media, within the limits."""

from __future__ import annotations

from typing import Any

from otel_rollout.finish.payload_limits import (
    cut_json,
    cut_json_characters,
    cut_media,
    may_need_cleaning,
    narrow_integers,
)
from otel_rollout.finish.redaction import Redactor
from otel_rollout.guard.log_once import internal_error
from otel_rollout.text.plain_json import dumps, loads


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
        self.truncated_bytes = 0

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

    def finish(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return the finished text and the number of bytes cut from it; on an error, a note in place of the text."""
        try:
            return self.cut(self._clean(json_bytes))
        except Exception:
            # The span is still sent.
            internal_error("finishing a payload")
            return dumps("…[the payload could not be read]"), max(0, len(json_bytes) - 40)

    def clean(self, json_bytes: bytes) -> Any:
        """Return the value of a JSON text, without secrets and media; its texts are not cut."""
        return loads(self._clean(json_bytes))

    def cut(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return a clean JSON text within the limits, and the number of bytes cut from it."""
        finished = cut_json(json_bytes, self.max_bytes)
        if self.max_characters is not None:
            finished = cut_json_characters(finished, self.max_characters)
        return finished, max(0, len(json_bytes) - len(finished))

    def _clean(self, json_bytes: bytes) -> bytes:
        json_bytes = narrow_integers(cut_media(json_bytes))
        return json_bytes if self.redactor is None else self.redactor(json_bytes)


def plain_text(json_bytes: bytes) -> bytes | None:
    """Return the text of a JSON string, as backends show it; None if the JSON is another value."""
    return loads(json_bytes).encode() if json_bytes[:1] == b'"' else None
