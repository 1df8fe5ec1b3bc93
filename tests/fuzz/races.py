"""Containers that threads change in every way while ops capture them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.hostile import HostileEnum, HostileTextEnum, HostileZone, behave, make_hostile
from tests.fuzz.libraries import holders, is_installed
from tests.fuzz.watch import WATCH

__all__ = ["Live"]

ZONE = HostileZone()
HostileObject = make_hostile(object)
HostileList = make_hostile(list)
HostileDict = make_hostile(dict)
MOST = 60
"""Items of a container before it is emptied."""


class First:
    """Has fields, and becomes a `Second`."""

    def __init__(self) -> None:
        self.text = "x" * 50
        self.parts = [1, "two"]


class Second:
    """As `First`, with the same layout."""


@dataclasses.dataclass
class Message:
    """A message."""

    role: str = "tool"
    content: Any = dataclasses.field(default_factory=lambda: ["x" * 50])


class Slots:
    """Fields in slots."""

    __slots__ = ("content", "role")

    def __init__(self) -> None:
        self.role, self.content = "tool", ["x" * 50]


class Live:
    """Some values that hold each other, and the threads that change them.

    Args:
        seed: Of what the threads do.
        threads: How many.
    """

    def __init__(self, seed: int, threads: int = 3) -> None:
        self._random = random.Random(seed)
        self._makers = self._item_makers()
        self.containers: list[Any] = []
        self._fill()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._mutate, args=(random.Random(seed * 31 + number),), daemon=True)
            for number in range(threads)
        ]

    def __enter__(self) -> Live:  # noqa: PYI034 - typing.Self needs Python 3.11
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def value(self) -> Any:
        """Return something that is being changed."""
        return self._random.choice([self.containers, *self.containers])

    def _item_makers(self) -> list[Callable[[], Any]]:
        makers: list[Callable[[], Any]] = [
            lambda: {"k": ["x" * 50]},
            lambda: ["y" * 100] * 3,
            lambda: HostileEnum.LIST,
            lambda: HostileTextEnum.FIRST,
            lambda: dt.datetime(2026, 1, 1, tzinfo=ZONE),
            lambda: (First(), [First()]),
            lambda: {First(), 1, "two"},
            lambda: bytearray(b"x" * 50),
            lambda: collections.deque([First()], maxlen=MOST),
            lambda: "é" * 100,
            lambda: 10**30,
            First,
            Message,
            Slots,
            HostileObject,
            lambda: HostileList(["x" * 50]),
            lambda: HostileDict(key=["x" * 50]),
        ]
        makers += [lambda hold=hold: hold(["x" * 50]) for hold in holders()]
        if is_installed("numpy"):
            import numpy as np

            makers += [lambda: np.array([First(), ["x" * 50]], dtype=object), lambda: np.arange(50)]
        return makers

    def _fill(self) -> None:
        made = [self._random.choice(self._makers)() for _ in range(20)]
        self.containers += [
            list(made),
            dict(enumerate(made)),
            {str(position): item for position, item in enumerate(made)},
            collections.deque(made),
            collections.OrderedDict(enumerate(made)),
            {1, 2, 3},
            HostileList(made),
            HostileDict(enumerate(made)),
            [made, {"deep": [made, {"er": made}]}],
            First(),
            Slots(),
            Message(),
            # One kind only: nothing else delays the walk over it.
            [HostileEnum.LIST] * 20,
            [dt.datetime(2026, 1, 1, tzinfo=ZONE)] * 20,
            [First() for _ in range(20)],
            [Message() for _ in range(20)],
            *(hold(made) for hold in holders()),
        ]

    def _mutate(self, rng: random.Random) -> None:
        WATCH.is_user()
        behave("sleep")
        while not self._stop.is_set():
            container = rng.choice(self.containers)
            # Other threads change the same container.
            with contextlib.suppress(Exception):
                for _ in range(rng.randrange(1, 6)):
                    self._change(rng, container)
                for inner in self._inside(container):
                    self._change(rng, inner)

    def _inside(self, container: Any) -> Iterator[Any]:
        if isinstance(container, (list, collections.deque)):
            yield from list(container)[:5]
        elif isinstance(container, dict):
            yield from list(container.values())[:5]

    def _change(self, rng: random.Random, value: Any) -> None:
        item = rng.choice(self._makers)()
        if isinstance(value, list):
            self._change_list(rng, value, item)
        elif isinstance(value, dict):
            self._change_dict(rng, value, item)
        elif isinstance(value, collections.deque):
            rng.choice([value.append, value.appendleft])(item)
            if len(value) >= MOST:
                value.clear()
        elif isinstance(value, set):
            value.add(rng.random())
            if len(value) >= MOST:
                value.clear()
        elif isinstance(value, bytearray):
            value.extend(b"x" * 100)
            if len(value) > 10_000:
                value.clear()
        elif isinstance(value, (First, Second)):
            self._change_object(rng, value, item)
        elif type(value).__name__ == "ndarray":
            value[rng.randrange(len(value))] = item if value.dtype == object else 1
        elif hasattr(value, "content"):
            value.content = item
        elif hasattr(value, "value"):
            value.value = item

    def _change_list(self, rng: random.Random, value: list[Any], item: Any) -> None:
        change = rng.randrange(7)
        if change == 0:
            value.append(item)
        elif change == 1:
            value[:] = [self._makers[rng.randrange(len(self._makers))]() for _ in range(rng.randrange(10))]
        elif change == 2 and value:
            value.pop()
        elif change == 3:
            del value[: len(value) // 2]
        elif change == 4:
            value.clear()
            value.extend([item] * 5)
        elif change == 5 and value:
            value[rng.randrange(len(value))] = item
        else:
            value.insert(0, item)
        if len(value) > MOST:
            del value[:]

    def _change_dict(self, rng: random.Random, value: dict[Any, Any], item: Any) -> None:
        change = rng.randrange(5)
        if change == 0:
            value[rng.randrange(100)] = item
        elif change == 1:
            value.pop(next(iter(value)), None)
        elif change == 2:
            value.update({f"key{number}": item for number in range(10)})
        elif change == 3:
            value.clear()
        else:
            for key in list(value)[:3]:
                value[key] = item
        if len(value) > MOST:
            value.clear()

    def _change_object(self, rng: random.Random, value: Any, item: Any) -> None:
        change = rng.randrange(5)
        if change == 0:
            value.__dict__ = {"text": item, "more": [item]}
        elif change == 1:
            value.__dict__.clear()
        elif change == 2:
            value.__class__ = Second if type(value) is First else First
        elif change == 3:
            for name in list(value.__dict__):
                delattr(value, name)
        else:
            setattr(value, f"field{rng.randrange(50)}", item)
