"""Messages in the form of OpenTelemetry's GenAI conventions, made of those in the APIs of client libraries.

Lossless by construction: known fields are taken out of a copy, and the remaining fields stay on the part or the
message. The values are plain data: a snapshot's, or parsed from redacted JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from otel_rollout.guard.provenance import is_programs
from otel_rollout.messages import names
from otel_rollout.messages.message import Message, Part, json_of, json_text, text_message
from otel_rollout.text.plain_json import loads

_TWICE: Final = ("content", *names.LISTED)
_SAID: Final = frozenset({*names.CONTENTS, *names.CALL_KEYS, *names.REASONING_KEYS, *names.SAID_BESIDE})
_PAIR: Final = 2
_MEDIA_TYPES: Final = ("image", "audio", "video")
_ADDRESS: Final = re.compile("(?:https?|data|file|gs|s3):")
_RESULT_KEYS: Final = frozenset({"role", "content", "tool_call_id"})
_CALL_KEYS: Final = frozenset({"id", "type", "function"})
_NO_SPACE: Final = str.maketrans("", "", " \t\r\n")


def is_message(value: Any) -> bool:
    """Return True if a value is a message: a dict with a role, LangChain's type, or an item of OpenAI's Responses."""
    if type(value) is not dict:
        return False
    if type(value.get("role")) is str:
        return not _SAID.isdisjoint(value)
    kind = value.get("type")
    if type(kind) is str and (kind in names.ITEM_TYPES or (kind in names.LANGCHAIN_TYPES and "content" in value)):
        return True
    if type(parts := value.get("parts")) is list and parts and all(map(_is_keyed, parts)):
        return True
    if "message" not in value and _wrapper_of(value) is not None:
        return True
    return not _SAID.isdisjoint(value) and _role_in(value) != ((), "")


def is_message_list(value: Any) -> bool:
    """Return True if a value is a list or a tuple of messages, of which some may be of an unknown form."""
    if type(value) not in (list, tuple) or not value:
        return False
    has_message = False
    for item in value:
        kind = type(item)
        if is_message(item) or _is_pair(item) or (kind is dict and "message" in item and _wrapper_of(item) is not None):
            has_message = True
        elif kind is dict:
            is_unknown = type(item.get("type")) is str or type(item.get("role")) is str
            if not is_unknown and (not has_message or any(key in names.USAGE for key in item)):
                return False
        elif kind is not str:
            return False
    return has_message


def is_part(value: Any) -> bool:
    """Return True if a value is a part of a message, of a known type."""
    return type(value) is dict and (_kind_of(value) is not None or _is_keyed(value))


def finish_reason_of(*values: Any) -> str:
    """Return the finish reason in the convention's words, from the first value that has one; empty if none has."""
    for value in values:
        if type(value) is dict:
            for key in names.FINISH_REASON_KEYS:
                reason = value.get(key)
                reason = reason.get("type", reason.get("unified")) if type(reason) is dict else reason
                if type(reason) is str and reason:
                    return names.FINISH_REASONS.get(reason.lower(), reason)
    return ""


def convert_messages(value: Any, role: str = "user", *, is_whole: bool = True) -> list[Message]:
    """Return messages in the convention's form; a tool's result is a message of its own.

    Args:
        value: A message, or a list of messages.
        role: The role of what has none.
        is_whole: False for the pieces of a stream, whose texts are not JSON yet.
    """
    messages: list[Message] = []
    for item in value if type(value) in (list, tuple) else [value]:
        if type(item) is dict:
            given, text = item.get("role"), item.get("content")
            if len(item) == _PAIR and type(given) is type(text) is str and given != "tool" and given not in names.ROLES:
                # Most messages.
                messages.append(Message(given, [{"type": names.TEXT, "content": text}] if text else []))
            elif given == "tool" and item.keys() == _RESULT_KEYS and type(text) is type(item["tool_call_id"]) is str:
                messages.append(Message(given, [{"type": names.RESULT, "id": item["tool_call_id"], "response": text}]))
            else:
                messages += _Taken(item, role, is_whole=is_whole).messages()
        elif _is_pair(item):
            messages.append(text_message(_standard_role(item[0]), item[1]))
        else:
            messages.append(text_message(role, str(item)))
    return messages


