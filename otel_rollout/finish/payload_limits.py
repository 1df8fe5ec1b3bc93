"""Limits of a payload's JSON text, on the delivery thread: its length, inline media, wide integers.

Each function returns a new text. A check is one pass in C over the bytes; the text is parsed only if a check hits.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, islice
from typing import Any, Final

from otel_rollout.guard.provenance import is_programs
from otel_rollout.text.plain_json import dumps, loads
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import fits_int64

_DATA_URI: Final = re.compile(rb"data:([\w/+.;=-]{0,100});base64,[A-Za-z0-9+/=_-]{1024,}")
_BARE_BASE64: Final = re.compile(rb'"(data|b64_json)":"[A-Za-z0-9+/=_-]{1024,}"')
"""Keys of images and audio without a data URI in the APIs of OpenAI, Anthropic and MCP."""
_MEDIA_BASE64: Final = re.compile(
    rb'"(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR|JVBERi0|SUQz|T2dnUw|ZkxhQ|AAAA..Z0eX)[A-Za-z0-9+/=_-]{1000,}(?=\\*")'
)
"""Base64 of a PNG, JPEG, GIF, WebP, WAV, PDF, MP3, Ogg, FLAC or MP4, by its first bytes, under any key."""
_BASE64_BYTES: Final = bytes(
    0x30 if (chr(code).isalnum() and code < 0x80) or code in b"+/=_-" else 0x20 for code in range(256)
)
_LONG_BASE64: Final = b"0" * 126
"""Every eighth byte of a thousand bytes of base64 in a row."""
_DIGITS: Final = bytes(0x30 if 0x30 <= code <= 0x39 else code for code in range(256))
_NINETEEN_DIGITS: Final = b"0" * 19
_SOME_DIGITS: Final = b"000"
"""Every sixth byte of nineteen digits in a row."""
_NOTE_BYTES: Final = 48
"""The longest note of a cut."""
_READABLE_BYTES: Final = 200
"""The least share of a long item, if there is room: fewer readable items rather than only notes."""


def cut_media(json_bytes: bytes) -> bytes:
    """Return a JSON text with inline media (`data:…;base64,…`) of a kilobyte or more replaced by its type and size."""
    if _LONG_BASE64 not in json_bytes[::8].translate(_BASE64_BYTES):
        return json_bytes
    json_bytes = _DATA_URI.sub(lambda match: b"data:%s;base64,[%d bytes cut]" % (match[1], len(match[0])), json_bytes)
    json_bytes = _BARE_BASE64.sub(
        lambda match: b'"%s":"[%d bytes of base64 cut]"' % (match[1], len(match[0])), json_bytes
    )
    return _MEDIA_BASE64.sub(lambda match: b'"[%d bytes of base64 cut]' % len(match[0]), json_bytes)


def narrow_integers(json_bytes: bytes) -> bytes:
    """Return a JSON text with integers over 64 bits as texts: MLflow can't read them back as numbers."""
    if not _may_have_wide_integers(json_bytes):
        return json_bytes
    try:
        return dumps(_narrow(loads(json_bytes)))
    except (ValueError, TypeError, RecursionError) as error:
        if is_programs(error):
            raise
        return _cut_whole(json_bytes, len(json_bytes))


def _may_have_wide_integers(json_bytes: bytes) -> bool:
    if _SOME_DIGITS not in json_bytes[::6].translate(_DIGITS):
        return False
    digits = json_bytes.translate(_DIGITS)
    place = digits.find(_NINETEEN_DIGITS)
    # The fraction of a log-prob may have as many digits.
    while place > 0 and json_bytes[place - 1] == ord("."):
        place = digits.find(_NINETEEN_DIGITS, place + len(_NINETEEN_DIGITS))
    return place >= 0


def _narrow(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _narrow(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_narrow(item) for item in value]
    if isinstance(value, int) and not fits_int64(value):
        return str(value)
    return value


def cut_json(json_bytes: bytes, limit: int) -> bytes:
    """Return `json_bytes` cut to at most `limit` bytes, still valid JSON, with a note at each cut.

    Long texts lose their middle, long lists and objects their end; the longest first, so that short values stay. Under
    5 bytes there is no room for a note.
    """
    if len(json_bytes) <= limit:
        return json_bytes
    try:
        result = dumps(_fit(loads(json_bytes), limit))
    except (ValueError, TypeError, RecursionError) as error:
        if is_programs(error):
            raise
        # Not JSON, or nested deeper than orjson can write.
        return _cut_whole(json_bytes, limit)
    return result if len(result) <= limit else _cut_whole(json_bytes, limit)


def _fit(value: Any, budget: int) -> Any:
    """Return a copy of `value`, which is larger than `budget` bytes as JSON, cut to about that."""
    if isinstance(value, str):
        return _fit_text(value, budget)
    if isinstance(value, list):
        # An item takes at least two bytes.
        sizes = [_size(item) for item in value[: budget // 2]]
        kept, share = _share(sizes, 1, budget)
        items = [item if size <= share else _fit(item, share) for item, size in zip(value[:kept], sizes, strict=False)]
        if kept < len(value):
            items.append(f"…[{len(value) - kept:,} items cut]")
        return items
    if isinstance(value, dict):
        keys = [key if len(key) <= budget // 4 else cut_text(key, budget // 8) for key in islice(value, budget // 2)]
        sizes = [_size(item) for item in islice(value.values(), budget // 2)]
        extra = [_size(key) + 2 for key in keys]
        kept, share = _share(sizes, extra, budget)
        pairs = {
            key: item if size <= share else _fit(item, share)
            for key, item, size in zip(keys[:kept], value.values(), sizes, strict=False)
        }
        if kept < len(value):
            pairs["…"] = f"[{len(value) - kept:,} keys cut]"
        return pairs
    return value


def _share(sizes: list[int], extra: int | list[int], budget: int) -> tuple[int, int]:
    """Return the number of items that are kept, from the first, and the most bytes of each.

    Args:
        sizes: The bytes of each item.
        extra: The bytes of each key and comma.
        budget: The bytes of all together.
    """
    extras = extra if isinstance(extra, list) else [extra] * len(sizes)
    least = max(_NOTE_BYTES, min(_READABLE_BYTES, budget // 4))
    needed = [min(size, least) + more for size, more in zip(sizes, extras, strict=True)]
    left = budget - 2
    kept = len(needed)
    if sum(needed) > left:
        left -= _NOTE_BYTES
        kept = bisect_right(list(accumulate(needed)), left)
    left -= sum(extras[:kept])
    for position, size in enumerate(sorted(sizes[:kept])):
        share = left // (kept - position)
        if size > share:
            return kept, share
        left -= size
    return kept, max(sizes, default=0)


def _fit_text(text: str, budget: int) -> str:
    characters = min(len(text), budget)
    while characters > 0:
        # One character takes one to six bytes.
        shorter = cut_text(text, characters)
        over = _size(shorter) - budget
        if over <= 0:
            return shorter
        characters = min(characters - 1, characters - over // 6, int(characters * budget / (budget + over)))
    return "…"


def _size(value: Any) -> int:
    return len(dumps(value))


def _cut_whole(json_bytes: bytes, limit: int) -> bytes:
    """Return the beginning of any text as a JSON text of at most `limit` bytes."""
    head = _fit_text(json_bytes.decode("utf-8", "replace"), limit)
    result = dumps(head)
    return result if len(result) <= limit else b"0"
