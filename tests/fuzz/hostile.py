"""Classes of users at their worst: each method that a tracer might call is noted, then raises, sleeps or lies."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import fractions
import functools
import pathlib
import time
import types
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.fuzz.watch import WATCH

__all__ = ["BEHAVIOURS", "Hostility", "behave", "hostile_bases", "make_hostile", "odd_objects"]


class Hostility(BaseException):
    """No `Exception`: as PyO3's panics, or an interrupt of a debugger."""


def _sleep() -> None:
    time.sleep(0.002)


BEHAVIOURS: dict[str, Callable[[], Any]] = {
    "Exception": lambda: _raise(RuntimeError("hostile")),
    "BaseException": lambda: _raise(Hostility("hostile")),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "StopIteration": lambda: _raise(StopIteration()),
    "AttributeError": lambda: _raise(AttributeError("hostile")),
    "sleep": _sleep,
    "lie": object,
}
_behaviour = ["Exception"]


def behave(name: str) -> None:
    """Choose what every hostile method does from now on."""
    _behaviour[0] = name


def _raise(error: BaseException) -> Any:
    raise error


def _misbehave() -> Any:
    return BEHAVIOURS[_behaviour[0]]()


_DEFAULTS: dict[str, Callable[..., Any]] = {
    "__len__": lambda self: 0,
    "__iter__": lambda self: iter(()),
    "__contains__": lambda self, item: False,
    "__bool__": lambda self: True,
    "__getitem__": lambda self, key: _raise(KeyError(key)),
    "__index__": lambda self: 1,
    "__int__": lambda self: 1,
    "__float__": lambda self: 1.0,
}
_SPECIAL = (
    *("__repr__", "__str__", "__format__", "__bytes__", "__hash__", "__eq__", "__ne__", "__lt__", "__bool__"),
    *("__len__", "__length_hint__", "__iter__", "__reversed__", "__contains__", "__getitem__", "__missing__"),
    *("__int__", "__float__", "__index__", "__complex__", "__round__", "__trunc__", "__fspath__", "__sizeof__"),
    *("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__", "__copy__"),
    *("__deepcopy__", "__dir__", "__enter__", "__exit__", "__call__", "__array__", "__instancecheck__"),
)
_PLAIN = (
    *("keys", "items", "values", "get", "copy", "isoformat", "item", "tolist", "dict", "json", "model_dump"),
    *("model_dump_json", "to_dict", "to_json", "as_dict", "asdict", "_asdict", "encode", "decode", "hex", "numpy"),
    *("detach", "cpu", "utcoffset", "dst", "tzname", "conjugate", "as_integer_ratio", "as_posix", "total_seconds"),
)
_PROPERTIES = ("shape", "dtype", "size", "ndim", "value", "name", "usage", "choices", "model", "args", "fields")


def _method(owner: str, name: str, original: Any) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if WATCH.called(owner, name):
            return _misbehave()
        return original(self, *args, **kwargs)

    return method


def make_hostile(base: type, *, name: str | None = None, is_attribute_hostile: bool = False) -> type:
    """Return a subclass of `base` whose methods do harm when they are called by a tracer.

    Args:
        base: Any class that may be subclassed.
        name: Of the new class; made of the base's where None.
        is_attribute_hostile: Whether every look at an attribute is a method too.
    """
    owner = name or f"Hostile{base.__name__.title()}"
    namespace: dict[str, Any] = {"__module__": __name__, "__hash__": base.__hash__}
    for method in (*_SPECIAL, *_PLAIN):
        original = getattr(base, method, None) or _DEFAULTS.get(method)
        if original is not None and not isinstance(original, (property, str)):
            namespace[method] = _method(owner, method, original)
    if base is object:
        for attribute in _PROPERTIES:
            namespace[attribute] = property(_method(owner, attribute, lambda self: 1))
        namespace["__getattr__"] = _method(owner, "__getattr__", lambda self, name: _raise(AttributeError(name)))
    if is_attribute_hostile:
        namespace["__getattribute__"] = _method(owner, "__getattribute__", base.__getattribute__)
    return type(owner, (base,), namespace)


