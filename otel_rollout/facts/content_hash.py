"""Hashes of outputs and calls, equal for equal content whatever ids and times come with it.

They are 32 bits; 0 stands for content that is not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from zlib import crc32

import orjson

from otel_rollout.messages import Message

_TEXT: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_IDS: Final = (
    "item_id|tool_call_id|call_id|tool_use_id|request_id|response_id|message_id|conversation_id|session_id|trace_id"
)
_TIMES: Final = (
    "created|created_at|updated_at|started_at|ended_at|finished_at|completed_at|timestamp|time_stamp|start_time"
    "|end_time|elapsed|elapsed_ms|elapsed_seconds|latency|latency_ms|duration_ms"
)
_OF_PAYLOADS: Final = re.compile(
    # Inside a string quotes are escaped, so these match members of objects only.
    rf'"(?:(?:{_IDS}|{_TIMES}|finish_reason|stop_reason)":\s?(?:null|-?\d[-+.\deE]*|{_TEXT})'
    r'|id":\s?"(?:call|chatcmpl|cmpl|fc|gen|msg|req|resp|run|toolu)[-_][^"\\]*"),?'
)
_OF_CALLS: Final = re.compile(rf'"(?:{_IDS})":\s?(?:null|-?\d[-+.\deE]*|{_TEXT}),?')
_TOKENS: Final = ('"token_ids":[', '"response_ids":[', '"output_ids":[')


def answer_hash(messages: Iterable[Message]) -> int:
    """Return the hash of an answer's messages: their roles and parts, without the ids of calls."""
    hashed = 0
    for message in messages:
        hashed = crc32(message.role.encode("utf-8", "replace"), hashed)
        for part in message.parts:
            said = part.get("content") if part.get("type") == "text" else None
            if type(said) is not str:
                said = orjson.dumps({key: item for key, item in part.items() if key != "id"}, default=str).decode()
            hashed = crc32(said.encode("utf-8", "replace"), hashed)
    return hashed or 1


def payload_hash(text: str) -> int:
    """Return the hash of a payload: of its token ids, if it has some, else without the ids of calls and the times."""
    if not text:
        return 0
    if text[0] in "{[":
        # One attempt at each: hostile text could begin thousands.
        for key in _TOKENS:
            start = text.find(key)
            if start >= 0 and (end := text.find("]", start)) >= 0:
                return _hash(text[start + len(key) : end])
        text = _OF_PAYLOADS.sub("", text)
    return _hash(text)


def call_hash(tool: str, arguments: str) -> int:
    """Return the hash of a tool's name and its arguments."""
    if not arguments:
        return 0
    if '_id":' in arguments:
        arguments = _OF_CALLS.sub("", arguments)
    return crc32(arguments.encode("utf-8", "surrogatepass"), _hash(tool) if tool else 0) or 1


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass")) or 1
