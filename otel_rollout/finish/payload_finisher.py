"""A payload's JSON text as it is exported: without secrets and media, within the limits."""

from __future__ import annotations

from typing import Final

from otel_rollout.finish.payload_limits import (
    cut_json,
    cut_json_characters,
    cut_media,
    may_need_cleaning,
    narrow_integers,
)
from otel_rollout.finish.redaction import Redactor

UNREADABLE: Final = "…[the payload could not be read]"


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

    def clean(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return one or more lines, each a JSON text, without secrets and media, and the number of secrets.

        The lines themselves are returned if they have none of these, as is usual.
        """
        if may_need_cleaning(json_bytes):
            json_bytes = b"\n".join(map(narrow_integers, cut_media(json_bytes).split(b"\n")))
        return (json_bytes, 0) if self.redactor is None else self.redactor(json_bytes)

    def cut(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return a clean JSON text within the limits, and the number of bytes cut from it."""
        finished = cut_json(json_bytes, self.max_bytes)
        if self.max_characters is not None:
            finished = cut_json_characters(finished, self.max_characters)
        return finished, max(0, len(json_bytes) - len(finished))