class _Plain:
    """Has fields."""

    def __init__(self) -> None:
        self.text = "field"
        self.number = 1


class HostileMeta(type):
    """A class of classes whose every look-up is a method."""

    def __getattribute__(cls, name: str) -> Any:
        if WATCH.called("HostileMeta", "__getattribute__"):
            return _misbehave()
        return type.__getattribute__(cls, name)

    __instancecheck__ = _method("HostileMeta", "__instancecheck__", type.__instancecheck__)
    __subclasscheck__ = _method("HostileMeta", "__subclasscheck__", type.__subclasscheck__)
    __repr__ = _method("HostileMeta", "__repr__", type.__repr__)
    __hash__ = _method("HostileMeta", "__hash__", type.__hash__)
    __eq__ = _method("HostileMeta", "__eq__", type.__eq__)


class OfHostileMeta(_Plain, metaclass=HostileMeta):
    """Of a class that can't be looked at."""


@functools.cache
def hooked_mapping() -> type:
    """Return a class that its ABC asks about every class which is compared with `Mapping`, in the whole process."""

    class HookedMapping(Mapping[Any, Any]):
        """Its ABC asks it about every class that is compared with `Mapping`."""

        __subclasshook__ = classmethod(_method("HookedMapping", "__subclasshook__", lambda cls, other: NotImplemented))
        __getitem__ = _method("HookedMapping", "__getitem__", lambda self, key: key)
        __iter__ = _method("HookedMapping", "__iter__", lambda self: iter(()))
        __len__ = _method("HookedMapping", "__len__", lambda self: 0)

    return HookedMapping


class Disguised(_Plain):
    """Its class and its fields are properties."""

    __class__ = property(_method("Disguised", "__class__", lambda self: dict))
    __dict__ = property(_method("Disguised", "__dict__", lambda self: {}))


class Slotted:
    """Fields in slots, one never set, one hidden behind a property of a subclass."""

    __slots__ = ("__weakref__", "kept", "unset")

    def __init__(self, kept: Any = "slot") -> None:
        self.kept = kept


class Shadowed(Slotted):
    """A property stands before the slot."""

    __slots__ = ()
    kept = property(_method("Shadowed", "kept", lambda self: 1), lambda self, value: None)


class Descriptor:
    """A descriptor on a class: reading the attribute runs it."""

    __get__ = _method("Descriptor", "__get__", lambda self, instance, owner: 1)
    __set__ = _method("Descriptor", "__set__", lambda self, instance, value: None)


class Described(_Plain):
    """Has fields that are descriptors, and claims to be what tracers know by name."""

    query = Descriptor()
    __fields__ = Descriptor()
    __pydantic_fields_set__ = Descriptor()
    __attrs_attrs__ = Descriptor()
    __dataclass_fields__ = Descriptor()
    __struct_fields__ = Descriptor()
    _fields = Descriptor()


class HostileZone(dt.tzinfo):
    """A time zone in Python."""

    utcoffset = _method("HostileZone", "utcoffset", lambda self, moment: dt.timedelta(hours=1))
    dst = _method("HostileZone", "dst", lambda self, moment: None)
    tzname = _method("HostileZone", "tzname", lambda self, moment: "zone")
    __repr__ = _method("HostileZone", "__repr__", object.__repr__)
    __reduce__ = _method("HostileZone", "__reduce__", dt.tzinfo.__reduce__)


class HostileEnum(enum.Enum):
    """Members whose value is a property, and whose text is code."""

    FIRST = "first"
    SECOND = 2
    LIST = ("x" * 50, ["y"])

    value = property(_method("HostileEnum", "value", lambda self: self._value_))
    name = property(_method("HostileEnum", "name", lambda self: self._name_))
    __str__ = _method("HostileEnum", "__str__", object.__repr__)
    __repr__ = _method("HostileEnum", "__repr__", object.__repr__)
    __format__ = _method("HostileEnum", "__format__", object.__format__)
    __reduce_ex__ = _method("HostileEnum", "__reduce_ex__", object.__reduce_ex__)


