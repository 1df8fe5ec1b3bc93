"""The text of a conversation as a chat template writes it, split into messages and tool calls.

Templates: ChatML (Qwen and many others), `<|role|>` (Phi, GLM), Llama 3, Gemma, DeepSeek; tool calls as Hermes and
Qwen write them, in `<tool_call>`.

Sources: the `chat_template` of these models' tokenizers, and
https://huggingface.co/docs/transformers/chat_templating.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from otel_rollout.messages.template_text import tool_results

__all__ = ["ToolCall", "json_of", "read_template", "split_reasoning", "split_tool_calls"]

_ROLE: Final = "system|user|assistant|tool|developer|observation|ipython|model"
_HEADERS: Final = re.compile(
    rf"<\|im_start\|>(?P<chatml>{_ROLE})\n?"
    rf"|<\|start_header_id\|>(?P<llama>{_ROLE})<\|end_header_id\|>\n*"
    rf"|<start_of_turn>(?P<gemma>{_ROLE})\n?"
    r"|<[|\uff5c](?P<deepseek>User|Assistant|System|Tool)[|\uff5c]>"
    rf"|<\|(?P<plain>{_ROLE})\|>\n?"
)
_ENDS: Final = re.compile(
    r"<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<end_of_turn>|<\|end\|>|<\|endoftext\|>|<\|end_of_text\|>|<\|begin_of_text\|>"
    r"|<[|\uff5c](?:begin|end)[\u2581_]of[\u2581_]sentence[|\uff5c]>|<bos>|<eos>"
)
_ROLES: Final = {"model": "assistant", "observation": "tool", "ipython": "tool"}
_CALL: Final = "<tool_call>"
_CALL_END: Final = "</tool_call>"
_SPACE: Final = re.compile(r"\s*")
_THINK: Final = re.compile(r"\s*<think(?:ing)?>")
_THINK_END: Final = re.compile(r"</think(?:ing)?>\s*")


class ToolCall(NamedTuple):
    """A tool call.

    Args:
        name: The tool.
        arguments: Its arguments as text: `key=value` with JSON values, or text that is no object.
        call_id: Its id, which its result repeats.
        fields: Its arguments if they are an object.
    """

    name: str
    arguments: str = ""
    call_id: str = ""
    fields: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, name: str, arguments: Any, call_id: Any = None) -> ToolCall:
        """Return a call with these arguments."""
        if isinstance(arguments, Mapping):
            text = ", ".join(f"{key}={json_of(value)}" for key, value in arguments.items())
        else:
            text = "" if arguments is None else arguments if isinstance(arguments, str) else json_of(arguments)
        return cls(name, text, str(call_id or ""), arguments if isinstance(arguments, Mapping) else None)

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


def read_template(text: str) -> list[tuple[str, str]]:
    """Return the roles and texts of a conversation in a chat template's form; empty if it has none of them.

    Args:
        text: The text of a prompt, a response, or both; text before the first role continues the assistant's.
    """
    headers = list(_HEADERS.finditer(text)) if "<" in text else []
    if not headers:
        return []
    messages: list[tuple[str, str]] = []
    before = _ENDS.sub("", text[: headers[0].start()])
    if before.strip():
        messages.append(("assistant", before))
    for header, following in zip(headers, [*headers[1:], None], strict=True):
        role = next(filter(None, header.groups())).lower()
        content = _ENDS.sub("", text[header.end() : following.start() if following else None])
        results = tool_results(content)
        if results:
            messages += [("tool", result) for result in results]
        elif content.strip() or following is not None:
            # The last header alone asks the model to generate.
            messages.append((_ROLES.get(role, role), content.rstrip("\n")))
    return messages


def split_reasoning(text: str) -> tuple[str, str]:
    """Return the reasoning that a model's text begins with, and the rest.

    It is closed or not; templates of models that always think end the prompt with the mark that opens it.
    """
    start, end = _THINK.match(text), _THINK_END.search(text)
    if start is None and (end is None or _THINK.search(text, 0, end.start())):
        return "", text
    begin = start.end() if start else 0
    return (text[begin : end.start()].strip(), text[end.end() :]) if end else (text[begin:].strip(), "")


def split_tool_calls(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Return an assistant's text without its tool calls, and the calls; a malformed one stays text."""
    text = _ENDS.sub("", text)
    calls: list[ToolCall] = []
    said: list[str] = []
    at = 0
    for start, content, end in _calls(text):
        call = _call_of(content)
        if call is not None:
            calls.append(call)
            said += (text[at:start].rstrip(), "\n")
            at = end
    said.append(text[at:])
    return "".join(said).strip("\n"), tuple(calls)


def _call_of(content: str) -> ToolCall | None:
    try:
        value = orjson.loads(content)
    except ValueError:
        return None
    if not isinstance(value, Mapping):
        return None
    name = value.get("name") or value.get("tool")
    arguments = value.get("arguments", value.get("parameters", value.get("argument")))
    return ToolCall.of(name, arguments) if isinstance(name, str) else None


def _calls(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield start, content and end of each tool call, the space behind it included, in linear time.

    A regular expression would search the whole text for the end of each of many calls that have none.
    """
    start = text.find(_CALL)
    while start >= 0:
        end = text.find(_CALL_END, start)
        if end < 0:
            return
        space = _SPACE.match(text, end + len(_CALL_END))
        following = space.end() if space is not None else end + len(_CALL_END)
        yield start, text[start + len(_CALL) : end], following
        start = text.find(_CALL, following)


def json_of(value: Any) -> str:
    """Return a value as JSON; of one that is nested too deeply, an ellipsis."""
    try:
        return orjson.dumps(value, default=str).decode()
    except (TypeError, RecursionError):
        return "…"
