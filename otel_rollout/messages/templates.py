"""Messages in rendered text: a prompt that a chat template wrote, and a model's answer to it.

Templates: ChatML (Qwen and many others), Llama 2 and 3, Gemma, `<|role|>` (Phi, GLM, the demo), DeepSeek, Mistral,
harmony (gpt-oss); thoughts in `<think>`, tool calls in the marks of Hermes, Qwen, GLM, Mistral, Llama, Kimi, DeepSeek.
What is stored is read strictly: a text is taken apart only if all of it is in a template's form, as nothing may be
lost. Readers show what can be found.

Sources: the `chat_template` of these models' tokenizers, and https://huggingface.co/docs/transformers/chat_templating.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from otel_rollout.messages import names
from otel_rollout.messages.forms import exact_json
from otel_rollout.messages.message import Message, Part, parse_json, text_message


class _Template(NamedTuple):
    """A family of chat templates.

    A header has the role and the line breaks after it; `gap` is None if templates differ in these. `end` closes a
    message, which strictly each has if `is_closed`.
    """

    header: re.Pattern[str]
    gap: str | None
    end: str
    is_closed: bool = True


_ROLE: Final = "(?:system|user|assistant|tool|developer|observation|ipython|model|function|human|ai)"
_TEMPLATES: Final = {
    name: _Template(re.compile(header), gap, end, is_closed=name != "deepseek")
    for name, header, gap, end in (
        ("chatml", rf"<\|im_start\|>({_ROLE})(\n?)", "\n", "<|im_end|>"),
        ("llama", rf"<\|start_header_id\|>({_ROLE})<\|end_header_id\|>(\n{{0,2}})", "\n\n", "<|eot_id|>"),
        ("gemma", rf"<start_of_turn>({_ROLE})(\n?)", "\n", "<end_of_turn>"),
        ("plain", rf"<\|({_ROLE})\|>(\n?)", None, "<|end|>"),
        (
            *("deepseek", "<[|\uff5c](User|Assistant|System|Tool)[|\uff5c]>()"),
            *("", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
        ),
        ("mistral", r" ?\[(SYSTEM_PROMPT|INST|/INST|TOOL_RESULTS)\]( ?)", None, "</s>"),
    )
}
_MISTRAL: Final = _TEMPLATES["mistral"]
# A beginning that all have in common is found fast.
_OF_TAGS: Final = "|".join(
    f"(?P<{name}>{each.header.pattern[1:]})" for name, each in _TEMPLATES.items() if each is not _MISTRAL
)
_ANY_HEADER: Final = re.compile(f"<(?=[|\uff5cs])(?:{_OF_TAGS})")
_ROLES: Final = {**names.ROLES, "system_prompt": "system", "inst": "user", "/inst": "assistant", "tool_results": "tool"}
_BOS: Final = ("<|begin_of_text|>", "<bos>", "<s>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>")
_MISTRALS_BEGIN: Final = re.compile(r"(?:<s>\s*)?\[(?:INST|SYSTEM_PROMPT)\]")
_ENDS: Final = re.compile(
    r"<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<end_of_turn>|<\|end\|>|<\|endoftext\|>|<\|end_of_text\|>|<\|begin_of_text\|>"
    r"|<[|\uff5c](?:begin|end)[\u2581_]of[\u2581_]sentence[|\uff5c]>|<bos>|<eos>"
)
_ENDS_OF_ANSWERS: Final = (
    *(template.end for template in _TEMPLATES.values() if template is not _MISTRAL),
    "<|eom_id|>",
    "<|endoftext|>",
)
_SYSTEM_OF_LLAMA: Final = re.compile(r"\s*<<SYS>>\n?(.*?)\n?<</SYS>>\s*", re.DOTALL)
_HARMONY: Final = re.compile(
    r"(?:<\|start\|>(?P<start>[^<]*))?(?:<\|channel\|>(?P<channel>[^<]*))?(?:<\|constrain\|>[^<]*)?<\|message\|>"
    r"(?P<content>.*?)(?:<\|(?:end|return|call)\|>|(?=<\|start\|>)|\Z)",
    re.DOTALL,
)
_RECIPIENT: Final = re.compile(r"\bto=(?!assistant|all\b)(?:functions\.)?([\w.-]+)")
_MARKED_CALLS: Final = {
    "[TOOL_CALLS]": ("[TOOL_CALLS]", "</s>"),
    "<|python_tag|>": ("<|python_tag|>", "<|eom_id|>"),
    "<|tool_calls_section_begin|>": ("<|tool_call_begin|>", "<|tool_call_end|>"),
    "<\uff5ctool\u2581calls\u2581begin\uff5c>": (
        *("<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>"),
    ),
}
"""The calls after a mark that ends a model's words: beginning and end of each."""
_SEPARATOR: Final = "<\uff5ctool\u2581sep\uff5c>"
_MARKED_CALL: Final = re.compile(
    rf"(?:(?:function)?{_SEPARATOR})?(?P<number>(?:functions\.)?(?P<name>[\w.-]+)(?::\d+)?)\s*"
    rf"(?:\[CALL_ID\](?P<id>\w+))?(?:\[ARGS\]|<\|tool_call_argument_begin\|>|{_SEPARATOR}|```json)(?P<arguments>.*)",
    re.DOTALL,
)
"""A call after such a mark that isn't JSON."""
_MAX_CALLS: Final = 1000
_XML_NAME: Final = re.compile(r"\s*<function=([^>\s]+)>|\s*([\w.-]+)\s*(?=<arg_key>)")
_MISTRALS_ENDS: Final = re.compile(r"</?s>|\[/(?:SYSTEM_PROMPT|TOOL_RESULTS)\]")
_MAX_LEFT_OVER: Final = 32
"""Characters of a thinking mark that a template writes after the last role."""
_RESULTS: Final = re.compile(r"\s*<tool_response>\n?(.*?)\n?</tool_response>\s*", re.DOTALL)
_CALL: Final = "<tool_call>"
_CALL_END: Final = "</tool_call>"
_THINKS: Final = re.compile(r"\s*<think(?:ing)?>")
_THINK: Final = re.compile(r"<think(?:ing)?>")
_THINK_END: Final = re.compile(r"</think(?:ing)?>\s*")


