"""Capture reads values and never calls them: no code of a user's class runs on the caller's thread."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import subprocess
import threading
from contextlib import suppress
from typing import Any

import attrs
import orjson
import pydantic
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op, semconv
from otel_rollout.testing import InMemorySpanExporter
from tests.payload_values import read, read_payload

pytestmark = pytest.mark.every_python

CALLS: list[str] = []


class PanicError(BaseException):
    """A panic of a Rust library, which is not an Exception."""


def _called(name: str) -> Any:
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        CALLS.append(name)
        raise PanicError(name)

    return method


_METHODS = (
    *("__repr__", "__str__", "__bytes__", "__format__", "__hash__", "__eq__", "__lt__", "__bool__", "__len__"),
    *("__iter__", "__next__", "__getitem__", "__contains__", "__reversed__", "__index__", "__int__", "__float__"),
    *(
        "__complex__",
        "__dir__",
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__copy__",
        "__deepcopy__",
        "__sizeof__",
    ),
    *("__getattr__", "__call__", "__enter__", "__length_hint__", "__missing__", "keys", "items", "values", "isoformat"),
    *("utcoffset", "item", "tolist", "model_dump", "dict", "to_dict", "json", "_asdict", "__array__", "__buffer__"),
)


def _hostile(*bases: type, **members: Any) -> type:
    """Return a class whose methods all record the call and panic."""
    return type("Hostile", bases, {**{name: _called(name) for name in _METHODS}, **members})


class _HostileMeta(type):
    """A metaclass whose methods all record the call and panic."""

    __getattribute__ = _called("metaclass __getattribute__")
    __hash__ = _called("metaclass __hash__")
    __eq__ = _called("metaclass __eq__")
    __repr__ = _called("metaclass __repr__")
    __instancecheck__ = _called("metaclass __instancecheck__")
    __subclasscheck__ = _called("metaclass __subclasscheck__")


class _Zone(dt.tzinfo):
    utcoffset = _called("utcoffset")
    tzname = _called("tzname")
    dst = _called("dst")


class _Properties:
    field = property(_called("property"))
    __dict__ = property(_called("__dict__"))  # type: ignore[assignment]
    __class__ = property(_called("__class__"))  # type: ignore[assignment]


class _Colour(enum.Enum):
    RED = "red"
    value = property(_called("value"))  # type: ignore[assignment]
    name = property(_called("name"))  # type: ignore[assignment]


@dataclasses.dataclass
class _Data:
    x: int
    __repr__ = _called("__repr__")
    __getattribute__ = _called("__getattribute__")


class _Model(pydantic.BaseModel):
    x: int
    __repr__ = _called("__repr__")

    @pydantic.model_serializer
    def _serialize(self) -> Any:
        return _called("serializer")(self)

    @pydantic.computed_field
    def computed(self) -> int:
        """Say that it was called."""
        return _called("computed")(self)  # type: ignore[no-any-return]


def _without_init(cls: type, base: type = object, **fields: Any) -> Any:
    made = base.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


VALUES: dict[str, Any] = {
    "object": lambda: _hostile()(),  # noqa: PLW0108 - a new class each time
    "metaclass": lambda: type.__call__(_HostileMeta("M", (), {})),
    "properties": _Properties,
    "str": lambda: _hostile(str)("text"),
    "int": lambda: _hostile(int)(7),
    "float": lambda: _hostile(float)(0.5),
    "bytes": lambda: _hostile(bytes)(b"abc"),
    "list": lambda: _without_init(_hostile(list), list),
    "tuple": lambda: tuple.__new__(_hostile(tuple), (1, 2)),
    "dict": lambda: _without_init(_hostile(dict), dict),
    "set": lambda: _without_init(_hostile(set), set),
    "date": lambda: _hostile(dt.date)(2026, 1, 2),
    "datetime": lambda: dt.datetime.__new__(_hostile(dt.datetime), 2026, 1, 2),
    "zone": lambda: dt.datetime(2026, 1, 2, tzinfo=_Zone()),
    "zone of a time": lambda: dt.time(1, 2, tzinfo=_Zone()),
    "enum": lambda: _Colour.RED,
    "dataclass": lambda: _without_init(_Data, x=1),
    "pydantic": lambda: _Model(x=1),
    "exception": lambda: _hostile(ValueError)("no"),
    "exception with an object": lambda: ValueError(_hostile()()),
}


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()
    yield
    CALLS.clear()


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
class TestNothingIsCalled:
    """Values of classes of which every method panics."""

    def test_as_argument_and_result(self, rollout_spans, make):
        """The function runs, its result is the object itself, and no method of the value has run."""
        value = make()

        @rollout_trace_op(kind="LLM")
        def f(given: Any) -> Any:
            return value

        CALLS.clear()
        with rollout_trace_attr(step=1):
            assert f(value) is value
            assert f([value, {"deep": value}]) is value
        otel_rollout.flush()

        assert CALLS == []
        assert len(rollout_spans.spans) == 3
        for span in rollout_spans.spans[:2]:
            read_payload(span, semconv.INPUT_VALUE)
            read_payload(span, semconv.OUTPUT_VALUE)

    def test_as_annotation_and_tag(self, rollout_spans, make):
        """The same holds for what is annotated, and for the tags of a trajectory."""
        value = make()
        CALLS.clear()
        with rollout_trace_attr(step=value, sample_index=value, rollout_n=value, name=value, validate=value):
            annotate(reward=value, status=value, input=value, output=value, extra=value, more=[value])
        otel_rollout.flush()

        assert CALLS == []
        assert len(rollout_spans.spans) == 1


class TestJson:
    """Payloads become JSON by orjson, which ends the process where memory ends."""

    @pytest.mark.parametrize("is_own", [True, False], ids=["own", "provider"])
    def test_never_on_the_programs_thread(self, monkeypatch, is_own):
        """The program's thread calls orjson neither for an op, nor for an annotation, nor at a trajectory's end."""
        threads: set[int] = set()

        def noting(call: Any) -> Any:
            def noted(*arguments: Any, **options: Any) -> Any:
                threads.add(threading.get_ident())
                return call(*arguments, **options)

            return noted

        for name in ("dumps", "loads"):
            monkeypatch.setattr(orjson, name, noting(getattr(orjson, name)))
        exporter = InMemorySpanExporter()
        provider = None if is_own else TracerProvider()
        if provider is not None:
            provider.add_span_processor(SimpleSpanProcessor(exporter))
        otel_rollout.init("project", "experiment", backend=exporter if is_own else None, tracer_provider=provider)

        @rollout_trace_op(kind="LLM")
        def chat(messages: Any, value: Any) -> Any:
            if value is None:
                raise ValueError({"no": "value"})
            return {"choices": [{"message": {"role": "assistant", "content": "Yes."}}], "value": value}

        with rollout_trace_attr(step=1, sample_index={"a": [1]}):
            chat([{"role": "user", "content": "Is it?"}] * 100, _Data(1))
            with suppress(ValueError):
                chat('{"role": "user"}', None)
            annotate(reward=1.0, parts={"format": 0.5}, output={"answer": [1, "x"]}, extra=_Data(1))
        assert threading.get_ident() not in threads
        assert otel_rollout.flush(10)
        assert threading.get_ident() not in threads
        assert len(exporter.spans) == 3
        assert bool(threads) is is_own


@pytest.mark.parametrize(
    "base", [object, str, int, float, bytes, tuple, frozenset, dt.date], ids=lambda base: base.__name__
)
class TestKeys:
    """Keys of dicts, of classes of which every method but the hash panics."""

    def test_no_method_of_a_key_is_called(self, base):
        """Keys that look alike to a dict are not compared, also in a dict that many items were taken from."""
        kind = _hostile(base, __hash__=lambda self: 10**9)
        arguments = {object: (), dt.date: (2026, 1, 2)}.get(base, ([1, 2],) if base in (tuple, frozenset) else ("7",))
        arguments = (b"7",) if base is bytes else arguments
        holder: dict[Any, Any] = dict.fromkeys(range(100), "x")
        holder[base.__new__(kind, *arguments)] = "kept"
        for number in range(100):
            del holder[number]
        CALLS.clear()
        seen = read({"holder": holder})

        assert CALLS == []
        assert list(seen["holder"].values()) == ["kept"]


class TestExceptions:
    """Exceptions that leave traced code."""

    def test_the_text_of_the_programs_own_class(self, rollout_spans):
        """`__str__` of the program's class is not called; the arguments of the exception are shown."""
        failure = _hostile(ValueError)("what happened", 3)

        @rollout_trace_op
        def f() -> None:
            raise failure

        CALLS.clear()
        with pytest.raises(ValueError) as caught:
            f()
        otel_rollout.flush()

        assert caught.value is failure
        assert CALLS == []
        (span,) = rollout_spans.spans
        assert span.status.description.endswith("Hostile: 'what happened', 3")
        assert span.events[0].attributes["exception.message"] == "'what happened', 3"
        assert "raise failure" in span.events[0].attributes["exception.stacktrace"]

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (ValueError("no"), "no"),
            (KeyError("missing"), "'missing'"),
            (ValueError("a", 1, None), "'a', 1, None"),
            (OSError(2, "No such file", "name.txt"), "[Errno 2] No such file: 'name.txt'"),
            (RuntimeError(), ""),
            (subprocess.CalledProcessError(3, ["ls"]), "3, <builtins.list>"),
        ],
        ids=repr,
    )
    def test_known_texts(self, rollout_spans, error, message):
        """Messages of Python's own exception classes are shown."""

        @rollout_trace_op
        def f() -> None:
            raise error

        with pytest.raises(type(error)):
            f()
        otel_rollout.flush()

        assert rollout_spans.spans[0].events[0].attributes["exception.message"] == message

    def test_what_pydantic_says(self, rollout_spans):
        """The problems that pydantic found are named, with the values left out."""

        class Arguments(pydantic.BaseModel):
            count: int

        @rollout_trace_op
        def f() -> None:
            Arguments(count="many")  # type: ignore[arg-type]

        with pytest.raises(pydantic.ValidationError):
            f()
        otel_rollout.flush()

        message = rollout_spans.spans[0].events[0].attributes["exception.message"]
        assert message.startswith("1 validation errors for Arguments\ncount: Input should be a valid integer")

    def test_causes_and_notes(self, rollout_spans):
        """The stack trace has the exception that led to this one, and the notes of both."""

        @rollout_trace_op
        def f() -> None:
            try:
                raise KeyError("first")
            except KeyError as error:
                failure = ValueError("second")
                failure.__dict__["__notes__"] = ["look here"]
                raise failure from error

        with pytest.raises(ValueError):
            f()
        otel_rollout.flush()

        text = rollout_spans.spans[0].events[0].attributes["exception.stacktrace"]
        assert text.index("KeyError: 'first'") < text.index("direct cause") < text.index("ValueError: second")
        assert "look here" in text