class HostileTextEnum(str, enum.Enum):
    """A text, and a member."""

    FIRST = "first"
    __str__ = _method("HostileTextEnum", "__str__", str.__str__)
    __repr__ = _method("HostileTextEnum", "__repr__", str.__repr__)
    __hash__ = _method("HostileTextEnum", "__hash__", str.__hash__)
    __eq__ = _method("HostileTextEnum", "__eq__", str.__eq__)


class HostileFlag(enum.IntFlag):
    """A number, and a member."""

    ONE = 1
    TWO = 2
    __str__ = _method("HostileFlag", "__str__", int.__repr__)
    __repr__ = _method("HostileFlag", "__repr__", int.__repr__)
    __index__ = _method("HostileFlag", "__index__", int.__index__)


class Point(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any


class HostilePoint(Point):
    """A named tuple with methods."""

    __slots__ = ()
    __iter__ = _method("HostilePoint", "__iter__", tuple.__iter__)
    __getitem__ = _method("HostilePoint", "__getitem__", tuple.__getitem__)
    __len__ = _method("HostilePoint", "__len__", tuple.__len__)
    __repr__ = _method("HostilePoint", "__repr__", tuple.__repr__)
    _asdict = _method("HostilePoint", "_asdict", dict)


_BASES: tuple[tuple[type, tuple[Any, ...]], ...] = (
    (str, ("text",)),
    (int, (7,)),
    (float, (1.5,)),
    (complex, (1j,)),
    (bytes, (b"bytes",)),
    (bytearray, (b"bytes",)),
    (list, ([1, "two", {"three": 3}],)),
    (tuple, ((1, "two"),)),
    (dict, ({"one": 1, "two": [2]},)),
    (set, ({1, 2},)),
    (frozenset, ({1, 2},)),
    (collections.OrderedDict, ({"one": 1},)),
    (collections.defaultdict, (list, {"one": 1})),
    (collections.Counter, ({"one": 1},)),
    (collections.deque, ([1, 2],)),
    (collections.UserDict, ({"one": 1},)),
    (collections.UserList, ([1],)),
    (collections.UserString, ("text",)),
    (dt.datetime, (2026, 1, 1)),
    (dt.date, (2026, 1, 1)),
    (dt.timedelta, (1,)),
    (decimal.Decimal, ("1.5",)),
    (fractions.Fraction, (1, 3)),
    (uuid.UUID, ("12345678123456781234567812345678",)),
    (type(pathlib.PurePath()), ("a/b",)),
    (types.SimpleNamespace, ()),
    (object, ()),
    (ValueError, ("no", {"key": [1]})),
    (KeyError, ("no",)),
    (OSError, (2, "no", "file")),
    (Hostility, ("no",)),
)


def hostile_bases() -> list[Callable[[], Any]]:
    """Return what makes an instance of a hostile subclass of each class that tracers know."""
    makers: list[Callable[[], Any]] = []
    for base, arguments in _BASES:
        for is_attribute_hostile in (False, True):
            cls = make_hostile(base, is_attribute_hostile=is_attribute_hostile)
            makers.append(lambda cls=cls, arguments=arguments: cls(*arguments))
    return makers


def odd_objects() -> list[Callable[[], Any]]:
    """Return what makes an instance of each class that hides what it is."""
    plain: list[Any] = [OfHostileMeta, hooked_mapping(), Disguised, Slotted, Shadowed, Described]
    zone = HostileZone()
    return [
        *plain,
        lambda: OfHostileMeta,
        lambda: dt.datetime(2026, 1, 1, tzinfo=zone),
        lambda: dt.time(1, 2, tzinfo=zone),
        lambda: [dt.datetime(2026, 1, 1, tzinfo=zone), {"key": ["x" * 50]}],
        lambda: list(HostileEnum),
        lambda: {HostileTextEnum.FIRST: HostileFlag.ONE | HostileFlag.TWO},
        lambda: HostilePoint(1, ["y"]),
        lambda: {HostilePoint(1, "y"): 1},
    ]
