"""How much of a corpus of forms is read: `python -m tests.forms.score MODULE-OR-FILE…`.

Each case goes the real way: an op gets its argument, and returns its result or yields its stream; the exported span is
compared with what the case says that a person would read.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op, semconv
from otel_rollout.messages import Message, chat_messages, unfolded, value_text
from otel_rollout.record import take_snapshot
from otel_rollout.testing import InMemorySpanExporter

_ROLES = {
    *("ai", "aimessagechunk", "assistant", "bot", "chatbot", "developer", "function", "gpt", "human", "model"),
    *("system", "tool", "user", "tool_call", "tool_response", "tool-call", "tool-response"),
}
_TYPES = {
    *("aimessage", "audio", "audio_url", "base64", "blob", "constructor", "custom", "custom_tool_call"),
    *("custom_tool_call_output", "document", "dynamic-tool", "file", "function", "function_call"),
    *("function_call_output", "humanmessage", "image", "image_url", "input_audio", "input_file", "input_image"),
    *("input_json_delta", "input_text", "message", "output_text", "reasoning", "reasoning-delta", "reasoning_text"),
    *("redacted_thinking", "signature_delta", "summary_text", "systemmessage", "text", "text-delta", "text_delta"),
    *("thinking", "thinking_delta", "tool-call", "tool-result", "tool_call", "tool_call_chunk", "tool_result"),
    *("request", "response", "tool-return", "user-prompt"),
    *("tool_use", "toolmessage", "uri", "url", "video", "video_url"),
}
"""Words of a form, which the conventions' form says in its own."""
_PLACES_OF_WORDS = ("type", "role", "from", "author", "content_type", "kind", "part_kind", "block_type")
_MARKS = re.compile(
    r"<\|im_start\|>\w+|<start_of_turn>\w+|<\|start_header_id\|>\w+<\|end_header_id\|>|<[^<>\s]{1,40}>|<<SYS>>|\[/?[A-Z_]{3,20}\]|\{|\}|\"|:|,|="
)
_NOTE = re.compile(r"^\[[a-z_][\w-]+(: .*)?\]$", re.MULTILINE)
_SHORT = 6


class Score(NamedTuple):
    """What a case's span has of it.

    Args:
        name: The case.
        lost: The values that are nowhere on the span.
        answer: True if the answer is read; None if the case has none.
        usage: True if the tokens are read; likewise.
        finish: True if the finish reason is read; likewise.
        prompt: True if the argument's messages are read; likewise.
    """

    name: str
    lost: list[Any]
    answer: bool | None
    usage: bool | None
    finish: bool | None
    prompt: bool | None