def parts_message(parts: Iterable[Any], role: str, *, is_whole: bool = True) -> list[Message]:
    """Return the messages of a list of parts."""
    return _Taken({"role": role, "content": [*parts]}, role, is_whole=is_whole).messages()


def tool_definitions(value: Any) -> list[dict[str, Any]] | None:
    """Return the tools of OpenAI, Anthropic, Gemini or Bedrock in the convention's form; None if they aren't tools."""
    if type(value) not in (list, tuple) or not value or not all(type(tool) is dict for tool in value):
        return None
    converted = []
    for tool in value:
        fields = dict(tool)
        for key in ("function", "toolSpec", "custom"):
            if type(inner := fields.get(key)) is dict:
                del fields[key]
                fields = _beside(dict(inner), fields)
        kind = fields.pop("type", "function")
        name = fields.pop("name", kind)
        if type(kind) is not str or type(name) is not str:
            return None
        for key in ("input_schema", "inputSchema"):
            if key in fields and "parameters" not in fields:
                fields["parameters"] = fields.pop(key)
        converted.append(_beside({"type": kind, "name": name}, fields))
    return converted


def exact_json(text: str) -> Any:
    """Return the object of a JSON text if writing it again gives the same text but for whitespace; else the text."""
    if text[:1] != "{":
        return text
    try:
        value = loads(text)
        bare = text.translate(_NO_SPACE)
        if json_of(value).translate(_NO_SPACE) == bare or json.dumps(value).translate(_NO_SPACE) == bare:
            return value
    except (ValueError, RecursionError) as error:
        if is_programs(error):
            raise
    # As the model wrote it.
    return text


