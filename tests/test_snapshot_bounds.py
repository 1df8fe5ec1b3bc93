"""The snapshot of values that are large, deep, cyclic, odd or changing: within its bounds, and always JSON."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import io
import itertools
import re
import sys
import threading
import tracemalloc
import types
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import orjson
import pydantic
import pytest

from otel_rollout.guard import internal_errors
from otel_rollout.record import DEFAULT_BUDGET, take_snapshot, to_json
from tests.payload_values import Attrs, Frozen, Slotted, read

pytestmark = pytest.mark.every_python


class BigModel(pydantic.BaseModel, extra="allow"):
    """A pydantic model that takes more fields."""

    x: Any = None


def _longest_text(value: Any) -> str:
    """Return the longest text in a value."""
    if isinstance(value, str):
        return value
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_longest_text, held), key=len, default="")


class Counts(collections.Counter):
    """A subclass of a subclass of dict."""


def _kept_and_calls(value: Any) -> tuple[int, int]:
    """Return the number of items that a snapshot of a container keeps, and the calls that it takes to make it."""
    calls = itertools.count()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: next(calls))
    try:
        taken = take_snapshot(value)
    finally:
        sys.setprofile(before)
    return len(value) - taken.left_out, next(calls)


def _generator() -> Any:
    yield 1


def _deep(levels: int, wrap: Callable[[Any], Any] = lambda value: [value]) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = wrap(value)
    return value


class Changes(int):
    """A number that takes itself from its container when it is recorded."""

    container: Any = None

    def __rollout_payload__(self) -> int:
        if self in Changes.container and len(Changes.container) == 20_000:
            Changes.container.discard(self) if isinstance(Changes.container, set) else Changes.container.pop(self)
        return int(self)


class Database:
    """An object whose properties and methods would ask a database."""

    def __init__(self) -> None:
        self.name = "db"

    rows = property(lambda self: 1 / 0)
    __repr__ = __str__ = __len__ = __iter__ = __bool__ = model_dump = to_dict = lambda self: 1 / 0


ODD: dict[str, Callable[[], Any]] = {
    "database": Database,
    "mock": mock.Mock,
    "mock of a dict": lambda: mock.MagicMock(spec=dict),
    "lock": threading.Lock,
    "generator": lambda: _generator(),  # noqa: PLW0108 - defined below
    "weak reference": lambda: weakref.ref(Frozen),
    "file": io.StringIO,
    "object": object,
    "zone": lambda: dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=1))),
    "range": lambda: range(10**12),
    "long number": lambda: 10**5000,
    "surrogates": lambda: {"\ud800": "\udfff"},
    "keys": lambda: {(1, 2): 3, frozenset(): 4, 2**70: 5, object: 1, b"k": 2},
    "frozensets": lambda: [frozenset((number,)) for number in range(100)],
    "deep lists": lambda: _deep(10_000),
    "deep dicts": lambda: _deep(10_000, lambda value: {"a": value}),
    "deep tuples": lambda: _deep(10_000, lambda value: (value,)),
    "deep frozensets": lambda: _deep(60, lambda value: [value, frozenset((1, (2, 3)))]),
    "deep attrs": lambda: _deep(10_000, Attrs),
    "deep dataclasses": lambda: _deep(10_000, Slotted),
}


class TestOddValues:
    """Values that are hard to read."""

    @pytest.mark.parametrize("make", ODD.values(), ids=ODD)
    def test_never_raises(self, make):
        """Alone, or beside other values, each comes out as valid JSON, and the others survive it."""
        value = make()

        read(value)
        beside = read({"before": "kept", "value": value, "after": {"big": 2**70, "ids": [1]}})

        assert beside["before"] == "kept"
        assert beside["after"] == {"big": str(2**70), "ids": [1]}

    def test_no_property_or_method_runs(self):
        """An object is its fields."""
        assert read([Database()]) == [{"type": f"{__name__}.Database", "name": "db"}]

    def test_a_mock_has_no_calls(self):
        """A mock that a traced function takes shows no calls of ours."""
        mocked = mock.MagicMock(spec=dict)
        take_snapshot({"mocked": mocked})

        assert mocked.mock_calls == []

    def test_unknown_objects_show_their_public_fields(self):
        """An object of an unknown class is its type and its public fields; one without any is its type."""
        assert read(types.SimpleNamespace(text="a", _private="b")) == {"type": "types.SimpleNamespace", "text": "a"}
        assert read(object()) == "<builtins.object>"
        assert read(decimal.Decimal("1.5")) == "1.5"
        assert read(types.SimpleNamespace) == "types.SimpleNamespace"

    def test_fields_of_objects_in_objects_end_somewhere(self):
        """Deep in a value, objects of unknown classes are named only: their fields lead anywhere."""
        value: Any = "end"
        for _ in range(30):
            value = types.SimpleNamespace(inner=value)

        text = to_json(take_snapshot(value)).decode()

        assert text.count('"inner"') == 6
        assert "<types.SimpleNamespace>" in text

    def test_integers_over_64_bits(self):
        """They come out as texts, of any length."""
        assert read([2**70, -(2**70)]) == [str(2**70), str(-(2**70))]
        assert int(read(10**5000), 0) == 10**5000

    def test_lone_surrogates(self):
        """They are replaced, in values and in keys; the rest of the text stays."""
        assert read({"k\ud800": "é\udfff!"}) == {"k?": "é?!"}

    def test_token_ids_beside_a_lone_surrogate(self):
        """Long lists of ids stay whole next to any other value."""
        ids = list(range(100_000))

        assert read({"text": "\ud800", "prompt_ids": ids}) == {"text": "?", "prompt_ids": ids}

    def test_cycle(self):
        """A cycle is named where it closes, a few turns in."""
        messages: list[Any] = ["first"]
        messages.append({"parent": messages})

        text = to_json(take_snapshot(messages)).decode()

        assert text.count("first") <= 4
        assert "<cycle to builtins.list>" in text or "<cycle to builtins.dict>" in text

    def test_objects_that_point_at_each_other(self):
        """Of parents and children that point at each other, each way is followed until it closes."""
        parent = types.SimpleNamespace(name="parent", children=[])
        parent.children += [types.SimpleNamespace(name="child", parent=parent) for _ in range(20)]

        taken = take_snapshot(parent)

        assert taken.size < 200_000
        assert b"child" in to_json(taken)

    def test_shared_values_are_no_cycle(self):
        """One value in two places is written twice."""
        shared = {"a": 2**70}

        assert read([shared, shared]) == [{"a": str(2**70)}] * 2


class TestFaults:
    """A reader that meets what it wasn't written for."""

    def test_a_fault_of_ours_stays_here(self, monkeypatch):
        """The value is named, the rest is whole, and the fault is counted."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS", raising=False)
        # No frame of pandas is without a shape.
        frame = type("DataFrame", (), {"__module__": "pandas"})()

        assert read({"a": frame, "b": 1}) == {"a": "<unreadable pandas.DataFrame>", "b": 1}
        assert internal_errors["reading pandas.DataFrame"] > 0


class TestBudget:
    """The budget of a snapshot."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda: "x" * 100_000_000,
            lambda: "語" * 30_000_000,
            lambda: [7] * 12_000_000,
            lambda: ["text"] * 12_000_000,
            lambda: dict.fromkeys(range(1_000_000)),
            lambda: {str(number): "x" for number in range(400_000)},
            lambda: [{"role": "user", "content": "x" * 500} for _ in range(100_000)],
            lambda: [[number, number] for number in range(300_000)],
            lambda: {"messages": [{"content": "x" * 60_000_000}]},
            lambda: ["x" * 900] * 1_000_000,
            lambda: [Frozen(number) for number in range(50_000)],
            lambda: set(range(1_000_000)),
            lambda: collections.deque(range(1_000_000)),
        ],
        ids=[
            "text",
            "wide text",
            "numbers",
            "texts",
            "dict",
            "dict of texts",
            "messages",
            "pairs",
            "text in a message",
            "one text many times",
            "dataclasses",
            "set",
            "deque",
        ],
    )
    def test_giant_values(self, make):
        """A part of a giant value is kept, alone and among arguments; the rest is noted and counted."""
        value = make()
        for given in (value, {"value": value, "other": 1}):
            tracemalloc.start()
            taken = take_snapshot(given)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            text = to_json(taken)

            assert peak < 16 * DEFAULT_BUDGET
            assert taken.size < 2 * DEFAULT_BUDGET
            assert len(text) < 4 * DEFAULT_BUDGET
            assert taken.left_out > 0
            assert b" cut]" in text

    @pytest.mark.parametrize(
        "make",
        [
            lambda length: [*map(decimal.Decimal, range(length))],
            lambda length: Counts((number, number + 1) for number in range(length)),
            lambda length: collections.OrderedDict.fromkeys(range(length), "x"),
            lambda length: collections.defaultdict(list, {number: [number] for number in range(length)}),
        ],
        ids=["decimals", "pairs in a Counter", "OrderedDict", "defaultdict"],
    )
    def test_the_number_of_reads_is_bounded(self, make):
        """Of objects and of subclasses of dict as many are read in a long value as in one four times as long."""
        (kept, calls), (kept_of_more, calls_of_more) = (_kept_and_calls(make(length)) for length in (50_000, 200_000))

        assert 0 < kept_of_more < 50_000
        assert kept_of_more == pytest.approx(kept, rel=0.01)
        assert calls_of_more < calls * 1.01

    def test_what_follows_a_giant_value_stays(self):
        """Each part has its share of the budget: the giant one is cut, and the number of left out items is true."""
        taken = take_snapshot({"giant": ["x" * 900] * 10_000, "other": {"text": "kept"}, "list": [1]})

        seen = orjson.loads(to_json(taken))
        assert (seen["other"], seen["list"]) == ({"text": "kept"}, [1])
        kept = [item for item in seen["giant"] if item == "x" * 900]
        assert f"…[{10_000 - len(kept):,} items cut]" in seen["giant"]
        assert taken.left_out == 10_000 - len(kept)

    @pytest.mark.parametrize(
        "make",
        [
            Frozen,
            Slotted,
            Attrs,
            lambda text: BigModel(x=text),
            lambda text: BigModel(x=1, other=text),
            lambda text: types.SimpleNamespace(x=text),
            lambda text: Slotted(Frozen(text)),
            lambda text: {"x": Slotted(text)},
            lambda text: (Attrs(text),),
        ],
        ids=["dataclass", "slots", "attrs", "pydantic", "extra", "plain object", "nested", "dict", "tuple"],
    )
    def test_objects_beyond_the_budget_keep_a_beginning(self, make):
        """A field that is too long is cut with a note, and each character that is missing counts."""
        taken = take_snapshot([make("y" * 50_000) for _ in range(50)] + [1 << 8_000_000], budget=50_000)

        *seen, number = orjson.loads(to_json(taken))
        assert number == "<int of 8,000,001 bits>"
        kept = [re.sub(r"\[.*?\]", "", _longest_text(each)).count("y") for each in seen]
        assert all(kept)
        assert all("characters cut]" in _longest_text(each) for each in seen)
        assert taken.left_out == 50 * 50_000 - sum(kept) + 1

    @pytest.mark.parametrize("budget", [2000, 20_000, 200_000])
    @pytest.mark.parametrize("kind", ["dataclass", "pydantic", "plain"])
    def test_fields_that_are_left_out_count(self, kind, budget):
        """An object with many fields has a note about those that its part of the budget left out."""
        names = [f"f{number}" for number in range(100)]
        make: Any = {
            "dataclass": lambda: dataclasses.make_dataclass("Many", names)(*range(100)),
            "pydantic": pydantic.create_model("Many", **dict.fromkeys(names, (int, 7))),
            "plain": lambda: types.SimpleNamespace(**dict.fromkeys(names, 7)),
        }[kind]
        value = make()
        taken = take_snapshot([value] * 20 + [1 << 8_000_000], budget=budget)

        *seen, _ = orjson.loads(to_json(taken))
        for each in seen:
            if isinstance(each, dict):
                kept = len(each.keys() & set(names))
                assert kept == 100 or each["…"].endswith("keys cut]")
            else:
                assert each.startswith("…")
        assert taken.left_out > 0

    def test_a_field_beyond_the_first_is_counted_in_a_large_object(self):
        """A plain object shows its first fields; the rest is noted and counted."""
        large = Slotted(0), type("Large", (), {})()
        vars(large[1]).update({f"f{number}": number for number in range(100)})
        taken = take_snapshot(large)

        assert taken.left_out == 36
        assert orjson.loads(to_json(taken))[1]["…"] == "[36 keys cut]"

    def test_an_object_that_is_a_key_is_named(self):
        """A dict of objects keeps its number of items; a key that is an object is its class."""
        value = {Frozen("y" * 50_000 + str(number), ()): number for number in range(20)}
        seen = orjson.loads(to_json(take_snapshot(value, budget=50_000)))

        assert sorted(seen.values()) == [*range(20)]
        assert all(key.startswith("<tests.payload_values.Frozen>") for key in seen)

    def test_the_middle_of_a_long_text_is_cut(self):
        """A text keeps its beginning and its end."""
        text = read("a" * 10_000_000 + "z")

        assert len(text) < DEFAULT_BUDGET + 100
        assert text.startswith("aaa")
        assert text.endswith("z")
        assert "characters cut]" in text

    @pytest.mark.parametrize("make", [dict, list, set, "object"])
    def test_large_items_first(self, make):
        """Containers whose first items are too large, and the small ones after them, are cut one by one."""
        texts = [f"{number}" * 40_000 for number in range(3)]
        items = [f"{text}-{number}" for number, text in enumerate(texts * 20)] + ["small"] * 500
        value = {
            dict: lambda: {f"key {number}": item for number, item in enumerate(items)},
            list: lambda: items,
            set: lambda: set(items),
            "object": lambda: types.SimpleNamespace(items=items),
        }[make]()

        taken = take_snapshot(value, 20_000)

        assert taken.left_out > 0
        assert len(to_json(taken)) < 40_000
        orjson.loads(to_json(taken))

    @pytest.mark.parametrize("item", [[[]], {"a": {}}, {"k": [None] * 50}])
    def test_small_items_that_become_large(self, item):
        """Many small containers are cut by what they take once they are loaded."""
        taken = take_snapshot([item for _ in range(400_000)], DEFAULT_BUDGET)

        assert taken.left_out > 0
        assert "items cut]" in orjson.dumps(orjson.loads(to_json(taken))).decode()

    def test_the_last_items_of_a_long_list_stay(self):
        """A list keeps its first items and its last ones."""
        seen = read([*range(500_000), -1])

        assert seen[:3] == [0, 1, 2]
        assert seen[-1] == -1
        assert seen[-9] == f"…[{500_001 - len(seen) + 1:,} items cut]"

    def test_a_larger_budget_keeps_more(self):
        """The budget follows the payload limit that a user sets."""
        messages = [{"content": "x" * 1000} for _ in range(10_000)]

        assert take_snapshot(messages).left_out > 0
        assert take_snapshot(messages, budget=64 * 2**20).left_out == 0


