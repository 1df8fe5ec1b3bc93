"""What a payload's JSON text must keep to before it leaves the process, on the delivery thread.

Everything here takes and returns JSON text; each check is one pass in C over the bytes, and the text is parsed only
where a check hits.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from otel_rollout.payload import cut_text

__all__ = ["cut_json", "cut_media", "narrow_integers"]

_LONG_DATA_URI: Final = re.compile(rb"data:([\w/+.;=-]{0,100});base64,[A-Za-z0-9+/=_\\-]{256,}")
_DIGITS: Final = bytes(0x30 if 0x30 <= code <= 0x39 else code for code in range(256))
_NINETEEN_DIGITS: Final = b"0" * 19


def cut_media(text: bytes) -> bytes:
    """Return `text` with inline media (`data:…;base64,…`) replaced by its type and size.

    Args:
        text: JSON in UTF-8.
    """
    if b";base64," not in text:
        return text
    return _LONG_DATA_URI.sub(lambda match: b"data:%s;base64,[%d bytes cut]" % (match[1], len(match[0])), text)


def narrow_integers(text: bytes) -> bytes:
    """Return `text` with each integer outside 64 signed bits as a text: MLflow can't read such a trace back.

    Args:
        text: JSON in UTF-8.
    """
    if _NINETEEN_DIGITS not in text.translate(_DIGITS):
        return text
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return orjson.dumps(_narrow(value))


def _narrow(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _narrow(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_narrow(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value


def cut_json(text: bytes, limit: int) -> bytes:
    """Return `text` cut to at most `limit` bytes, still valid JSON, with a note wherever something was cut.

    Long strings lose their middle, long lists and objects their end; the longest first, so that short values stay.

    Args:
        text: JSON in UTF-8.
        limit: Bytes.
    """
    if len(text) <= limit:
        return text
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _cut_whole(text, limit)
    characters, items = max(limit // 2, 16), max(limit // 4, 8)
    while True:
        value = _cut_value(value, characters, items)
        result = orjson.dumps(value)
        if len(result) <= limit:
            return result
        if characters <= 16 and items <= 2:
            return _cut_whole(text, limit)
        characters, items = max(characters // 2, 16), max(items // 2, 2)


def _cut_value(value: Any, characters: int, items: int) -> Any:
    if isinstance(value, str):
        # A cut text is a little longer than asked for; leaving it alone lets the halving come to an end.
        return cut_text(value, characters) if len(value) > characters + 40 else value
    if isinstance(value, list):
        kept = [_cut_value(item, characters, items) for item in value[:items]]
        if len(value) > items:
            kept.append(_note(value, items))
        return kept
    if isinstance(value, dict):
        pairs = list(value.items())
        kept_pairs = {key[:characters]: _cut_value(item, characters, items) for key, item in pairs[:items]}
        if len(pairs) > items:
            kept_pairs["…"] = f"[{len(pairs) - items:,} keys cut]"
        return kept_pairs
    return value


def _note(value: list[Any], items: int) -> str:
    cut = len(value) - items
    last = value[-1]
    if isinstance(last, str) and last.startswith("…[") and last.endswith(" items cut]"):
        earlier = int(last[2 : -len(" items cut]")].replace(",", ""))
        cut += earlier - 1
    return f"…[{cut:,} items cut]"


def _cut_whole(text: bytes, limit: int) -> bytes:
    note = f"…[{len(text):,} bytes cut]"
    head = text[: max(0, limit // 2 - len(note))].decode("utf-8", "ignore")
    result = orjson.dumps(head + note)
    while len(result) > limit and head:
        head = head[: len(head) // 2]
        result = orjson.dumps(head + note)
    return result if len(result) <= limit else b'"\xe2\x80\xa6"'[: max(limit, 0)] if limit >= 5 else b"0"
