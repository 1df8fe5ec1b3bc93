"""GenAI attributes of a language model's call: provider, model, tokens, cached tokens, finish reason."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.messages import names
from otel_rollout.record.fields import module_of
from otel_rollout.record.readers import length_of_array
from otel_rollout.record.snapshot import first_fields, plain_value

_PROVIDERS: Final = {
    **{name: name for name in ("anthropic", "cohere", "groq", "openai")},
    "ibm_watsonx_ai": "ibm.watsonx.ai",
    "mistralai": "mistral_ai",
    "vertexai": "gcp.vertex_ai",
    "xai_sdk": "x_ai",
}
"""A provider's name in the semantic conventions, by the package of its client library.

For a server that is called through another provider's client, the conventions take the client's name too.
"""
_PROMPT_IDS: Final = tuple(key for key, fact in names.IDS.items() if fact == names.INPUT_IDS)
_LISTS: Final = frozenset(names.CONTAINERS)
_MAX_DEPTH: Final = 6
_MAX_READ: Final = 512


def describe_request(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the GenAI attributes that an LLM op's arguments give: provider, model, the number of prompt ids."""
    provider, model = arguments.get("provider"), arguments.get("model")
    attributes: dict[str, Any] = {
        semconv.PROVIDER_NAME: provider if type(provider) is str else None,
        semconv.REQUEST_MODEL: model if type(model) is str else None,
    }
    for key in _PROMPT_IDS:
        if key in arguments and (count := _length(arguments[key])):
            attributes.setdefault(semconv.USAGE_INPUT_TOKENS, count)
    return {key: value for key, value in attributes.items() if value}


def describe_response(request: dict[str, Any], answer: Any) -> dict[str, Any]:
    """Return the GenAI attributes of an LLM op's call, by look-ups in its result: tokens, finish reason, model.

    The result is read as it is, since its snapshot may be cut.

    Args:
        request: The result of `describe_request`.
        answer: The result or the exception. The names and places of what is read are in `messages.names`. Of an
            exception only its class is read.
    """
    kind = type(answer)
    reading = _Reading()
    if not issubclass(kind, BaseException):
        reading.read(answer, 0)
    found = reading.found
    tokens, answered = found.get(names.INPUT_TOKENS), found.get(names.OUTPUT_TOKENS)
    if tokens is not None and not reading.is_inclusive:
        # By the conventions, input tokens include the cached ones. Anthropic's are numbers of their own.
        tokens += found.get(names.ADDED_CACHED, 0) + found.get(names.ADDED_WRITTEN, 0)
    if answered is not None:
        answered += found.get(names.THOUGHT_TOKENS, 0)
    attributes = {
        semconv.PROVIDER_NAME: None if kind is dict else _PROVIDERS.get(module_of(kind)),
        **request,
        semconv.RESPONSE_MODEL: found.get(names.MODEL),
        semconv.USAGE_CACHED_TOKENS: found.get(names.ADDED_CACHED, found.get(names.CACHED_TOKENS)),
        semconv.USAGE_CACHE_WRITE_TOKENS: found.get(names.ADDED_WRITTEN, found.get(names.WRITTEN_TOKENS)),
        semconv.USAGE_OUTPUT_TOKENS: found.get(names.OUTPUT_IDS) if answered is None else answered,
        semconv.FINISH_REASONS: (found[names.REASON],) if names.REASON in found else None,
    }
    if (tokens := found.get(names.INPUT_IDS) if tokens is None else tokens) is not None:
        attributes[semconv.USAGE_INPUT_TOKENS] = tokens
    return {key: value for key, value in attributes.items() if value is not None}


class _Reading:
    """One reading of a result of at most `room` objects; what is found first counts, and a list's items are added."""

    def __init__(self, room: int = _MAX_READ, *, has_usage: bool = False) -> None:
        self.found: dict[str, Any] = {}
        self.is_inclusive = False
        self.room = room
        self._has_usage = has_usage

    def read(self, value: Any, depth: int, *, is_usage: bool = False) -> None:
        """Read a value, and its places; inside usage, short names are counts, too."""
        kind = type(value)
        if kind is list or kind is tuple:
            self._read_items(value, depth)
            return
        self.room -= 1
        fields = first_fields(value) if self.room >= 0 and depth <= _MAX_DEPTH else {}
        facts = names.FACTS_OF_USAGE if is_usage else names.FACTS
        places: list[tuple[bool, str, Any]] = []
        for key, item in [*fields.items()]:
            if item is None or type(key) is not str:
                continue
            if (fact := facts.get(key)) is not None:
                self._add(key, fact, item)
            if key in names.USAGE_PLACES and (key in _LISTS or type(item) not in (list, tuple)):
                places.append((key in _LISTS, key, item))
        for _, key, item in sorted(places, key=itemgetter(0)):
            if key not in ("message", "messages") or not (self._has_usage or names.OUTPUT_TOKENS in self.found):
                self.read(item, depth + 1, is_usage=key in names.USAGES)
        if "output" in fields:
            # OpenAI's Responses have a status.
            self._add("status", names.REASON, fields.get("status"))

    def _add(self, key: str, fact: str, item: Any) -> None:
        if fact in (names.REASON, names.WHY_INCOMPLETE):
            item = first_fields(item).get("reason") if fact is names.WHY_INCOMPLETE else item
            fact, item = names.REASON, item if item is None or type(item) in (str, dict) else plain_value(item)
            item = item.get("type", item.get("unified")) if type(item) is dict else item
        if fact in (names.REASON, names.MODEL):
            item = item if type(item) is str and item else None
        else:
            item = _length(item) if fact in (names.INPUT_IDS, names.OUTPUT_IDS) else _int(item)
            self.is_inclusive |= item is not None and key in names.INCLUSIVE
        if item is not None:
            self.found.setdefault(fact, item)

    def _read_items(self, value: Any, depth: int) -> None:
        items = value[:_MAX_READ]
        if not items or depth > _MAX_DEPTH or type(items[0]) is float:
            return
        if type(items[0]) is int:
            self.found.setdefault(names.OUTPUT_IDS, len(value))
            return
        is_conversation = type(last := items[-1]) is dict and ("role" in last or last.get("type") == "ai")
        sums: dict[str, Any] = {}
        for item in items[-1:] if is_conversation and type(value) is list else items:
            if type(item) is str:
                if depth == 0 and len(item) < 20 and item.lower() in names.FINISH_WORDS:
                    sums.setdefault(names.REASON, item)
                continue
            one = _Reading(self.room, has_usage=self._has_usage or names.OUTPUT_TOKENS in self.found)
            one.read(item, depth + 1)
            self.room = one.room
            self.is_inclusive |= one.is_inclusive
            for fact, count in one.found.items():
                sums[fact] = sums[fact] + count if fact in sums and type(count) is int else sums.get(fact, count)
        if self.room >= 0 and len(items) == len(value):
            self.found = {**sums, **self.found}


def _int(value: Any) -> int | None:
    # AI SDK has the total and its parts.
    value = value.get("total") if type(value) is dict else value
    value = int(value) if type(value) is float and value.is_integer() else value
    return value if type(value) is int else None


def _length(ids: Any) -> int | None:
    """Return the number of token ids in a list, a tuple, or an array or tensor of one dimension."""
    if type(ids) not in (list, tuple):
        return None if ids is None else length_of_array(ids)
    # A batch has a list for each sequence.
    return sum(map(len, ids)) if ids and all(type(each) is list for each in ids) else len(ids)