class _Taken:
    """A message that is taken out of a copy, field by field."""

    def __init__(self, item: dict[str, Any], role: str, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        wrapper = _wrapper_of(item)
        if wrapper is not None:
            inner = item[wrapper]
            outer = {key: field for key, field in item.items() if key != wrapper}
            if outer.get("type") in ("constructor", inner.get("type")):
                outer.pop("type", None)
            item = _beside(dict(inner), outer)
        self.left = dict(item)
        self.role = self._take_role(role)
        self.parts: list[Part] = []
        self._take_parts()

    def messages(self) -> list[Message]:
        """Return one message, or several if it holds results of tools; the first of its own has the other fields."""
        groups: list[Message] = []
        for part in self.parts:
            if part["type"] == names.RESULT:
                groups.append(Message("tool", [part]))
            elif groups and groups[-1].parts[-1]["type"] != names.RESULT:
                groups[-1].parts.append(part)
            else:
                groups.append(Message(self.role, [part]))
        groups = groups or [Message(self.role, [])]
        # The names of a message's own members are no names of others.
        more = _beside({"role": 0, "parts": 0}, self.left)
        del more["role"], more["parts"]
        if more:
            at = next((index for index, one in enumerate(groups) if one.role == self.role), 0)
            groups[at] = groups[at]._replace(more=more)
        return groups

    def _take_role(self, default: str) -> str:
        left, kind = self.left, self.left.get("type")
        place, role = _role_in(left)
        if place:
            holder = left
            for key in place[:-1]:
                holder[key] = holder = dict(holder[key])
            del holder[place[-1]]
            if kind == "message":
                del left["type"]
            return _standard_role(role)
        if kind == "message" or _word(left) in names.LANGCHAIN_TYPES:
            del left["type"]
            return default if kind == "message" else _standard_role(str(kind))
        if type(kind) is str:
            # An item of OpenAI's Responses is a part without a message.
            self.left = {"content": [left]}
            return "tool" if _kind_of(left) == names.RESULT else "assistant"
        # A class of LangChain's, in its serialized form.
        keys = left.get("id")
        name = keys[-1] if type(keys) is list and keys and type(keys[-1]) is str else ""
        word = name.removesuffix("Chunk").removesuffix("Message").lower()
        return _standard_role(word) if word in names.KNOWN_ROLES else default

    def _take_parts(self) -> None:
        left, parts = self.left, self.parts
        for key in _present(left, names.REASONING_KEYS):
            # Some servers write it under two names.
            parts += [part for part in self._part(_as_part(names.REASONING, left.pop(key))) if part not in parts]
        content, beside = self._take_content()
        said = self._parts(content)
        if self.role == "tool" and not any(part["type"] == names.RESULT for part in said):
            identity = next((left.pop(key) for key in names.CALL_IDS if type(left.get(key)) is str), None)
            said = [{"type": names.RESULT, "id": identity, "response": _response(said, content)}]
        parts += said
        if beside is not None:
            parts += [part for part in self._parts(beside) if part not in said]
        audio = left.get("audio") if not said else None
        if not said and type(audio) is dict and type(audio.get("transcript")) is str:
            left["audio"] = {key: field for key, field in audio.items() if key != "transcript"}
            parts += self._parts(audio["transcript"])
        for key in _present(left, names.SAID_BESIDE):
            parts += self._part(_as_part(key, left.pop(key)))
        for key in _present(left, names.CALL_KEYS):
            self._take_calls(key)
        if "channel" in left:
            self._take_channel()

    def _take_channel(self) -> None:
        """Read harmony's channel and recipient: a text is then a thought, or a call's arguments."""
        channel, recipient = self.left["channel"], self.left.get("recipient")
        name = recipient if type(recipient) is str and recipient not in ("all", "assistant", "user") else ""
        if self.role == "assistant" and type(channel) is str and (name or channel == "analysis"):
            for index, part in enumerate(self.parts):
                if part["type"] == names.TEXT:
                    said: Part = {"type": names.REASONING, "content": part["content"]}
                    if name:
                        said = {"type": names.CALL, "id": None, "name": name.removeprefix("functions.")}
                        said["arguments"] = exact_json(part["content"])
                    left = {key: field for key, field in part.items() if key not in ("type", "content")}
                    self.parts[index] = _beside(said, left)

    def _take_content(self) -> tuple[Any, Any]:
        """Return the message's content, and the same in a second form: AI SDK has both `content` and `parts`."""
        left = self.left
        kinds = {"content": (type(left.get("content")),), **dict.fromkeys(names.LISTED, (list, tuple))}
        keys = [key for key in names.CONTENTS if key in left and type(left[key]) in kinds.get(key, (str,))]
        if not keys:
            return None, None
        keys = keys[:1] if keys[0] not in _TWICE else [name for name in keys if name in _TWICE]
        given = [left.pop(key) for key in keys]
        content = given[0]
        if type(content) is dict and type(inner := content.get("parts")) is list and "type" not in content:
            # ChatGPT's export.
            _beside(left, {key: field for key, field in content.items() if key != "parts"})
            content = inner
        beside = given[1] if len(given) > 1 and not _is_empty(given[1]) else None
        if beside is not None and type(content) is str:
            return beside, content if content not in _texts(beside) and content != "".join(_texts(beside)) else None
        return content, beside

    def _take_calls(self, key: str) -> None:
        given = self.left.get(key)
        calls: Any = given if type(given) in (list, tuple) else [given] if type(given) in (dict, str) and given else []
        if calls:
            del self.left[key]
        for call in calls:
            item = exact_json(call) if type(call) is str else call
            if type(item) is dict and item.keys() == _CALL_KEYS and type(inner := item["function"]) is dict:
                name, arguments = inner.get("name"), inner.get("arguments")
                if len(inner) == _PAIR and item["type"] == "function" and type(name) is type(item["id"]) is str:
                    # Most calls.
                    arguments = exact_json(arguments) if type(arguments) is str and self._is_whole else arguments
                    self.parts.append({"type": names.CALL, "id": item["id"], "name": name, "arguments": arguments})
                    continue
            if type(item) is not dict:
                item = {"rest": item}
            elif _word(item) in names.PART_TYPES:
                item = {key: field for key, field in item.items() if key != "type"}
            self.parts += self._part(_beside({"type": names.CALL}, item, _KEPT))

    def _parts(self, content: Any) -> list[Part]:
        parts: list[Part] = []
        for item in content if type(content) in (list, tuple) else [content]:
            if type(item) is dict:
                parts += self._part(item)
            elif not _is_empty(item):
                parts.append({"type": names.TEXT, "content": json_text(item)})
        return parts

    def _part(self, item: dict[str, Any]) -> list[Part]:
        """Return a part; two if it is a call with its result, as AI SDK writes them."""
        left = dict(item)
        for place in names.TYPE_PLACES[1:]:
            if "type" not in left and type(left.get(place)) is str:
                left["type"] = left.pop(place)
        given, kind = left.get("type"), _kind_of(left)
        if type(given) is not str:
            key = _key_of(item)
            if key is None:
                return [_beside({"type": "unknown"}, left)] if left else []
            kind, given = names.KEYED_PARTS[key], key
            if kind == names.TEXT and item.get("thought") is True:
                kind = names.REASONING
        elif kind is None:
            return [left]
        else:
            del left["type"]
        if kind in (names.SERVER_CALL, names.SERVER_RESULT):
            return [_server_part(kind, given, left)]
        is_ui, word = _is_ui_call(given), given.replace("-", "_")
        if is_ui:
            left.setdefault("toolName", given[5:])
        if is_ui or not (word in names.PART_TYPES or word in names.KEYED_PARTS):
            left["item_type"] = given
        said = [left.pop(key) for key in _present(left, ("output", "errorText"))] if is_ui else []
        part = self._taken(kind, given, left)
        if kind == names.CALL and not part["name"] and given in names.ITEM_TYPES:
            part["name"] = given.removesuffix("_call")
        return [part, *({"type": names.RESULT, "id": part["id"], "response": _response([], each)} for each in said)]

    def _taken(self, kind: str, given: str, left: dict[str, Any]) -> Part:
        """Take the convention's fields of a part out of `left`, which is a copy."""
        holders = [left]
        for holder in holders:
            for key in names.INNER.get(kind, ()) if not _HOLDERS.isdisjoint(holder) else ():
                if type(holder.get(key)) is dict:
                    inner = holder[key] = dict(holder[key])
                    if _word(inner) in names.IMPLIED_TYPES:
                        del inner["type"]
                    holders.append(inner)
        holders.reverse()
        part: Part = {"type": kind}
        for target, keys in names.FIELDS[kind].items():
            place = _place_of(holders, keys, _FITS.get(target))
            if place is not None:
                holder, name = place
                part[target] = self._field(kind, target, holder, name)
            elif (kind, target) not in names.OPTIONAL:
                part[target] = _DEFAULTS.get(target)
        if kind == names.MEDIA:
            _name_media(part, given)
        return _beside(part, left)

    def _field(self, kind: str, target: str, holder: dict[str, Any], name: str) -> Any:
        value = holder[name]
        if target == "response":
            del holder[name]
            return _response(self._parts(value), value) if type(value) in (list, tuple) else _response([], value)
        if kind == names.REASONING and type(value) is list:
            texts = _texts(value)
            if len(texts) == len(value) and all(
                type(item) is dict and item.keys() <= {"type", "text"} for item in value
            ):
                del holder[name]
            return "\n".join(texts)
        del holder[name]
        if target == "arguments":
            return exact_json(value) if type(value) is str and self._is_whole else value
        return json_text(value) if target == "content" and kind in (names.TEXT, names.REASONING) else value


_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    name: (lambda value: type(value) is str and value != "") for name in ("id", "name", "uri", "file_id", "mime_type")
} | {"modality": lambda value: type(value) is str, "content": lambda value: not _is_empty(value) or value == ""}
_DEFAULTS: Final = {"name": "", "content": "", "response": ""}