def read_template(text: str, *, strict: bool = False) -> list[Message]:
    """Return the messages of a conversation in a chat template's form; empty if it is in none.

    Args:
        text: The text of a prompt, a response, or both; text before the first role continues the assistant's.
        strict: Return messages only if all of the text is in the form.
    """
    if not strict and "<|message|>" in text:
        return list(_harmony_messages(text))
    template = _template_of(text, strict=strict)
    headers = [] if template is None else list(template.header.finditer(text))
    if template is None or not headers:
        return []
    # The turn before may have ended with only the mark.
    before = text[: headers[0].start()].lstrip("\n")
    for mark in (*_BOS, "<|endoftext|>"):
        before = before.removeprefix(mark)
    before = before.lstrip("\n").removeprefix(template.end)
    messages = _before_headers(before, text, strict=strict)
    if messages is None:
        return []
    for header, following in zip_longest(headers, headers[1:]):
        role = _ROLES.get(header[1].lower(), header[1].lower())
        content = text[header.end() : None if following is None else following.start()]
        if not strict:
            content = (_MISTRALS_ENDS.sub("", content) if template is _MISTRAL else _ENDS.sub("", content)).strip("\n")
        if following is None and _is_asked(role, content, strict=strict):
            # Only the last header asks the model to generate.
            break
        if strict:
            content, end, rest = content.partition(template.end)
            if template.gap not in (None, header[2]) or rest.strip() or not (end or not template.is_closed):
                return []
        messages += _messages(role, content, strict=strict)
    return messages


def prompt_messages(text: str) -> list[Message]:
    """Return the messages in a decoded prompt; one of the user's if not all of it is in a known template's form."""
    return read_template(text, strict=True) or [text_message("user", text)]


