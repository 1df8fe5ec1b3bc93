"""The snapshot of values that do what they can to break it: it never raises, and what comes out is JSON."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import io
import pathlib
import threading
import tracemalloc
import types
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import orjson
import pytest

from otel_rollout.payload import MAX_TEXT_CHARACTERS, snapshot, snapshot_arguments
from tests.payload_values import Attrs, Frozen, Slotted, read


class Unrepresentable:
    """Its repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError("repr")


class Undictionaried:
    """Its `__dict__` raises."""

    @property
    def __dict__(self) -> Any:
        raise RuntimeError("dict")


class Lengthless(list):
    """Its length raises."""

    def __len__(self) -> int:
        raise RuntimeError("len")


class Classless:
    """Its `__class__` raises."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("class")


class Attributeless:
    """Any look at it raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Nameless(type):
    """Any look at its classes raises."""

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class OfNameless(metaclass=Nameless):
    """Of a class that can't be looked at."""


class EvilMapping(collections.abc.Mapping):
    """A mapping that can't be read."""

    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("getitem")

    def __iter__(self) -> Any:
        raise RuntimeError("iter")

    def __len__(self) -> int:
        raise RuntimeError("len")


class UnreadableModel:
    """Looks like a model, and can't be read."""

    model_fields = ()

    @property
    def __dict__(self) -> Any:
        raise RuntimeError("dict")


class Client:
    """A client whose every method is a remote call, and that says it is of a class that it isn't."""

    def __init__(self, kind: type = object) -> None:
        self.calls: list[str] = []
        self.kind = kind

    @property
    def __class__(self) -> Any:
        return self.kind

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append(name) or name

    def keys(self) -> Any:
        """Be called."""
        self.calls.append("keys")
        return []

    def __iter__(self) -> Any:
        self.calls.append("iter")
        return iter(())

    def __len__(self) -> int:
        self.calls.append("len")
        return 0