def _present(item: dict[str, Any], keys: tuple[str, ...]) -> list[str]:
    """Return the names of an object's fields that have a value, in the order of the table."""
    return [key for key in keys if key in item and not _is_empty(item[key])]


def _place_of(
    holders: list[dict[str, Any]], keys: tuple[str, ...], fits: Callable[[Any], bool] | None
) -> tuple[dict[str, Any], str] | None:
    """Return the first field with one of some names, and the object that has it."""
    for name in keys:
        for holder in holders:
            if name in holder and (fits is None or fits(holder[name])):
                return holder, name
    return None


def _beside(part: dict[str, Any], left: dict[str, Any], keep: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Add what is left to a part, except empty ones; a field with the name of one that is there gets another name."""
    for key, field in _without_empty(left, keep).items():
        name = key
        while name in part:
            name = f"item_{name}"
        part[name] = field
    return part


_HOLDERS: Final = frozenset(key for keys in names.INNER.values() for key in keys)
_KEPT: Final = frozenset({*(name for keys in names.FIELDS[names.CALL].values() for name in keys), *_HOLDERS})
"""Fields of calls that are kept though they are empty, such as no arguments."""


def _without_empty(fields: dict[str, Any], keep: frozenset[str] = frozenset()) -> dict[str, Any]:
    kept = {}
    for key, field in fields.items():
        inner = _without_empty(field) if type(field) is dict and key in _HOLDERS and key not in keep else field
        if key in keep or not _is_empty(inner):
            kept[key] = inner
    return kept


def _kind_of(item: dict[str, Any]) -> str | None:
    """Return the convention's type of a part, by its own; None if it is unknown."""
    given = next((item[place] for place in names.TYPE_PLACES if type(item.get(place)) is str), None)
    if given is None:
        return None
    if known := names.PART_TYPES.get(given) or names.PART_TYPES.get(given.replace("-", "_")):
        return known
    if given.endswith("_call") and given in names.ITEM_TYPES:
        # A provider runs those without an id for their results itself.
        return names.CALL if "call_id" in item else names.SERVER_CALL
    if _is_ui_call(given) and "toolCallId" in item:
        return names.CALL
    return next((kind for ending, kind in names.TYPE_ENDINGS.items() if given.endswith(ending)), None)


def _is_ui_call(given: str) -> bool:
    """Return True for the type of AI SDK's calls in a page's messages, which have the tool's name."""
    return given == "dynamic-tool" or (given[:5] == "tool-" and given.replace("-", "_") not in names.PART_TYPES)


def _is_keyed(item: Any) -> bool:
    return type(item) is dict and type(item.get("type")) is not str and _key_of(item) is not None


def _key_of(item: dict[str, Any]) -> str | None:
    """Return the field that gives a part without a type its type."""
    return next((key for key in names.KEYED_PARTS if item.get(key) is not None), None)


def _server_part(kind: str, given: str, left: dict[str, Any]) -> Part:
    """Return a call that a provider ran itself, or its result: the convention has an object with everything in it."""
    inner = left.pop(given) if type(left.get(given)) is dict else {}
    part: Part = {"type": kind}
    for target, keys in names.FIELDS[kind].items():
        place = _place_of([left], keys, _FITS[target])
        part[target] = None if place is None else left.pop(place[1])
    if kind == names.SERVER_CALL and part["name"] is None:
        part["name"] = given.removesuffix("_call")
    body = _beside({"type": left.pop("type", given), **inner} if given != kind else dict(inner), left)
    return {**part, kind: body}


def _name_media(part: Part, given: str) -> None:
    """Name a media part by the place of its content: an address, a file's id, or inline."""
    word = next((word for word in names.MODALITIES if word in given), "file")
    mime = str(part.get("mime_type", ""))
    word = names.MODALITIES[word] or (mime.partition("/")[0] if word == "file" and mime[:5] in _MEDIA_TYPES else word)
    modality = part.pop("modality", word)
    if "uri" not in part and type(content := part.get("content")) is str and _ADDRESS.match(content):
        part["uri"] = part.pop("content")
    uri = part.get("uri", "")
    if uri[:5] == "data:" and "content" not in part:
        head, _, content = part.pop("uri").partition(";base64,")
        part.setdefault("mime_type", head[5:])
        # A note replaces long ones.
        part["content"] = content if content[:1] == "[" else uri
    # A `blob` would be shown as an image.
    part["type"] = "uri" if "uri" in part else "file" if "file_id" in part else modality
    part["modality"] = modality


def _response(parts: list[Part], content: Any) -> Any:
    """Return a tool's result: its text if it is only text, else its parts; data in a list or an object stay."""
    if type(content) is dict and content.keys() == {"type", "value"} and content["type"] in ("text", "json"):
        return content["value"]
    if type(content) in (list, tuple) and len(content) == 1 and type(content[0]) is dict and [*content[0]] == ["json"]:
        return content[0]["json"]
    if type(content) is str or _is_data(content):
        return content
    if all(part.keys() == {"type", "content"} and part["type"] == names.TEXT for part in parts):
        return "\n".join(part["content"] for part in parts) if parts else content
    return parts


def _is_data(content: Any) -> bool:
    """Return True for a list or an object that has no text and no part."""
    items = [content] if type(content) is dict else content
    return type(items) in (list, tuple) and not all(map(_is_said, items))


def _is_said(item: Any) -> bool:
    if type(item) is not dict:
        return item is None or type(item) is str
    return item.keys() == {"text"} or (type(item.get("type")) is str and _kind_of(item) is not None)


def _texts(parts: Any) -> list[str]:
    """Return the texts in a list of parts."""
    texts = (item.get("text") if type(item) is dict else item for item in parts)
    return [text for text in texts if type(text) is str]


def _as_part(kind: str, value: Any) -> Part:
    return _beside({"type": kind}, value if type(value) is dict else {kind: value}, _KEPT)


def _role_in(item: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return a message's role and its place; both are empty if there is none."""
    for place in names.ROLE_PLACES:
        holder: Any = item
        for key in place:
            holder = holder.get(key) if type(holder) is dict else None
        if type(holder) is str and (place == ("role",) or holder.lower() in names.KNOWN_ROLES):
            return place, holder
    return (), ""


def _standard_role(role: str) -> str:
    word = role.lower().replace("-", "_")
    return names.ROLES.get(word, word if word in names.KNOWN_ROLES else role)


def _wrapper_of(item: dict[str, Any]) -> str | None:
    """Return the field around a message: LangChain's serialized one, or a choice of OpenAI's."""
    if type(inner := item.get("message")) is dict and "role" not in item:
        return "message" if type(inner.get("role")) is str and is_message(inner) else None
    for key in names.WRAPPERS:
        inner = item.get(key)
        if type(inner) is dict and "content" in inner and ("lc" in item or _word(item) in names.LANGCHAIN_TYPES):
            return key
    return None


def _is_pair(item: Any) -> bool:
    """Return True for a role and a text, as LangChain takes a message."""
    is_two = type(item) in (list, tuple) and len(item) == _PAIR and type(item[0]) is type(item[1]) is str
    return is_two and item[0].lower() in names.KNOWN_ROLES


def _word(item: dict[str, Any]) -> str:
    """Return the type that an object has; empty if it has none."""
    kind = item.get("type")
    return kind if type(kind) is str else ""


def _is_empty(value: Any) -> bool:
    return value is None or (type(value) in (str, list, dict, tuple) and not value)