def answer_message(text: str, finish_reason: str) -> Message:
    """Return the message of a decoded answer, without the mark of its end; the finish reason may be empty."""
    end = next(filter(text.endswith, _ENDS_OF_ANSWERS), "") if text.endswith(_ENDS_OF_ANSWERS) else ""
    return Message("assistant", answer_parts(text.removesuffix(end), strict=True), {"finish_reason": finish_reason})


def answer_parts(text: str, *, strict: bool = False, has_calls: bool = False) -> list[Part]:
    """Return the parts of a model's text: its thought, its words, its tool calls; a malformed call stays text.

    Args:
        text: The text.
        strict: Take a thought apart only if both its marks are there, and calls only if nothing else follows.
        has_calls: The message has its calls besides the text, so a call in the text is text.
    """
    text = text if strict else _ENDS.sub("", text).removesuffix("</s>")
    start, end = _THINKS.match(text), _THINK_END.search(text) if "</think" in text else None
    if end is not None and start is None and (strict or _THINK.search(text, 0, end.start())):
        end = None
    thought, said = "", text
    if end is not None:
        # Templates of models that always think end the prompt with the first mark.
        thought, said = text[start.end() if start else 0 : end.start()].strip(), text[end.end() :]
    elif start is not None and not strict:
        said = text[start.end() :]
    marked = [] if strict or has_calls else [mark for mark in _MARKED_CALLS if mark in said]
    if marked:
        said, calls = _split_marked(said, marked[0])
    else:
        said, calls = (said, []) if has_calls else _split_calls(said, strict=strict)
    if end is None and start is not None and not strict:
        thought, said = said.strip(), ""
    parts: list[Part] = [{"type": "reasoning", "content": thought}] if thought or (strict and end) else []
    if said.strip() or (said and not parts and not calls):
        parts.append({"type": "text", "content": said})
    return parts + calls


def _template_of(text: str, *, strict: bool) -> _Template | None:
    """Return the template whose header comes first."""
    if not strict and "[" in text and _MISTRALS_BEGIN.match(text):
        return _MISTRAL
    found = _ANY_HEADER.search(text) if "<" in text else None
    return None if found is None else next(_TEMPLATES[name] for name, role in found.groupdict().items() if role)


def _before_headers(before: str, text: str, *, strict: bool) -> list[Message] | None:
    """Return the message that the text before the first header is; None if strictly none may be there."""
    before = before if strict else _ENDS.sub("", before)
    if not before.strip():
        return []
    if text.startswith(_BOS[-1:] if strict else _BOS):
        # DeepSeek's system prompt has no header.
        return [text_message("system", before)]
    return None if strict else _messages("assistant", before, strict=False)


def _is_asked(role: str, content: str, *, strict: bool) -> bool:
    if strict:
        is_short = len(content) <= _MAX_LEFT_OVER
        return is_short and role == "assistant" and not any(end in content for end in _ENDS_OF_ANSWERS)
    return not _THINK_END.sub("", _THINK.sub("", content)).strip()


def _harmony_messages(text: str) -> Iterator[Message]:
    for segment in _HARMONY.finditer(text):
        start, channel = segment["start"] or "assistant", segment["channel"] or ""
        role, _, _ = start.partition(" ")
        content, recipient = segment["content"], _RECIPIENT.search(f"{start} {channel}")
        if recipient is not None and role == "assistant":
            yield Message(role, [_call(recipient[1], exact_json(content.strip()))])
        elif role == "assistant" and channel.strip() == "analysis":
            yield Message(role, [{"type": "reasoning", "content": content}])
        elif role in names.ROLES or role in ("assistant", "system", "developer", "user"):
            yield text_message(role, content)
        else:
            # A tool's result has the tool in place of the role.
            name = role.removeprefix("functions.")
            yield Message("tool", [{"type": "tool_call_response", "id": None, "response": content}], {"name": name})