class TestContainers:
    """Containers whose form JSON has no place for, and containers that change."""

    @pytest.mark.parametrize("leaf", ["text", "\ud800"])
    def test_nesting_ends(self, leaf):
        """Lists and dicts are shown to a depth that JSON libraries read, and a note names what is below it."""
        value: Any = leaf
        for number in range(300):
            value = [value] if number % 2 else {"nested": value}
        seen = read(value)
        depth = 0
        while not isinstance(seen, str):
            seen = seen[0] if isinstance(seen, list) else seen["nested"]
            depth += 1

        assert depth < 100
        assert seen in ("…<list>", "…<dict>")

    def test_keys_with_one_text(self):
        """Of keys that look alike as text, none is lost: the later ones are numbered."""
        assert read({1: "a", "1": "b", 2: {"2": [{None: "c", "null": "d"}]}}) == {
            "1": "a",
            "1 (2)": "b",
            "2": {"2": [{"null": "c", "null (2)": "d"}]},
        }
        surrogates = {chr(0xD800 + number): number for number in range(3)}
        assert read(surrogates) == {"?": 0, "? (2)": 1, "? (3)": 2}

    def test_objects_as_keys_of_what_contains_itself(self):
        """A cycle is named, and each key that is an object by its class; none is lost."""
        cycle: list[Any] = []
        cycle.append({"again": cycle, type: "a", (1, type): "b", object(): Attrs(4)})

        [seen] = read(cycle)
        assert "<cycle to builtins.list>" in str(seen["again"])
        assert [value for key, value in seen.items() if key != "again"] == ["a", "b", {"x": 4, "y": None}]
        assert len(seen) == 4

    def test_few_large_values(self):
        """Each of a few values gets its share of the budget, and what doesn't fit is counted."""
        taken = take_snapshot({number: Slotted("z" * 90_000) for number in range(5)}, budget=50_000)
        seen = orjson.loads(to_json(taken))

        assert list(seen) == ["0", "1", "2", "3", "4"]
        assert all(value["x"].startswith("zzz") and "characters cut]" in value["x"] for value in seen.values())
        assert taken.left_out > 400_000

    def test_a_giant_number_beside_other_values(self):
        """A number that fits nowhere is told by its length, and the others are kept."""
        seen = orjson.loads(to_json(take_snapshot({"text": "x", "n": 1 << 8_000_000, "flag": True}, budget=50_000)))

        assert seen == {"text": "x", "n": "<int of 8,000,001 bits>", "flag": True}

    def test_a_giant_number_is_not_written(self):
        """The digits of a number that can't fit are never copied."""
        value = {"n": 1 << 80_000_000}
        tracemalloc.start()
        take_snapshot(value)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert peak < DEFAULT_BUDGET

    def test_a_dict_that_grows_while_it_is_read(self):
        """It is whole, as it is at some moment, also if it grows each time."""
        once: dict[Any, Any] = {}
        always: dict[Any, Any] = {}

        class Grows:
            def __rollout_payload__(self) -> str:
                if len(once) == 2:
                    once["new"] = 1
                always[len(always)] = 1
                return "seen"

        once.update(first=Grows(), second=2)
        always.update(first=Grows(), second=2)

        before = {"first": "seen", "second": 2}
        assert read(once) in (before, {**before, "new": 1})
        assert read(always).items() >= before.items()

    @pytest.mark.parametrize("make", [dict.fromkeys, set], ids=["dict", "set"])
    def test_a_long_container_that_changes_while_it_is_cut(self, make):
        """What was read before the change is kept, and the rest counts."""
        value: Any = make(map(Changes, range(20_000)))
        Changes.container = value
        taken = take_snapshot(value, budget=20_000)

        assert len(value) == 19_999
        assert taken.left_out > 10_000
        assert b" cut]" in to_json(taken)


class TestArguments:
    """The snapshot of a call's arguments."""

    def test_later_changes_do_not_show(self):
        """The span shows the value that was passed."""
        messages: list[Any] = [{"role": "user", "parts": [{"n": [1]}]}]
        taken = take_snapshot({"messages": messages})
        messages[0]["parts"][0]["n"].append(2)
        messages[0]["role"] = "changed"
        messages.append({"role": "assistant"})

        assert orjson.loads(to_json(taken)) == {"messages": [{"role": "user", "parts": [{"n": [1]}]}]}

    def test_one_shot_iterators_are_left_alone(self):
        """A generator among the arguments is still fresh for the function."""
        generator = _generator()
        take_snapshot({"items": generator})

        assert list(generator) == [1]
