"""How the fields of an object are read without running code of its class.

Attributes are looked up in the dicts of the classes, as data. `getattr` would run `__getattribute__`, properties and
the metaclass; they may raise, block, or query a database. What a class keeps out of its own repr is not read either.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final

from otel_rollout.values.sanitize import replace_surrogates

__all__ = [
    "HIDDEN",
    "Reader",
    "Standin",
    "class_name",
    "fields_of",
    "find_static",
    "integer_text",
    "is_one_of",
    "is_subclass",
    "key_text",
    "module_of",
    "reader_of",
    "register_reader",
]

Reader = Callable[[Any, int, bool], Any]
"""Takes a value, how many items it may return, and whether fields of unknown objects are wanted; returns a leaf, a
private list, or a dict, which may be the object's own."""

HIDDEN: Final = "[hidden]"
"""Stands in a payload for a field that its class hides."""
MAX_CLASSES: Final = 4096
"""Classes whose readers are kept; programs that make classes as they run would fill the memory."""
MAX_FIELDS: Final = 64
_SECRET_NAMES: Final = ("Password", "Credential", "Credentials")
_DESCRIPTORS: Final = (MemberDescriptorType, GetSetDescriptorType)
_SCALARS: Final = (int, float, bool, type(None))
_LEAVES: Final = (str, *_SCALARS, dt.datetime, dt.date, dt.time, uuid.UUID)
_HEAP_TYPE: Final = 1 << 9
"""The flag of a class that was made at run time, by a class statement or an extension."""
_MISSING: Final = object()

# Read through `type` itself: a metaclass may define any of these as it likes.
_mro: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
_class_dict: Final[Callable[[type], Any]] = type.__dict__["__dict__"].__get__
_qualname: Final[Callable[[type], str]] = type.__dict__["__qualname__"].__get__
_module: Final[Callable[[type], Any]] = type.__dict__["__module__"].__get__
_flags: Final[Callable[[type], int]] = type.__dict__["__flags__"].__get__


class Standin:
    """What a reader returns for a value that another value stands for, which is then read in its place.

    Args:
        value: The other value, with all that is in it as live as the first.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


_readers: dict[int, tuple[type, Reader]] = {}
"""By the id of the class, which is kept: a metaclass may define `__hash__` and `__eq__`."""
_storages: dict[int, tuple[type, tuple[Callable[[Any], dict[str, Any]] | None, dict[str, Any]]]] = {}
_makers: list[Callable[[type], Reader | None]] = []


def reader_of(kind: type) -> Reader:
    """Return what reads values of a class."""
    entry = _readers.get(id(kind))
    if entry is None:
        reader = next((reader for make in _makers if (reader := make(kind)) is not None), None) or _object_reader(kind)
        if len(_readers) >= MAX_CLASSES:
            _readers.clear()
        entry = _readers[id(kind)] = (kind, reader)
    return entry[1]


def register_reader(make: Callable[[type], Reader | None]) -> None:
    """Add a maker of readers: it returns a reader for the classes that it knows, None for others."""
    _makers.append(make)


def class_name(kind: type) -> str:
    """Return the module and name of a class, whatever its metaclass."""
    module = _module(kind)
    name = f"{module}.{_qualname(kind)}" if type(module) is str else _qualname(kind)
    return replace_surrogates(name)


def key_text(key: Any) -> str:
    """Return the text that a key of a dict is in JSON, whatever the key."""
    kind = type(key)
    if kind is str:
        return key  # type: ignore[no-any-return]  # just seen
    if kind is int:
        return integer_text(key)
    if key is None or kind is bool:
        return "null" if key is None else "true" if key else "false"
    if kind is not float:
        read = reader_of(kind)(key, 0, False)  # a reader takes its arguments by position
        if type(read) is Standin:
            read = read.value
        if not is_one_of(type(read), _LEAVES):
            return f"<{class_name(kind)}>"
        return read if type(read) is str else key_text(read) if type(read) in _SCALARS else str(read)
    return repr(key)


def integer_text(value: int) -> str:
    """Return an integer of any length as text."""
    try:
        return str(value) if value.bit_length() < 10_000 else hex(value)
    except ValueError:
        # Python refuses to write integers over 4,300 digits in decimal.
        return hex(value)


def module_of(kind: type) -> str:
    """Return the top-level package that a class says it is from."""
    module = _module(kind)
    return module.partition(".")[0] if type(module) is str else ""


def is_subclass(kind: type, base: type) -> bool:
    """Return whether `base` is among the bases of `kind`; without `__subclasscheck__`, which a metaclass may define."""
    return any(ancestor is base for ancestor in _mro(kind))


def is_one_of(kind: type, known: Iterable[type]) -> bool:
    """Return whether a class is one of these; `in` would compare, by `__eq__` of a metaclass."""
    return any(kind is each for each in known)


def find_static(kind: type, name: str) -> Any:
    """Return what the class or a base of it has under a name, as it stands there; None if there is nothing."""
    for ancestor in _mro(kind):
        found = _class_dict(ancestor).get(name, _MISSING)
        if found is not _MISSING:
            return found
    return None


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields that an object has in its `__dict__`, which may be the object's own dict, and in its slots."""
    read, slots = _storage(type(value))
    fields: dict[str, Any] = read(value) if read is not None else {}
    return {**_slot_values(value, slots), **fields} if slots else fields