def _split_marked(text: str, mark: str) -> tuple[str, list[Part]]:
    """Return a model's text before a mark, and the calls after it; the whole text if there are none."""
    said, _, after = text.partition(mark)
    begin, end = _MARKED_CALLS[mark]
    calls: list[Part] = []
    # A model that repeats itself has very many.
    for piece in after.split(begin) if after.count(begin) <= _MAX_CALLS else ():
        body = piece.partition(end)[0].strip()
        if mark != "<|python_tag|>" and (found := _MARKED_CALL.match(body)):
            identity = found["id"] or (found["number"] if ":" in found["number"] else None)
            calls.append(_call(found["name"], exact_json(found["arguments"].strip("`\n ")), identity))
        elif isinstance(value := parse_json(body), (dict, list)):
            read = (_call_in(each, strict=False) for each in (value if isinstance(value, list) else [value]))
            calls += [call for call in read if call is not None]
    return (said, calls) if calls else (text, [])


def _messages(role: str, content: str, *, strict: bool) -> list[Message]:
    # Qwen's template writes the results of tools as the user's.
    results = [] if strict and role in ("assistant", "tool") else _results(content)
    results = results if strict else [result.strip("\n") for result in results]
    if role == "assistant" and not results:
        return [Message(role, answer_parts(content, strict=strict))]
    if role == "tool" and not results:
        results = [content]
    system = _SYSTEM_OF_LLAMA.match(content) if role == "user" and not strict else None
    if system is not None:
        return [text_message("system", system[1]), text_message(role, content[system.end() :])]
    if results:
        return [Message("tool", [{"type": "tool_call_response", "id": None, "response": each}]) for each in results]
    return [text_message(role, content)]


def _results(text: str) -> list[str]:
    """Return the results of tools that a text consists of; empty if it has anything else."""
    results, position = [], 0
    while position < len(text):
        match = _RESULTS.match(text, position)
        if match is None:
            return []
        results.append(match[1])
        position = match.end()
    return results


def _split_calls(text: str, *, strict: bool) -> tuple[str, list[Part]]:
    """Return a model's text without its tool calls, and the calls, in linear time.

    A regular expression would search the whole text for the end of each of many calls that have none.
    """
    calls: list[Part] = []
    said: list[str] = []
    *pieces, last = text.split(_CALL_END)
    for piece in pieces:
        before, begin, content = piece.partition(_CALL)
        call = _call_of(content, strict=strict) if begin else None
        if strict and (call is None or (calls and before.strip())):
            return text, []
        before = before.lstrip() if said[-1:] == ["\n"] else before
        said += [piece, _CALL_END] if call is None else [before.rstrip(), "\n"]
        calls += [] if call is None else [call]
    if strict:
        # The template begins the calls on a line of their own.
        return (text.partition(_CALL)[0].rstrip("\n"), calls) if calls and not last.strip() else (text, [])
    said.append(last.lstrip() if calls and said[-1] == "\n" else last)
    return "".join(said).strip("\n"), calls


def _call_of(content: str, *, strict: bool) -> Part | None:
    value = parse_json(content)
    return _xml_call(content) if value is None and not strict else _call_in(value, strict=strict)


def _xml_call(content: str) -> Part | None:
    """Return a call as Qwen's coder and GLM write it, with a tag for each argument."""
    name = _XML_NAME.match(content)
    if name is None:
        return None
    arguments = {}
    if "<parameter=" in content:
        for piece in content.split("<parameter=")[1:]:
            key, _, value = piece.partition(">")
            arguments[key] = value.partition("</parameter>")[0].removeprefix("\n").removesuffix("\n")
    else:
        for piece in content.split("<arg_key>")[1:]:
            key, _, value = piece.partition("</arg_key>")
            arguments[key] = value.partition("<arg_value>")[2].partition("</arg_value>")[0]
    return _call(name[1] or name[2], arguments)


def _call_in(value: Any, *, strict: bool) -> Part | None:
    if type(value) is not dict:
        return None
    name = value.get("name") or value.get("tool")
    arguments: Any = value.get("arguments", value.get("parameters", value.get("argument")))
    if type(name) is not str or (strict and (value.keys() != {"name", "arguments"} or type(arguments) is not dict)):
        return None
    identity = value.get("id")
    return _call(name, arguments, identity if type(identity) is str else None)


def _call(name: str, arguments: Any, identity: str | None = None) -> Part:
    return {"type": names.CALL, "id": identity, "name": name, "arguments": arguments}