class Lazy(collections.abc.Mapping):
    """A mapping that makes its items as they are read."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.read = 0

    def __getitem__(self, key: str) -> int:
        self.read += 1
        return int(key)

    def __iter__(self) -> Any:
        return map(str, range(self.length))

    def __len__(self) -> int:
        return self.length


def _generator() -> Any:
    yield 1


def _dead_proxy() -> Any:
    return weakref.proxy(Frozen(1))


def _deep(levels: int, wrap: Callable[[Any], Any] = lambda value: [value]) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = wrap(value)
    return value


HOSTILE: list[Any] = [
    Unrepresentable,
    Undictionaried,
    Lengthless,
    Classless,
    Attributeless,
    lambda: OfNameless(),  # noqa: PLW0108 - pytest would look at the class
    EvilMapping,
    UnreadableModel,
    mock.Mock,
    mock.MagicMock,
    lambda: mock.Mock(spec=dict),
    lambda: mock.Mock(spec=str),
    lambda: mock.MagicMock(spec=Frozen(1)),
    threading.Lock,
    threading.RLock,
    _generator,
    _dead_proxy,
    lambda: weakref.ref(Frozen),
    io.StringIO,
    lambda: lambda: None,
    object,
    lambda: pathlib.Path("a"),
    lambda: decimal.Decimal("1.5"),
    lambda: dt.timedelta(1),
    lambda: dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=1))),
    lambda: range(10**12),
    lambda: 10**5000,
    lambda: "\ud800",
    lambda: {"\ud800": "\udfff"},
    lambda: {(1, 2): 3, frozenset(): 4, 2**70: 5},
    lambda: {object: 1, b"k": 2},
    lambda: _deep(10_000),
    lambda: _deep(10_000, lambda value: {"a": value}),
    pytest.param(
        lambda: _deep(10_000, lambda value: (value,)),
        marks=pytest.mark.skipif(
            (3, 12) <= tuple(map(int, orjson.__version__.split(".")[:2])) <= (3, 13),
            reason="orjson 3.12 and 3.13 write beyond their buffer where tuples are nested over 1,000 deep",
        ),
    ),
    lambda: _deep(10_000, Attrs),
    lambda: _deep(10_000, Slotted),
]


class TestHostileValues:
    """Values that resist being looked at."""

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("make", HOSTILE, ids=range(len(HOSTILE)))
    def test_never_raises(self, make):
        """Alone, or beside other values, each comes out as valid JSON, and the others survive it."""
        value = make()

        orjson.loads(snapshot(value))
        beside = read({"before": "kept", "value": value, "after": {"big": 2**70, "ids": [1]}})

        assert beside["before"] == "kept"
        assert beside["after"] == {"big": str(2**70), "ids": [1]}

    @pytest.mark.parametrize("kind", [object, dict, set, tuple, str, collections.deque, ValueError, dt.date])
    def test_no_method_of_a_client_is_called(self, kind):
        """Of an object that answers yes to any attribute, or that it is of any class, nothing is called."""
        client = Client(kind)

        snapshot({"client": client, "surrogate": "\ud800"})

        assert client.calls == []

    def test_a_mock_has_no_calls(self):
        """A mock that a traced function takes shows no calls of ours."""
        mocked = mock.MagicMock(spec=dict)
        snapshot({"mocked": mocked})

        assert mocked.mock_calls == []

    def test_a_lazy_mapping_is_read_in_part(self):
        """So many items are read, and how many are not is said."""
        lazy = Lazy(200_000)

        seen = read(lazy)

        assert lazy.read == 20_000
        assert seen.pop("…") == "[180,000 keys cut]"
        assert seen == {str(key): key for key in range(20_000)}

    @pytest.mark.parametrize("view", ["keys", "values", "items"])
    def test_a_view_of_a_lazy_mapping_is_read_in_part(self, view):
        """A long view is its edge; one of a dict is there already, and is kept."""
        lazy = Lazy(200_000)

        seen = read(getattr(lazy, view)())

        assert lazy.read <= 8
        assert (seen["length"], len(seen["head"])) == (200_000, 8)
        assert len(read(getattr(dict.fromkeys(range(30_000)), view)())) == 30_000

    def test_unknown_objects_say_their_type(self):
        """What isn't known is a short text with its type."""
        assert read(Unrepresentable()).endswith("Unrepresentable>")
        assert read(decimal.Decimal("1.5")) == "Decimal('1.5')"
        assert read(types.SimpleNamespace) == "types.SimpleNamespace"

    def test_long_reprs_are_cut(self):
        """A long repr doesn't become a long payload."""
        assert len(read(types.SimpleNamespace(text="x" * 100_000))) < 300

    def test_integers_over_64_bits(self):
        """They come out as texts, of any length."""
        assert read([2**70, -(2**70)]) == [str(2**70), str(-(2**70))]
        assert int(read(10**5000), 0) == 10**5000

    def test_lone_surrogates(self):
        """They are replaced, in values and in keys; the rest of the text stays."""
        assert read({"k\ud800": "é\udfff!"}) == {"k?": "é?!"}

    def test_token_ids_beside_a_lone_surrogate(self):
        """Long lists of ids stay whole, whatever stands beside them."""
        ids = list(range(100_000))

        assert read({"text": "\ud800", "prompt_ids": ids}) == {"text": "?", "prompt_ids": ids}

    def test_cycle(self):
        """A cycle is named where it closes."""
        messages: list[Any] = ["first"]
        messages.append({"parent": messages})

        assert read(messages) == ["first", {"parent": "<cycle to builtins.list>"}]

    def test_shared_values_are_no_cycle(self):
        """One value in two places is written twice."""
        shared = {"a": 2**70}

        assert read([shared, shared]) == [{"a": str(2**70)}] * 2

    def test_what_is_walked_is_bounded_and_says_so(self):
        """Of a value that must be mended piece by piece so much is shown, and how much is not."""
        seen = read(["\ud800", *({"n": number} for number in range(100_000))])

        assert seen[0] == "?"
        assert len(seen) < 20_000
        assert seen[-1] == f"…[{100_001 - len(seen) + 1:,} items cut]"


class TestArguments:
    """The snapshot of a call's arguments."""

    @pytest.mark.parametrize("size", [100 * 2**20])
    @pytest.mark.parametrize(
        "make",
        [lambda size: "x" * size, lambda size: b"x" * size, lambda size: [7] * (size // 8)],
        ids=["str", "bytes", "list"],
    )
    def test_giant_values(self, make, size):
        """100 MB among the arguments or as the result are not copied whole, and say what was cut."""
        value = make(size)
        for take in (snapshot, lambda value: snapshot_arguments({"value": value, "other": 1})):
            tracemalloc.start()
            text = take(value)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()

            assert len(text) <= MAX_TEXT_CHARACTERS + 200
            assert peak < len(value)
            assert b"characters cut" in text or b'"length":%d' % len(value) in text

    def test_later_changes_do_not_show(self):
        """What was passed is what the span shows."""
        messages = [{"role": "user"}]
        text = snapshot_arguments({"messages": messages})
        messages.append({"role": "assistant"})

        assert orjson.loads(text) == {"messages": [{"role": "user"}]}

    def test_one_shot_iterators_are_left_alone(self):
        """A generator among the arguments is still fresh for the function."""
        generator = _generator()
        snapshot_arguments({"items": generator})

        assert list(generator) == [1]
