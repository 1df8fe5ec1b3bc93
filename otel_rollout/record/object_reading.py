"""The fields of an object, read without running code of its class.

Attributes are looked up in the dicts of the classes, as data. `getattr` would run `__getattribute__`, properties and
the metaclass; they may raise, block, or query a database. Fields that a class hides from its repr are not read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, TypeVar
from weakref import ReferenceType, ref

from otel_rollout.text.sanitize import replace_surrogates

Reader = Callable[[Any, int, bool], Any]
"""Reads a value. Takes the value, the most items to return, and True if fields of unknown objects are wanted. Returns a
leaf, a private list, a dict, which may be the object's own, or a `Substitute`."""
_Found = TypeVar("_Found")

HIDDEN: Final = "[hidden]"
"""In place of a field that its class hides."""
MAX_CLASSES: Final = 4096
"""At most this many classes are cached: a program that creates classes as it runs would fill the memory."""
MAX_FIELDS: Final = 64
_SECRET_NAMES: Final = ("Password", "Credential", "Credentials")
_DESCRIPTORS: Final = (MemberDescriptorType, GetSetDescriptorType)
_HEAP_TYPE: Final = 1 << 9
"""The flag of a class that is created at run time, by a class statement or an extension."""
_MISSING: Final = object()

# Read through `type` itself: a metaclass may override any of these.
_mro: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
_class_dict: Final[Callable[[type], Any]] = type.__dict__["__dict__"].__get__
_qualname: Final[Callable[[type], str]] = type.__dict__["__qualname__"].__get__
_module: Final[Callable[[type], Any]] = type.__dict__["__module__"].__get__
_flags: Final[Callable[[type], int]] = type.__dict__["__flags__"].__get__


class Substitute:
    """A reader's result if another value, not copied yet, is to be read in place of the first.

    Args:
        value: The other value.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Part:
    """A reader's result for the first items of a container, or for a dict with keys of any type.

    Args:
        items: The items; of a dict its pairs.
        cut: The number of items that are left out.
        is_dict: True if the items are pairs.
    """

    __slots__ = ("cut", "is_dict", "items")

    def __init__(self, items: list[Any], cut: int, *, is_dict: bool = False) -> None:
        self.items = items
        self.cut = cut
        self.is_dict = is_dict


def per_class(find: Callable[[type], _Found]) -> Callable[[type], _Found]:
    """Cache a function of a class, by the class's id: a metaclass may define `__hash__` and `__eq__`.

    The cache doesn't keep classes; nor may the function's result, which would keep what their methods refer to.
    """
    entries: dict[int, tuple[ReferenceType[type], _Found]] = {}

    def cached(kind: type) -> _Found:
        key = id(kind)
        entry = entries.get(key)
        if entry is None:
            if len(entries) >= MAX_CLASSES:
                entries.clear()
            # No other class gets the id before the entry is gone. The callback is C code: a signal handler that raises
            # in Python code there would leave the entry to the next class with this id.
            entry = entries[key] = (ref(kind, partial(entries.pop, key)), find(kind))
        return entry[1]

    return cached


def class_name(kind: type) -> str:
    """Return the module and name of a class."""
    module = _module(kind)
    name = f"{module}.{_qualname(kind)}" if type(module) is str else _qualname(kind)
    return replace_surrogates(name)


def module_of(kind: type) -> str:
    """Return the top-level package of a class's `__module__`."""
    module = _module(kind)
    return module.partition(".")[0] if type(module) is str else ""


def is_subclass(kind: type, base: type) -> bool:
    """Return True if `base` is a base of `kind`, without calling a metaclass's `__subclasscheck__`."""
    # No generator: one that is not used up runs as it is freed, and what a trace function raises there is lost.
    for ancestor in _mro(kind):  # noqa: SIM110
        if ancestor is base:
            return True
    return False


def is_one_of(kind: type, known: Iterable[type]) -> bool:
    """Return True if a class is one of these, without calling a metaclass's `__eq__`, as `in` would."""
    for each in known:  # noqa: SIM110
        if kind is each:
            return True
    return False


def find_static(kind: type, name: str) -> Any:
    """Return the member `name` of a class or its bases, unbound; None if there is none."""
    for ancestor in _mro(kind):
        found = _class_dict(ancestor).get(name, _MISSING)
        if found is not _MISSING:
            return found
    return None


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields in an object's `__dict__` and slots; the result may be the object's own dict."""
    place, slots = _storage(type(value))
    fields = _dict_at(value, place)
    return {**_slot_values(value, slots), **fields} if slots else fields


@per_class
def _storage(kind: type) -> tuple[int | None, dict[str, int]]:
    """Return the places in the MRO of the classes that define the `__dict__` of a class's objects, and their slots."""
    place = None
    slots: dict[str, int] = {}
    for position, ancestor in enumerate(_mro(kind)):
        is_heap_type = _flags(ancestor) & _HEAP_TYPE
        for name, member in [*_class_dict(ancestor).items()]:
            if type(name) is not str or not is_one_of(type(member), _DESCRIPTORS):
                continue
            if name == "__dict__":
                place = position if place is None else place
            elif is_heap_type and type(member) is MemberDescriptorType and name not in slots:
                slots[name] = position
    return place, slots


def _dict_at(value: Any, place: int | None) -> dict[str, Any]:
    if place is None:
        return {}
    return _class_dict(_mro(type(value))[place])["__dict__"].__get__(value)  # type: ignore[no-any-return]


def _slot_values(value: Any, slots: dict[str, int]) -> dict[str, Any]:
    values = {}
    ancestors = _mro(type(value))
    for name, place in slots.items():
        # A slot may be empty.
        with suppress(AttributeError):
            values[name] = _class_dict(ancestors[place])[name].__get__(value)
    return values


