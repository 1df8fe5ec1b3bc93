"""Hashes of messages, equal for equal content whatever ids and times come with it.

They are 32 bits; 0 stands for content that is not recorded.
"""

from __future__ import annotations

import re
from typing import Any, Final
from zlib import crc32

_TEXT: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_IDS: Final = (
    "item_id|tool_call_id|call_id|tool_use_id|request_id|response_id|message_id|conversation_id|session_id|trace_id"
)
_TIMES: Final = (
    "created|created_at|updated_at|started_at|ended_at|finished_at|completed_at|timestamp|time_stamp|start_time"
    "|end_time|elapsed|elapsed_ms|elapsed_seconds|latency|latency_ms|duration_ms"
)
_ENDINGS: Final = frozenset(f'{name[-2:]}"' for name in f"id|{_IDS}|{_TIMES}|finish_reason".split("|"))
"""The ends of all these names: an object without them has no ids and no times."""
_MAX_COLONS: Final = 64


def _members(names: str) -> str:
    """Return a pattern for members of a JSON object, with one comma before or after them."""
    member = rf'"(?:{names})":\s?(?:null|-?\d[-+.\deE]*|{_TEXT})'
    return f"{member},|,?{member}"


# Inside a string quotes are escaped, so these match members of objects only.
_CALL_ID: Final = (
    r'(?<="type":"tool_call",)"id":(?:null|"[^"\\]*"),?|(?<="type":"tool_call_response",)"id":(?:null|"[^"\\]*"),?'
    r'|"id":\s?"(?:call|chatcmpl|cmpl|fc|gen|msg|req|resp|run|toolu)[-_][^"\\]*",?'
)
_OF_OUTPUTS: Final = re.compile(f"{_CALL_ID}|{_members(f'{_IDS}|{_TIMES}|finish_reason|stop_reason')}")
_OF_CALLS: Final = re.compile(_members(_IDS))
_RESPONSE_TEXT: Final = '{"response_text":'
_STRING: Final = re.compile(rf"\s?({_TEXT})", re.DOTALL)
_TOKENS: Final = ('"token_ids":[', '"response_ids":[', '"output_ids":[')

_REASON: Final = ',"finish_reason":"'
_MAX_REASON: Final = 64
PRIME: Final = 0x01000193
"""The hash of a turn is multiplied with it before a result's hash is added, as in FNV."""
UINT32_MAX: Final = 2**32 - 1


def output_hash(messages: Any, value: Any) -> int:
    """Return the hash of a generation's output: its messages, else its text, tokens or payload.

    Args:
        messages: `gen_ai.output.messages`.
        value: `output.value`.
    """
    if type(messages) is str and messages:
        # Our own form, in which the finish reason is the last member.
        end = messages.rfind(_REASON, -_MAX_REASON)
        if end > 0 and "{" not in messages[end:]:
            messages = messages[:end]
        return _hash(_without_ids(messages))
    if type(value) is not str or not value:
        return 0
    if value[0] == "{":
        if value.startswith(_RESPONSE_TEXT) and (found := _STRING.match(value, len(_RESPONSE_TEXT))):
            return _hash(found[1])
        # One attempt at each: hostile text could begin thousands.
        for key in _TOKENS if "[" in value else ():
            start = value.find(key)
            if start >= 0 and (end := value.find("]", start)) >= 0:
                return _hash(value[start + len(key) : end])
    return _hash(_without_ids(value))


def result_hash(value: Any) -> int:
    """Return the hash of a tool's result, `output.value`."""
    return _hash(_without_ids(value)) if type(value) is str and value else 0


def call_hash(tool: str, arguments: Any) -> int:
    """Return the hash of a tool's name and its arguments, `input.value`."""
    if type(arguments) is not str or not arguments:
        return 0
    if '_id":' in arguments:
        arguments = _OF_CALLS.sub("", arguments)
    return crc32(arguments.encode("utf-8", "surrogatepass"), _hash(tool) if tool else 0) or 1


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass")) or 1


def _without_ids(text: str) -> str:
    if text[0] in "{[":
        # A search for one character is faster than any other.
        at, colons = text.find(":"), 0
        while at >= 0:
            colons += 1
            if (text[at - 3 : at] in _ENDINGS and not text.startswith("null", at + 1)) or colons > _MAX_COLONS:
                return _OF_OUTPUTS.sub("", text)
            at = text.find(":", at + 1)
    return text