class TestHiddenFields:
    """A field that a class hides from its repr keeps its name in the payload, and loses its value."""

    def test_pydantic(self):
        """`SecretStr`, `repr=False` and `exclude=True` are hidden."""

        class Model(pydantic.BaseModel):
            plain: str = "shown"
            secret: pydantic.SecretStr = pydantic.SecretStr("hunter2")
            unshown: str = pydantic.Field("hunter2", repr=False)
            excluded: str = pydantic.Field("hunter2", exclude=True)

        assert read(Model()) == {
            "plain": "shown",
            "secret": "[hidden]",
            "unshown": "[hidden]",
            "excluded": "[hidden]",
        }

    def test_pydantic_v1(self):
        """The first version of pydantic hides by the same words."""
        v1 = pytest.importorskip("pydantic.v1", reason="pydantic without its v1 module", exc_type=ImportError)

        class Model(v1.BaseModel):
            plain: str = "shown"
            secret: v1.SecretStr = v1.SecretStr("hunter2")
            unshown: str = v1.Field("hunter2", repr=False)
            excluded: str = v1.Field("hunter2", exclude=True)

        assert read(Model()) == {"plain": "shown", "secret": "[hidden]", "unshown": "[hidden]", "excluded": "[hidden]"}

    def test_dataclass(self):
        """`field(repr=False)` is hidden, with slots too."""

        @dataclasses.dataclass
        class Data:
            plain: int
            hidden: str = dataclasses.field(repr=False)

        @dataclasses.dataclass(slots=True)
        class Slots:
            plain: int
            hidden: str = dataclasses.field(repr=False)

        assert read(Data(1, "hunter2")) == {"plain": 1, "hidden": "[hidden]"}
        assert read(Slots(1, "hunter2")) == {"plain": 1, "hidden": "[hidden]"}

    def test_attrs(self):
        """A field without a repr, or with one of its own, is hidden."""

        @attrs.define
        class Data:
            plain: int
            hidden: str = attrs.field(repr=False)
            masked: str = attrs.field(repr=lambda value: "***")

        assert read(Data(1, "hunter2", "hunter2")) == {"plain": 1, "hidden": "[hidden]", "masked": "[hidden]"}

    def test_classes_that_are_named_so(self):
        """A class with the name of a secret shows nothing."""

        class Secret:
            def __init__(self) -> None:
                self.value = "hunter2"

        class Credentials(Secret):
            pass

        assert read([Secret(), Credentials()]) == ["[hidden]", "[hidden]"]

    def test_a_class_whose_name_only_begins_like_that(self):
        """A class is hidden for the word, and not for its first letters."""

        class SecretaryProblem:
            def __init__(self) -> None:
                self.best = 2

        shown = read(SecretaryProblem())
        assert (shown["type"].rpartition(".")[2], shown["best"]) == ("SecretaryProblem", 2)
