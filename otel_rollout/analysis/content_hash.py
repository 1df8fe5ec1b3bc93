"""Hashes of what was said, equal for equal content whatever ids and times stand beside it."""

from __future__ import annotations

import re
from typing import Final
from zlib import crc32

__all__ = ["call_hash", "hash_of", "output_hash", "result_hash"]

_TEXT: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_IDS: Final = "tool_call_id|call_id|tool_use_id|request_id|response_id|message_id|conversation_id|session_id|trace_id"
_TIMES: Final = (
    "created|created_at|updated_at|started_at|ended_at|finished_at|completed_at|timestamp|time_stamp|start_time|end_time"
    "|elapsed|elapsed_ms|elapsed_seconds|latency|latency_ms|duration_ms"
)


def _field(names: str) -> str:
    """Return a pattern for members of a JSON object, with one comma beside them."""
    member = rf'"(?:{names})":(?:null|-?\d[-+.\deE]*|{_TEXT})'
    return f"{member},|,?{member}"


_CALL_ID: Final = (
    r'(?<="type":"tool_call",)"id":(?:null|"[^"\\]*"),?'
    r'|(?<="type":"tool_call_response",)"id":(?:null|"[^"\\]*"),?'
    r'|"id":"(?:call|chatcmpl|cmpl|fc|gen|msg|req|resp|run|toolu)[-_][^"\\]*",?'
)
# Inside a string quotes are escaped, so these match members of objects alone.
_OF_OUTPUTS: Final = re.compile(f"{_CALL_ID}|{_field(f'{_IDS}|{_TIMES}|finish_reason|stop_reason')}")
_OF_CALLS: Final = re.compile(_field(_IDS))
_HAS_IDS: Final = ('"id":', '_id":', '_reason":', '"created', '_at":', "time", '"elapsed', '"latency', '_ms":')
_RESPONSE_TEXT: Final = re.compile(rf'"response_text":({_TEXT})')
_TOKENS: Final = re.compile(r'"(?:token_ids|response_ids|output_ids)":\[([^\]]*)\]')


def hash_of(text: str) -> str:
    """Return eight hexadecimal digits for a text."""
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def output_hash(messages: str | None, value: str | None) -> str:
    """Return the hash of what a generation said: its messages, else its text, its tokens, or its payload.

    Args:
        messages: `gen_ai.output.messages`.
        value: `output.value`.
    """
    if messages:
        return hash_of(_without_ids(messages))
    if not value:
        return ""
    if value[0] == "{" and (found := _RESPONSE_TEXT.search(value) or _TOKENS.search(value)):
        return hash_of(found[1])
    return hash_of(_without_ids(value))


def result_hash(value: str | None) -> str:
    """Return the hash of a tool's result, `output.value`."""
    return hash_of(_without_ids(value)) if value else ""


def call_hash(tool: str, arguments: str | None) -> str:
    """Return the hash of a tool call; empty if its arguments are not recorded."""
    if not arguments:
        return ""
    if arguments[0] == "{" and '_id":' in arguments:
        arguments = _OF_CALLS.sub("", arguments)
    return hash_of(f"{tool}\0{arguments}")


def _without_ids(text: str) -> str:
    if text[0] in "{[" and any(mark in text for mark in _HAS_IDS):
        return _OF_OUTPUTS.sub("", text)
    return text