def object_reader(kind: type) -> Reader:
    """Return a reader of the fields that a class declares, or, if it declares none, of its objects' public fields."""
    if _is_secret(kind):
        return lambda value, room, deep: HIDDEN
    name = f"<{class_name(kind)}>"
    place, slots = _storage(kind)
    if place is None and not slots:
        return lambda value, room, deep: name
    read = None if place is None else partial(_read_dict_at, place)
    declared = _declared_fields(kind)
    if declared is not None:
        fields, is_complete = declared
        if is_complete and not _takes_more_fields(kind):
            slots = {}
        if read is not None and not slots and is_complete and not any(fields.values()):
            return lambda value, room, deep: read(value)
        return _declared_reader(read, slots, fields, is_complete=is_complete)

    public_slots = {key: slot for key, slot in slots.items() if key[:1] != "_"}

    def read_public(value: Any, room: int, deep: bool) -> Any:
        if not deep:
            return name
        kept: dict[str, Any] = {"type": name[1:-1]}
        cut = 0
        if read is not None:
            fields = read(value)
            pairs = [*islice(fields.items(), MAX_FIELDS)]
            kept |= {key: item for key, item in pairs if type(key) is str and key[:1] != "_"}
            cut = len(fields) - len(pairs)
        if public_slots:
            kept |= _slot_values(value, public_slots)
        if cut > 0:
            return Part([*kept.items()], cut, is_dict=True)
        return kept if len(kept) > 1 else name

    return read_public


def _read_dict_at(place: int, value: Any) -> dict[str, Any]:
    return _dict_at(value, place)


def _declared_reader(
    read: Callable[[Any], dict[str, Any]] | None,
    slots: dict[str, int],
    declared: dict[str, bool],
    *,
    is_complete: bool,
) -> Reader:
    hidden = frozenset(name for name, is_hidden in declared.items() if is_hidden)
    declared_slots = {name: slot for name, slot in slots.items() if name in declared and name not in hidden}
    hidden_slots = dict.fromkeys(hidden & slots.keys(), HIDDEN)
    more_fields = {name: slot for name, slot in slots.items() if name == "__pydantic_extra__"} if is_complete else {}

    def read_declared(value: Any, room: int, deep: bool) -> Any:
        # The walk cuts a dict and counts what it leaves out; a part counts what isn't read here.
        room = max(room, MAX_FIELDS)
        fields = read(value) if read is not None else {}
        kept = {
            key: HIDDEN if key in hidden else item
            for key, item in [*islice(fields.items(), room)]
            if type(key) is str and (is_complete or key in declared)
        }
        cut = len(fields) - room
        if cut > 0 and not is_complete:
            cut = min(cut, len(declared.keys() - kept.keys() - slots.keys()))
        if declared_slots:
            kept |= _slot_values(value, declared_slots)
        if more_fields:
            extra = _slot_values(value, more_fields).get("__pydantic_extra__")
            if type(extra) is dict:
                kept |= {key: item for key, item in [*islice(extra.items(), room)] if type(key) is str}
                cut = max(cut, 0) + max(len(extra) - room, 0)
        if hidden_slots:
            kept |= hidden_slots
        return Part([*kept.items()], cut, is_dict=True) if cut > 0 else kept

    return read_declared


def _declared_fields(kind: type) -> tuple[dict[str, bool], bool] | None:
    """Return the fields that a class declares (True for hidden ones), and True if its objects' dict has only fields.

    None if it declares no fields. Known are pydantic (both versions), dataclasses and attrs.
    """
    if find_static(kind, "__pydantic_fields_set__") is not None:
        declared = find_static(kind, "__pydantic_fields__")
        declared = declared if type(declared) is dict else find_static(kind, "model_fields")
        fields = declared.items() if type(declared) is dict else ()
        return {name: _is_hidden_by_pydantic(field) for name, field in fields}, True
    declared = find_static(kind, "__fields__")
    if type(declared) is dict and find_static(kind, "__fields_set__") is not None:
        infos = {name: fields_of(field).get("field_info") for name, field in declared.items()}
        return {name: _is_hidden_by_pydantic(info) for name, info in infos.items()}, True
    declared = find_static(kind, "__dataclass_fields__")
    if type(declared) is dict:
        return {name: not field.repr for name, field in declared.items() if type(field) is dataclasses.Field}, False
    declared = find_static(kind, "__attrs_attrs__")
    if type(declared) is tuple or (declared is not None and is_subclass(type(declared), tuple)):
        attributes = [fields_of(attribute) for attribute in tuple.__iter__(declared)]
        # A function as `repr` shows something other than the value.
        return {attribute["name"]: attribute.get("repr") is not True for attribute in attributes}, False
    return None


def _takes_more_fields(kind: type) -> bool:
    """Return True if a pydantic 2 class keeps undeclared fields, which are in a slot."""
    config = find_static(kind, "model_config")
    return type(config) is dict and config.get("extra") == "allow"


def _is_hidden_by_pydantic(field: Any) -> bool:
    fields = fields_of(field)
    exclude = fields.get("exclude")
    return fields.get("repr") is False or (exclude is not None and exclude is not False)


def _is_secret(kind: type) -> bool:
    """Return True if a class or a base is named as one that holds a secret, such as pydantic's `SecretStr`."""
    names = [_qualname(ancestor).rpartition(".")[2].lstrip("_") for ancestor in _mro(kind)]
    # `SecretStr`, but not `SecretaryProblem`.
    return any((name.startswith("Secret") and not name[6:7].islower()) or name in _SECRET_NAMES for name in names)
