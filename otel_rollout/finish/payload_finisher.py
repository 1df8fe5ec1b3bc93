"""A payload's JSON text as it is exported: without secrets and media, within the limits."""

from __future__ import annotations

from typing import Final

from otel_rollout.finish.payload_limits import cut_json, cut_media, narrow_integers
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

    def without_media(self, json_bytes: bytes) -> bytes:
        """Return a JSON text without media and integers over 64 bits; itself if it has none, as is usual."""
        return narrow_integers(cut_media(json_bytes))

    def clean(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return a JSON text without media and secrets, and the number of secrets."""
        json_bytes = self.without_media(json_bytes)
        return (json_bytes, 0) if self.redactor is None else self.redactor(json_bytes)

    def most_bytes(self, json_bytes: bytes) -> int:
        """Return the most bytes of a text in place of this one: as many as characters if it has too many of these."""
        most = self.max_characters
        if most is None or len(json_bytes) <= most or len(json_bytes.decode()) <= most:
            return self.max_bytes
        return min(self.max_bytes, most)

    def cut(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return a clean JSON text within the limits, empty if there is no room, and the number of bytes cut."""
        most = self.most_bytes(json_bytes)
        finished = cut_json(json_bytes, most)
        finished = finished if len(finished) <= most else b""
        return finished, len(json_bytes) - len(finished)