def _storage(kind: type) -> tuple[Callable[[Any], dict[str, Any]] | None, dict[str, Any]]:
    """Return what reads the `__dict__` of a class's objects, and the descriptors of their slots by name."""
    entry = _storages.get(id(kind))
    if entry is None:
        if len(_storages) >= MAX_CLASSES:
            _storages.clear()
        entry = _storages[id(kind)] = (kind, _find_storage(kind))
    return entry[1]


def _find_storage(kind: type) -> tuple[Callable[[Any], dict[str, Any]] | None, dict[str, Any]]:
    read = None
    slots: dict[str, Any] = {}
    for ancestor in _mro(kind):
        is_heap_type = _flags(ancestor) & _HEAP_TYPE
        for name, member in [*_class_dict(ancestor).items()]:
            if type(name) is not str or not is_one_of(type(member), _DESCRIPTORS):
                continue
            if name == "__dict__":
                read = read or member.__get__
            elif is_heap_type and type(member) is MemberDescriptorType and name not in slots:
                slots[name] = member
    return read, slots


def _slot_values(value: Any, slots: dict[str, Any]) -> dict[str, Any]:
    values = {}
    for name, slot in slots.items():
        # Nothing may have been assigned to it.
        with suppress(AttributeError):
            values[name] = slot.__get__(value)
    return values


def _object_reader(kind: type) -> Reader:
    """Return what reads an object by its declared fields, or, of a class that declares none, by its public ones."""
    if _is_secret(kind):
        return lambda value, room, deep: HIDDEN
    name = f"<{class_name(kind)}>"
    read, slots = _storage(kind)
    if read is None and not slots:
        return lambda value, room, deep: name
    declared = _declared_fields(kind)
    if declared is not None:
        shown, hidden, is_complete = declared
        if is_complete and not _takes_more_fields(kind):
            slots = {}
        if read is not None and not slots and is_complete and not hidden:
            return lambda value, room, deep: read(value)
        return _declared_reader(read, slots, shown, hidden, is_complete)

    public_slots = {key: slot for key, slot in slots.items() if key[:1] != "_"}

    def read_public(value: Any, room: int, deep: bool) -> Any:
        if not deep:
            return name
        kept: dict[str, Any] = {"type": name[1:-1]}
        if read is not None:
            fields = read(value)
            pairs = [*islice(fields.items(), MAX_FIELDS)]
            kept |= {key: item for key, item in pairs if type(key) is str and key[:1] != "_"}
            if len(fields) > MAX_FIELDS:
                kept["…"] = f"[{len(fields) - MAX_FIELDS:,} fields cut]"
        if public_slots:
            kept |= _slot_values(value, public_slots)
        return kept if len(kept) > 1 else name

    return read_public


