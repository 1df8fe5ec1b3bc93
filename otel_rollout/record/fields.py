"""Reads the fields of objects as data, by what their class declares: no property, `repr` or serializer runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, NamedTuple, TypeVar
from weakref import ReferenceType, ref

from otel_rollout.text.sanitize import replace_surrogates

_Found = TypeVar("_Found")
HIDDEN: Final = "[hidden]"
"""In place of a field that its class hides."""
_get: Final = object.__getattribute__


class Part(NamedTuple):
    """A reader's result of which `cut` items are left out."""

    plain: Any
    cut: int


def per_class(find: Callable[[type], _Found]) -> Callable[[type], _Found]:
    """Cache a function of a class, which is kept weakly: nor may the result refer to the class or its members."""
    found: dict[ReferenceType[type], _Found] = {}

    def cached(kind: type) -> _Found:
        # A class has one reference without a callback: it is found by identity.
        key = ref(kind)
        try:
            return found[key]
        except KeyError:
            pass
        if len(found) >= 4096:  # those that are gone included
            found.clear()
        result = found[key] = find(kind)
        return result

    return cached


def class_name(kind: type) -> str:
    """Return the module and name of a class."""
    return replace_surrogates(f"{kind.__module__}.{kind.__qualname__}")


def shape_of(value: Any) -> str:
    """Return the name of a value's class and, of a list or tuple, the first items' classes: `tuple[dict, int]`."""
    kind = type(value)
    name = replace_surrogates(kind.__name__)
    if kind is not list and kind is not tuple:
        return name
    names = [replace_surrogates(type(item).__name__) for item in value[:8]]
    return f"{name}[{', '.join(dict.fromkeys(names) if kind is list else names)}]" if names else name


def module_of(kind: type) -> str:
    """Return the top-level package of a class's `__module__`."""
    module = kind.__module__
    return module.partition(".")[0] if type(module) is str else ""


def find_static(kind: type, name: str) -> Any:
    """Return the member `name` of a class or its bases, unbound; None if there is none."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None)


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields in an object's `__dict__` and slots; the result may be the object's own dict."""
    has_dict, slots = _places(type(value))
    fields: dict[str, Any] = _get(value, "__dict__") if has_dict else {}
    return {**_slot_values(value, slots), **fields} if slots else fields


@per_class
def _places(kind: type) -> tuple[bool, tuple[str, ...]]:
    """Return True if a class's objects have a `__dict__`, and the names of their slots that nothing overrides."""
    slots = {
        name: None
        for base in kind.__mro__
        # Classes that are created at run time, by a class statement or an extension: CPython's Py_TPFLAGS_HEAPTYPE.
        if base.__flags__ & 1 << 9
        for name, member in [*base.__dict__.items()]
        if type(member) is MemberDescriptorType and find_static(kind, name) is member
    }
    return type(find_static(kind, "__dict__")) in (GetSetDescriptorType, MemberDescriptorType), tuple(slots)


def _slot_values(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        return {name: _get(value, name) for name in names}
    except AttributeError:
        # A slot is empty.
        return {name: held[0] for name in names if (held := _slot_value(value, name))}


def _slot_value(value: Any, name: str) -> tuple[Any, ...]:
    try:
        return (_get(value, name),)
    except AttributeError:
        return ()


def object_reader(kind: type) -> tuple[Callable[[Any], Any], bool]:
    """Return a reader of the fields that a class declares, or of its objects' public fields; True if it declares some.

    A reader returns a text or a private dict, whose values are the object's own.
    """
    if _is_secret(kind):
        return lambda value: HIDDEN, True
    name = class_name(kind)
    has_dict, slots = _places(kind)
    if not has_dict and not slots:
        return lambda value: f"<{name}>", True
    declared = _declared_fields(kind)
    if declared is None:
        return _public_reader(name, slots, has_dict=has_dict), False
    config = find_static(kind, "model_config")
    # Pydantic 2 keeps undeclared fields in a slot.
    takes_more = type(config) is dict and config.get("extra") == "allow"
    return _declared_reader(has_dict, slots, *declared, takes_more=takes_more), True


def _declared_reader(
    has_dict: bool, slots: tuple[str, ...], declared: dict[str, bool], is_complete: bool, *, takes_more: bool
) -> Callable[[Any], Any]:
    hidden = dict.fromkeys([field for field, is_hidden in declared.items() if is_hidden], HIDDEN)
    slots = () if is_complete else tuple(slot for slot in slots if slot in declared)
    count = len(declared)

    def read_dict(value: Any) -> Any:
        fields = _get(value, "__dict__")
        if is_complete or len(fields) == count:
            return fields.copy()
        return {name: fields[name] for name in declared if name in fields}

    def read_slots(value: Any) -> Any:
        return _slot_values(value, slots)

    def read(value: Any) -> Any:
        kept = {**(read_dict(value) if has_dict else {}), **_slot_values(value, slots)}
        extra = _slot_value(value, "__pydantic_extra__") if takes_more else ()
        kept.update(extra[0] if extra and type(extra[0]) is dict else {})
        return {field: hidden.get(field, item) for field, item in kept.items()} if hidden else kept

    if hidden or takes_more or (has_dict and slots):
        return read
    return read_dict if has_dict else read_slots


def _public_reader(name: str, slots: tuple[str, ...], *, has_dict: bool) -> Callable[[Any], Any]:
    slots = tuple(slot for slot in slots if slot[:1] != "_")

    def read(value: Any) -> Any:
        fields = _get(value, "__dict__") if has_dict else {}
        pairs = [*islice(fields.items(), 64)]
        kept = {key: item for key, item in pairs if type(key) is str and key[:1] != "_"} | _slot_values(value, slots)
        if cut := len(fields) - len(pairs):
            return Part({"type": name, **kept, "…": f"[{cut:,} keys cut]"}, cut)
        return {"type": name, **kept} if kept else f"<{name}>"

    return read


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
    if declared is not None and issubclass(type(declared), tuple):
        attributes = [fields_of(attribute) for attribute in tuple.__iter__(declared)]
        # A function as `repr` shows something other than the value.
        return {attribute["name"]: attribute.get("repr") is not True for attribute in attributes}, False
    return None


def _is_hidden_by_pydantic(field: Any) -> bool:
    fields = fields_of(field)
    return fields.get("repr") is False or fields.get("exclude") not in (None, False)


def _is_secret(kind: type) -> bool:
    """Return True if a class or a base is named as one that holds a secret, such as pydantic's `SecretStr`."""
    names = [base.__qualname__.rpartition(".")[2].lstrip("_") for base in kind.__mro__]
    # `SecretStr`, but not `SecretaryProblem`.
    named = ("Password", "Credential", "Credentials")
    return any((name.startswith("Secret") and not name[6:7].islower()) or name in named for name in names)
