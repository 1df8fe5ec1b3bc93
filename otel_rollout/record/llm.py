"""GenAI attributes of a language model's call: provider, model, tokens, cached tokens, finish reason."""

from __future__ import annotations

from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.messages import names
from otel_rollout.record.fields import module_of
from otel_rollout.record.readers import length_of_array
from otel_rollout.record.snapshot import first_fields, plain_value

_PROVIDERS: Final = {
    "anthropic": "anthropic",
    "cohere": "cohere",
    "groq": "groq",
    "ibm_watsonx_ai": "ibm.watsonx.ai",
    "mistralai": "mistral_ai",
    "openai": "openai",
    "vertexai": "gcp.vertex_ai",
    "xai_sdk": "x_ai",
}
"""A provider's name in the semantic conventions, by the package of its client library.

For a server that is called through another provider's client, the conventions take the client's name too.
"""


_PROMPT_IDS: Final = ("prompt_ids", "prompt_token_ids", "input_ids")


def describe_request(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the GenAI attributes that an LLM op's arguments give: provider, model, the number of prompt ids."""
    attributes = {
        semconv.PROVIDER_NAME: _first_text(arguments.get("provider")),
        semconv.REQUEST_MODEL: _first_text(arguments.get("model")),
        semconv.USAGE_INPUT_TOKENS: next(filter(None, (_length(arguments.get(key)) for key in _PROMPT_IDS)), None),
    }
    return {key: value for key, value in attributes.items() if value is not None}


def describe_response(request: dict[str, Any], answer: Any) -> dict[str, Any]:
    """Return the GenAI attributes of an LLM op's call, by look-ups in its result: tokens, finish reason, model.

    The result is read as it is, since its snapshot may be cut.

    Args:
        request: The result of `describe_request`.
        answer: The result or the exception. The names and places of what is read are in `messages.names`. Of an
            exception only its class is read.
    """
    kind = type(answer)
    found: dict[str, Any] = {}
    if not issubclass(kind, BaseException):
        _Reading(found).read(answer, 0)
    cached, written = found.get(names.ADDED_CACHED), found.get(names.ADDED_WRITTEN)
    tokens = found.get(names.INPUT_TOKENS)
    if tokens is not None and _INCLUSIVE not in found:
        # By the conventions, input tokens include the cached ones. Anthropic's are numbers of their own.
        tokens += (cached or 0) + (written or 0)
    attributes = {
        semconv.PROVIDER_NAME: None if kind is dict else _PROVIDERS.get(module_of(kind)),
        **request,
        semconv.RESPONSE_MODEL: found.get(_MODEL),
        semconv.USAGE_CACHED_TOKENS: found.get(names.CACHED_TOKENS) if cached is None else cached,
        semconv.USAGE_CACHE_WRITE_TOKENS: found.get(names.WRITTEN_TOKENS) if written is None else written,
        semconv.USAGE_OUTPUT_TOKENS: found.get(names.OUTPUT_TOKENS, found.get(_OUTPUT_IDS)),
        semconv.FINISH_REASONS: (found[_REASON],) if _REASON in found else None,
    }
    tokens = found.get(_INPUT_IDS) if tokens is None else tokens
    if tokens is not None:
        attributes[semconv.USAGE_INPUT_TOKENS] = tokens
    if names.OUTPUT_TOKENS in found:
        attributes[semconv.USAGE_OUTPUT_TOKENS] += found.get(names.THOUGHT_TOKENS, 0)
    return {key: value for key, value in attributes.items() if value is not None}


_MODEL: Final = "model"
_REASON: Final = "reason"
_INCLUSIVE: Final = "inclusive"
_WHY_INCOMPLETE: Final = "why incomplete"
_INPUT_IDS: Final = "input ids"
_OUTPUT_IDS: Final = "output ids"
_IDS_OF: Final = {names.INPUT_TOKENS: _INPUT_IDS, names.OUTPUT_TOKENS: _OUTPUT_IDS}
_NOT_SUMMED: Final = frozenset({_MODEL, _REASON, _INCLUSIVE})
_FACTS: Final = {
    **names.USAGE,
    **{key: _IDS_OF[fact] for key, fact in names.IDS.items()},
    **dict.fromkeys(names.FINISH_REASON_KEYS, _REASON),
    **dict.fromkeys(names.MODELS, _MODEL),
    "incomplete_details": _WHY_INCOMPLETE,
}
"""The fact that a field has, by its name: one look-up for each field."""
_FACTS_OF_USAGE: Final = {**_FACTS, **names.SHORT_USAGE}
_LISTS: Final = frozenset(names.CONTAINERS)
_MESSAGES: Final = frozenset({"message", "messages"})
_MAX_DEPTH: Final = 6
_MAX_READ: Final = 512
_MAX_WORD: Final = 20


class _Reading:
    """One reading of a result; what is found first counts, and the counts of a list's items are added.

    Args:
        found: Takes what is found, by its name in the table.
        room: The most objects that are read.
        has_usage: The object around has counts, so that the messages need not be read.
    """

    def __init__(self, found: dict[str, Any], room: int = _MAX_READ, *, has_usage: bool = False) -> None:
        self.found = found
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
        facts = _FACTS_OF_USAGE if is_usage else _FACTS
        places: list[tuple[str, Any]] = []
        for key, item in [*fields.items()]:
            if item is None or type(key) is not str:
                continue
            fact = facts.get(key)
            if fact is not None:
                self._add(key, fact, item)
            if key in names.USAGE_PLACES and (key in _LISTS or type(item) not in (list, tuple)):
                places.append((key, item))
        places.sort(key=_is_list)
        for key, item in places:
            if key not in _MESSAGES or not (self._has_usage or names.OUTPUT_TOKENS in self.found):
                self.read(item, depth + 1, is_usage=key in names.USAGES)
        if "output" in fields:
            # OpenAI's Responses have a status.
            self._read_reason(fields.get("status"))

    def _add(self, key: str, fact: str, item: Any) -> None:
        found = self.found
        if fact is _REASON:
            self._read_reason(item)
        elif fact is _MODEL:
            if type(item) is str and item:
                found.setdefault(fact, item)
        elif fact is _WHY_INCOMPLETE:
            self._read_reason(first_fields(item).get("reason"))
        elif (count := _length(item) if fact in (_INPUT_IDS, _OUTPUT_IDS) else _int(item)) is not None:
            found.setdefault(fact, count)
            if key in names.INCLUSIVE:
                found[_INCLUSIVE] = True

    def _read_items(self, value: Any, depth: int) -> None:
        items = value[:_MAX_READ]
        if not items or depth > _MAX_DEPTH:
            return
        if type(items[0]) in (int, float):
            if type(items[0]) is int:
                self.found.setdefault(_OUTPUT_IDS, len(value))
            return
        is_conversation = type(first := items[-1]) is dict and ("role" in first or first.get("type") == "ai")
        sums: dict[str, Any] = {}
        for item in items[-1:] if is_conversation and type(value) is list else items:
            kind = type(item)
            if kind is str:
                if depth == 0 and len(item) < _MAX_WORD and item.lower() in names.FINISH_WORDS:
                    sums.setdefault(_REASON, item)
                continue
            one = _Reading({}, self.room, has_usage=self._has_usage or names.OUTPUT_TOKENS in self.found)
            one.read(item, depth + 1)
            self.room = one.room
            for fact, count in one.found.items():
                sums[fact] = count if fact not in sums else sums[fact] if fact in _NOT_SUMMED else sums[fact] + count
        if self.room >= 0 and len(items) == len(value):
            for fact, count in sums.items():
                self.found.setdefault(fact, count)

    def _read_reason(self, value: Any) -> None:
        kind = type(value)
        if value is not None and kind is not str and kind is not dict:
            value = plain_value(value)
        reason = value.get("type", value.get("unified")) if type(value) is dict else value
        if type(reason) is str and reason:
            self.found.setdefault(_REASON, reason)


def _is_list(place: tuple[str, Any]) -> bool:
    return place[0] in _LISTS


def _first_text(*values: Any) -> str | None:
    return next((value for value in values if type(value) is str and value), None)


def _int(value: Any) -> int | None:
    if type(value) is dict:
        # AI SDK has the total and its parts.
        value = value.get("total")
    if type(value) is float and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def _length(ids: Any) -> int | None:
    """Return the number of token ids in a list, a tuple, or an array or tensor of one dimension."""
    kind = type(ids)
    if kind is list or kind is tuple:
        # A batch has a list for each sequence.
        return (
            sum(map(len, ids)) if ids and type(ids[0]) is list and all(type(each) is list for each in ids) else len(ids)
        )
    return None if ids is None else length_of_array(ids)