def _declared_reader(
    read: Callable[[Any], dict[str, Any]] | None,
    slots: dict[str, Any],
    shown: frozenset[str],
    hidden: frozenset[str],
    is_complete: bool,
) -> Reader:
    declared_slots = {name: slot for name, slot in slots.items() if name in shown}
    hidden_slots = dict.fromkeys(hidden & slots.keys(), HIDDEN)
    more_fields = {name: slot for name, slot in slots.items() if name == "__pydantic_extra__"} if is_complete else {}

    def read_declared(value: Any, room: int, deep: bool) -> Any:
        fields = read(value) if read is not None else {}
        kept = {
            key: HIDDEN if key in hidden else item
            for key, item in [*islice(fields.items(), room)]
            if type(key) is str and (is_complete or key in shown or key in hidden)
        }
        if declared_slots:
            kept |= _slot_values(value, declared_slots)
        if more_fields:
            extra = _slot_values(value, more_fields).get("__pydantic_extra__")
            if type(extra) is dict:
                kept |= {key: item for key, item in [*islice(extra.items(), room)] if type(key) is str}
        return kept | hidden_slots if hidden_slots else kept

    return read_declared


def _declared_fields(kind: type) -> tuple[frozenset[str], frozenset[str], bool] | None:
    """Return the names of the fields that a class declares, those that it hides, and whether its dict has only fields.

    None if it declares none. Known are pydantic (both versions), dataclasses and attrs.
    """
    if find_static(kind, "__pydantic_fields_set__") is not None:
        declared = find_static(kind, "__pydantic_fields__")
        declared = declared if type(declared) is dict else find_static(kind, "model_fields")
        fields = declared if type(declared) is dict else {}
        hidden = {name for name, field in fields.items() if _is_hidden_by_pydantic(field)}
        return frozenset(fields) - hidden, frozenset(hidden), True
    declared = find_static(kind, "__fields__")
    if type(declared) is dict and find_static(kind, "__fields_set__") is not None:
        hidden = {
            name for name, field in declared.items() if _is_hidden_by_pydantic(fields_of(field).get("field_info"))
        }
        return frozenset(declared) - hidden, frozenset(hidden), True
    declared = find_static(kind, "__dataclass_fields__")
    if type(declared) is dict:
        fields = {name: field for name, field in declared.items() if type(field) is dataclasses.Field}
        hidden = {name for name, field in fields.items() if not field.repr}
        return frozenset(fields) - hidden, frozenset(hidden), False
    declared = find_static(kind, "__attrs_attrs__")
    if type(declared) is tuple or (declared is not None and is_subclass(type(declared), tuple)):
        attributes = [fields_of(attribute) for attribute in tuple.__iter__(declared)]
        # A `repr` that is a function is there to show something else than the value.
        hidden = {attribute["name"] for attribute in attributes if attribute.get("repr") is not True}
        return frozenset(attribute["name"] for attribute in attributes) - hidden, frozenset(hidden), False
    return None


def _takes_more_fields(kind: type) -> bool:
    """Return whether a class of pydantic's second version keeps fields that it doesn't declare, in a slot."""
    config = find_static(kind, "model_config")
    return type(config) is dict and config.get("extra") == "allow"


def _is_hidden_by_pydantic(field: Any) -> bool:
    fields = fields_of(field)
    exclude = fields.get("exclude")
    return fields.get("repr") is False or (exclude is not None and exclude is not False)


def _is_secret(kind: type) -> bool:
    """Return whether a class holds a secret, as `SecretStr` of pydantic does; known by its name or a base's."""
    names = [_qualname(ancestor).rpartition(".")[2].lstrip("_") for ancestor in _mro(kind)]
    return any(name.startswith("Secret") or name in _SECRET_NAMES for name in names)