def run_case(case: dict[str, Any]) -> Any:
    """Return the span of an op that gets a case's argument, and returns its result."""
    exporter = InMemorySpanExporter()
    otel_rollout.init("corpus", "forms", exporter)

    def make_op() -> Any:
        if case.get("make_stream") is not None:

            @rollout_trace_op(name="generate", kind="LLM")
            def stream(prompt: Any = None, messages: Any = None, **kwargs: Any) -> Iterator[Any]:
                yield from case["make_stream"]()

            return lambda **arguments: list(stream(**arguments))

        @rollout_trace_op(name="generate", kind="LLM")
        def generate(prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
            return case["result"]

        return generate

    argument = case["argument"]
    is_keyword = type(argument) is dict and all(type(key) is str for key in argument) and "role" not in argument
    name = "prompt" if type(argument) is str else "messages"
    with rollout_trace_attr(sample_index=0, step=0, rollout_n=0):
        make_op()(**(argument if is_keyword else {name: argument}))
    otel_rollout.shutdown()
    return next(span for span in exporter.spans if span.name == "generate")


def score_case(case: dict[str, Any], same: Sequence[set[str]] = ()) -> Score:
    """Return what a case's span has of it.

    Args:
        case: The case.
        same: Finish reasons that are equal.
    """
    span = run_case(case)
    values = list(_leaves(dict(span.attributes), is_parsed=True))
    given = _plain(case["argument"])
    stream = case.get("make_stream")
    result = _plain(case["result"]) if stream is None else [_plain(item) for item in stream()]
    known = _Known(values)
    lost = [leaf for value in (given, result) for key, leaf in _named(value) if not known.has(key, leaf)]
    answer, finish = case.get("answer"), case.get("finish_reason")
    return Score(
        case["name"],
        lost,
        None if answer is None else _has_answer(answer, _shown(span)[1]),
        None if case.get("usage") is None else _has_usage(case["usage"], span.attributes),
        None if finish is None else _has_reason(finish, span.attributes, same),
        None if case.get("argument_messages") is None else _has_messages(case["argument_messages"], _shown(span)[0]),
    )


def _plain(value: Any) -> Any:
    return take_snapshot(value).load()


def _shown(span: Any) -> tuple[list[Message], list[Message]]:
    """Return what a span was given and answered, as people see it."""
    found = chat_messages(span.attributes)
    if found is None:
        return [], []
    given, said = ([one for message in side for one in unfolded(message)] for side in (found.input, found.output))
    return given, said


class _Known:
    def __init__(self, values: list[Any]) -> None:
        self._texts = {value for value in values if isinstance(value, str)}
        self._numbers = {value for value in values if isinstance(value, (int, float))}
        self._all = "\n".join(map(_bare, self._texts))

    def has(self, key: str, leaf: Any) -> bool:
        if isinstance(leaf, (int, float)):
            return leaf in self._numbers or self._has_word(json.dumps(leaf))
        if leaf in self._texts or not leaf.strip() or _is_word(key, leaf.lower()):
            return True
        if isinstance(parsed := _parsed(leaf), (dict, list)):
            return all(self.has(name, each) for name, each in _named(parsed))
        if self._has_word(leaf):
            return True
        pieces = [piece for piece in _MARKS.split(leaf) if piece.strip()]
        return len(pieces) > 0 and pieces != [leaf] and all(self._has_word(piece) for piece in pieces)

    def _has_word(self, text: str) -> bool:
        if len(text) > _SHORT:
            return _bare(text) in self._all
        word = re.compile(rf"(?<![\w]){re.escape(text.strip())}(?![\w])")
        return any(word.search(each) or text in each for each in self._texts)


def _is_word(key: str, leaf: str) -> bool:
    return leaf in _ROLES or (key in _PLACES_OF_WORDS and leaf in _TYPES)


def _leaves(value: Any, *, is_parsed: bool = False) -> Iterator[Any]:
    for _, leaf in _named(value):
        yield leaf
        if is_parsed and isinstance(leaf, str) and isinstance(parsed := _parsed(leaf), (dict, list)):
            yield from _leaves(parsed, is_parsed=True)


def _named(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _named(item, str(name))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _named(item, key)
    elif hasattr(value, "tolist"):
        yield from _named(value.tolist(), key)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield key, value


def _parsed(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _bare(text: Any) -> str:
    return "".join(str(text or "").split())


def _has_answer(answer: dict[str, Any], found: list[Message]) -> bool:
    return any(_is_said(answer, [message]) for message in found) or _is_said(answer, found)


def _is_said(answer: dict[str, Any], found: list[Message]) -> bool:
    said = [message for message in found if message.role == "assistant"] or found
    text = "".join(_text_of(message) for message in said)
    thought = "".join(message.reasoning for message in said)
    calls = [call for message in said for call in message.calls]
    if _bare(text) != _bare(answer.get("text")) or _bare(thought) != _bare(answer.get("reasoning")):
        return False
    return _has_calls(answer.get("tool_calls") or [], calls)


def _text_of(message: Message) -> str:
    """Return the texts of a message, without notes of other parts."""
    said = []
    for part in message.parts:
        shown = part.get("response") if part.get("type") == "tool_call_response" else part
        said += [value_text(one) for one in (shown if isinstance(shown, list) else [shown]) if _is_shown(one)]
    return _NOTE.sub("", "\n".join(said))


def _is_shown(part: Any) -> bool:
    return not isinstance(part, dict) or part.get("type", "text") in ("text", "refusal")


def _has_calls(expected: list[dict[str, Any]], found: list[Any]) -> bool:
    left = list(found)
    for call in expected:
        match = next((each for each in left if _is_call(call, each)), None)
        if match is not None:
            left.remove(match)
        elif not call.get("optional"):
            return False
    return not left or any(call.get("optional") for call in expected)


def _is_call(expected: dict[str, Any], found: Any) -> bool:
    arguments = expected["arguments"]
    given = found.arguments
    if isinstance(arguments, str):
        is_same = given == arguments or _bare(arguments) in _bare(
            given if isinstance(given, str) else json.dumps(given)
        )
    else:
        given = {} if given in ("", None) else _parsed(given) if isinstance(given, str) else given
        is_same = json.dumps(given, sort_keys=True) == json.dumps(arguments, sort_keys=True) or (
            isinstance(given, dict)
            and given.keys() == arguments.keys()
            and all(str(given[key]) == str(arguments[key]) for key in given)
        )
    return (
        found.name in (expected["name"], *expected.get("names", ()))
        and is_same
        and found.call_id == expected.get("id", found.call_id)
    )


def _has_usage(usage: dict[str, Any], attributes: Any) -> bool:
    read = (attributes.get(semconv.USAGE_INPUT_TOKENS), attributes.get(semconv.USAGE_OUTPUT_TOKENS))
    for name, count in zip(("input", "output"), read, strict=True):
        accepted = [usage.get(name), *usage.get(f"{name}_accept", ())]
        if name == "input" and usage.get("cached"):
            # Anthropic's input is without the cached tokens, OpenTelemetry's with them.
            accepted.append(usage["input"] + usage["cached"])
        if count not in accepted and not (usage.get("derived") and count is None):
            return False
    cached = usage.get("cached")
    return not cached or attributes.get(semconv.USAGE_CACHED_TOKENS) == cached


def _has_reason(reason: str, attributes: Any, same: Sequence[set[str]]) -> bool:
    (read,) = attributes.get(semconv.FINISH_REASONS) or (None,)
    return read == reason or any(reason in words and read in words for words in same)


def _has_messages(expected: list[dict[str, Any]], found: list[Message]) -> bool:
    def role(name: str, is_result: bool) -> str:
        return "tool" if is_result else {"developer": "system"}.get(name, name)

    wanted: list[list[str]] = []
    for message in expected:
        name = role(message["role"], message["tool_result_of"] is not None)
        if wanted and wanted[-1][0] == name:
            wanted[-1][1] += _bare(message["text"])
        else:
            wanted.append([name, _bare(message["text"])])
    read: list[list[str]] = []
    for each in found:
        is_result = any(part.get("type") == "tool_call_response" for part in each.parts)
        name, text = role(each.role, is_result), _bare(_text_of(each))
        if read and read[-1][0] == name:
            read[-1][1] += text
        else:
            read.append([name, text])
    everything = "".join(text for _, text in read)
    if not wanted:
        return True
    if [name for name, _ in wanted] == [name for name, _ in read] and all(
        text in said for (_, text), (_, said) in zip(wanted, read, strict=True)
    ):
        return True
    return all(text in everything for _, text in wanted) and {name for name, _ in wanted} <= {name for name, _ in read}


def load_cases(name: str) -> tuple[list[dict[str, Any]], list[set[str]]]:
    """Return the cases of a module or a file, and the finish reasons that are equal."""
    path = Path(name)
    if path.suffix == ".py":
        sys.path.insert(0, str(path.resolve().parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(name)
    return module.CASES, module.FINISH_SAME


def main(names: list[str]) -> None:
    """Print each case that isn't whole, and the sums."""
    with tempfile.TemporaryDirectory() as folder:
        import os

        os.environ["OTEL_ROLLOUT_DIR"] = folder
        loaded = [load_cases(name) for name in names]
        scores = [score_case(case, same) for cases, same in loaded for case in cases]
    for score in scores:
        faults = [field for field in ("answer", "usage", "finish", "prompt") if getattr(score, field) is False]
        if score.lost or faults:
            print(f"{score.name}: {', '.join(faults) or 'read'}; lost {score.lost[:8]!r}")
    print(f"{len(scores)} cases; values lost in {sum(bool(score.lost) for score in scores)}")
    for field in ("answer", "usage", "finish", "prompt"):
        read = [getattr(score, field) for score in scores if getattr(score, field) is not None]
        print(f"{field}: {sum(read)} of {len(read)} ({sum(read) / max(len(read), 1):.3f})")


if __name__ == "__main__":
    main(sys.argv[1:])
