"""Messages in decoded text: a prompt that a known chat template wrote, and a model's answer to it.

A text is taken apart only if all of it is in a template's form; otherwise it stays one part.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from otel_rollout.messages.message_aliases import CHAT_TEMPLATES, ROLES, ChatTemplate
from otel_rollout.messages.message_reading import text_message

__all__ = ["answer_message", "prompt_messages", "tool_results"]

_ROLES: Final = frozenset({"assistant", "developer", "ipython", "system", "tool", "user", *ROLES})
_BOS: Final = ("<|begin_of_text|>", "<|endoftext|>", "<s>")
_MAX_LEFT_OVER: Final = 32
"""Characters of a thinking mark that a template writes after the last role."""
_CALLS: Final = re.compile(r"\s*<tool_call>\s*(\{.*?\})\s*</tool_call>\s*", re.DOTALL)
_RESULTS: Final = re.compile(r"\s*<tool_response>\n?(.*?)\n?</tool_response>\s*", re.DOTALL)
_THOUGHT: Final = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


def prompt_messages(text: str) -> list[dict[str, Any]]:
    """Return the messages in a decoded prompt; one of the user's if it is in no known template's form.

    Args:
        text: The prompt, or the part of it that is new.
    """
    for template in CHAT_TEMPLATES:
        if template.start in text:
            messages = _read(text, template)
            if messages is not None:
                return messages
    return [text_message("user", text)]


def answer_message(text: str, finish_reason: str) -> dict[str, Any]:
    """Return the message of a decoded answer, without the mark of its end.

    Args:
        text: The answer.
        finish_reason: The finish reason; empty if it is unknown.
    """
    for template in CHAT_TEMPLATES:
        if text.endswith(template.end):
            text = text[: -len(template.end)]
            break
    return {"role": "assistant", "parts": _answer_parts(text), "finish_reason": finish_reason}


def tool_results(text: str) -> list[str]:
    """Return the results of tools that a text consists of; empty if it has anything else."""
    return _whole_matches(_RESULTS, text)


def _read(text: str, template: ChatTemplate) -> list[dict[str, Any]] | None:
    """Return the messages of a text that is completely in a template's form, else None."""
    for mark in _BOS:
        text = text.removeprefix(mark)
    # The turn before may have ended with the mark alone.
    text = text.lstrip("\n").removeprefix(template.end)
    messages: list[dict[str, Any]] = []
    position = 0
    while position < len(text):
        start = text.find(template.start, position)
        if text[position : start if start >= 0 else len(text)].strip():
            return None
        if start < 0:
            break
        middle = text.find(template.middle, start + len(template.start))
        role = text[start + len(template.start) : middle]
        if middle < 0 or role not in _ROLES:
            return None
        content_start = middle + len(template.middle)
        end = text.find(template.end, content_start)
        if end < 0:
            # The header of the answer.
            is_header = role in ("assistant", "model") and len(text) - content_start <= _MAX_LEFT_OVER
            return messages or None if is_header else None
        content = text[content_start:end]
        if template.start in content and template.start != "<|":
            return None
        messages += _messages(ROLES.get(role, "tool" if role == "ipython" else role), content)
        position = end + len(template.end)
    return messages or None


def _messages(role: str, content: str) -> list[dict[str, Any]]:
    if role == "assistant":
        return [{"role": role, "parts": _answer_parts(content)}]
    if role == "tool":
        return [{"role": role, "parts": [{"type": "tool_call_response", "id": None, "response": content}]}]
    results = tool_results(content)
    if results:
        # Qwen's template writes the results of tools as the user's.
        return [
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": None, "response": result}]}
            for result in results
        ]
    return [text_message(role, content)]


def _answer_parts(text: str) -> list[dict[str, Any]]:
    """Return the parts of an answer: a thought and tool calls if their marks are whole, else its text."""
    parts: list[dict[str, Any]] = []
    thought = _THOUGHT.match(text)
    rest = text
    if thought is not None:
        parts.append({"type": "reasoning", "content": thought[1].strip()})
        rest = text[thought.end() :]
    said, mark, after = rest.partition("<tool_call>")
    calls = [_call(call) for call in _whole_matches(_CALLS, mark + after)] if mark else []
    if None in calls or (mark and not calls):
        said, calls = rest, []
    if said.strip() or not (parts or calls):
        # The template begins the calls on a line of their own.
        parts.append({"type": "text", "content": said.rstrip("\n") if calls else said})
    return [part for part in parts if part.get("content") or part["type"] != "text"] + [call for call in calls if call]


def _whole_matches(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return the first groups of the matches that cover all of a text; empty if something is left."""
    groups, position = [], 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            return []
        groups.append(match[1])
        position = match.end()
    return groups


def _call(text: str) -> dict[str, Any] | None:
    try:
        fields = orjson.loads(text)
    except ValueError:
        return None
    if set(fields) != {"name", "arguments"} or type(fields["name"]) is not str or type(fields["arguments"]) is not dict:
        return None
    return {"type": "tool_call", "id": None, **fields}
