"""The snapshot: any value to one JSON text, without ever raising."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import io
import pathlib
import threading
import tracemalloc
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import attrs
import orjson
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rollout.delivery.readable import PayloadFinisher
from otel_rollout.payload import MAX_TEXT_CHARACTERS, snapshot, snapshot_arguments
from otel_rollout.redaction import Redactor


def read(value: Any) -> Any:
    """Return what a reader of the snapshot sees."""
    return orjson.loads(snapshot(value))


class Colour(enum.Enum):
    """An enum of texts."""

    RED = "red"


class Number(enum.IntEnum):
    """An enum of integers."""

    ONE = 1


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A frozen dataclass."""

    x: int
    tags: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Slotted:
    """A dataclass with slots."""

    __slots__ = ("x",)
    x: Any


@attrs.define
class Attrs:
    """An attrs class."""

    x: int
    y: Any = None


class Model(pydantic.BaseModel):
    """A pydantic model that takes more fields."""

    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True, extra="allow")
    x: int
    y: Any = None


class Text(str):
    """A subclass of str."""


class Whole(int):
    """A subclass of int."""


class Real(float):
    """A subclass of float."""


class Table(collections.UserDict):
    """A mapping that is no dict."""


class TestKnownTypes:
    """Values that are written by their content."""

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (None, None),
            ({"role": "user", "content": "héllo\x00\n"}, {"role": "user", "content": "héllo\x00\n"}),
            (float("nan"), None),
            ([float("inf"), -float("inf")], [None, None]),
            ({3}, [3]),
            (frozenset({"a"}), ["a"]),
            ({1: "a", None: "b", False: "c", 2.5: "d"}, {"1": "a", "null": "b", "false": "c", "2.5": "d"}),
            ({dt.date(2026, 1, 2): 1, Colour.RED: 2}, {"2026-01-02": 1, "red": 2}),
            ((1, (2, 3)), [1, [2, 3]]),
            (Point(1, 2), {"x": 1, "y": 2}),
            (collections.deque([1, 2]), [1, 2]),
            (collections.defaultdict(list, {"a": [1]}), {"a": [1]}),
            (collections.OrderedDict(a=1), {"a": 1}),
            (collections.Counter("aa"), {"a": 2}),
            (Table(a=1), {"a": 1}),
            (types.MappingProxyType({"a": 1}), {"a": 1}),
            ({"a": 1}.keys(), ["a"]),
            ({"a": 1}.values(), [1]),
            ({"a": 1}.items(), [["a", 1]]),
            (Text("t"), "t"),
            ({Text("t"): Text("u")}, {"t": "u"}),
            (Whole(7), 7),
            (Real(0.5), 0.5),
            (1 + 2j, "(1+2j)"),
            (Colour.RED, "red"),
            (Number.ONE, 1),
            (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
            (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc), "2026-01-02T03:04:05+00:00"),
            (dt.date(2026, 1, 2), "2026-01-02"),
            (dt.time(3, 4), "03:04:00"),
            (b"\x00\xff" * 100, {"type": "bytes", "length": 200, "head": "00ff00ff00ff00ff"}),
            (bytearray(b"ab"), {"type": "bytearray", "length": 2, "head": "6162"}),
            # Their repr is an address.
            pytest.param(memoryview(b""), {"type": "memoryview", "length": 0}, id="memoryview"),
            pytest.param(memoryview(b"abcd")[::2], {"type": "memoryview", "length": 2}, id="memoryview with gaps"),
            (ValueError("no"), "ValueError: no"),
            (int, "builtins.int"),
            (Frozen(1, {"a"}), {"x": 1, "tags": ["a"]}),
            (Slotted({1}), {"x": [1]}),
            (Attrs(1, {2}), {"x": 1, "y": [2]}),
            (Model(x=1, y=Point(1, 2), z="more"), {"x": 1, "y": {"x": 1, "y": 2}, "z": "more"}),
        ],
        ids=repr,
    )
    def test_content(self, value, expected):
        """The reader sees what the value holds."""
        assert read(value) == expected

    def test_pydantic_v1(self):
        """Models of pydantic's first version are written like those of the second."""
        v1 = pytest.importorskip("pydantic.v1", reason="pydantic without its v1 module", exc_type=ImportError)

        class Old(v1.BaseModel):
            x: int
            inner: Any = None

        assert read(Old(x=1, inner=Old(x=2))) == {"x": 1, "inner": {"x": 2, "inner": None}}

    def test_secrets_of_pydantic(self):
        """A `SecretStr` stays hidden."""
        assert "hunter2" not in snapshot(Model(x=1, y=pydantic.SecretStr("hunter2"))).decode()

    def test_omegaconf(self):
        """A configuration is written as it stands, interpolations unresolved."""
        omegaconf = pytest.importorskip("omegaconf")
        config = omegaconf.OmegaConf.create({"a": {"b": [1, "${c}"]}, "c": "???"})

        assert read({"config": config, "part": config.a.b}) == {
            "config": {"a": {"b": [1, "${c}"]}, "c": "???"},
            "part": [1, "${c}"],
        }

    def test_image(self):
        """An image is its mode and dimensions, never its pixels."""
        image = pytest.importorskip("PIL.Image").new("RGB", (640, 480))

        assert read(image) == {"type": "PIL.Image.Image", "mode": "RGB", "size": [640, 480]}

    def test_verl_like_output(self):
        """An output with token ids keeps them all, with what else it carries."""
        ids = list(range(30_000))

        assert read(Model(x=1, token_ids=ids, log_probs=[-0.5], extra_fields={"turn_scores": [1.0]})) == {
            "x": 1,
            "y": None,
            "token_ids": ids,
            "log_probs": [-0.5],
            "extra_fields": {"turn_scores": [1.0]},
        }


class TestPandas:
    """Tables."""

    pd = pytest.importorskip("pandas")

    def test_frame(self):
        """A frame is its shape, columns and first rows."""
        frame = self.pd.DataFrame({"a": range(20), "b": [0.5] * 20, "c": self.pd.Timestamp("2026-01-02")})

        assert read(frame) == {
            "type": "pandas.DataFrame",
            "shape": [20, 3],
            "columns": ["a", "b", "c"],
            "head": [[row, 0.5, "2026-01-02T00:00:00"] for row in range(8)],
        }

    def test_duplicate_columns(self):
        """Columns of one name cost no column and no warning."""
        frame = self.pd.DataFrame([[1, 2]], columns=["a", "a"])

        assert read(frame)["head"] == [[1, 2]]

    def test_series_with_a_float_index(self):
        """The head is by position, whatever the index."""
        series = self.pd.Series(range(20), index=[0.5 * number for number in range(20)])

        assert read(series) == {
            "type": "pandas.Series",
            "shape": [20],
            "dtype": "int64",
            "head": [0, 1, 2, 3, 4, 5, 6, 7],
        }

    @pytest.mark.parametrize(
        ("make", "expected"),
        [
            (lambda pd: pd.Timestamp("2026-01-02"), "2026-01-02T00:00:00"),
            (lambda pd: pd.NaT, "NaT"),
            (lambda pd: pd.NA, "NAType(<NA>)"),
            (lambda pd: pd.Timedelta("1s"), "P0DT0H0M1S"),
        ],
    )
    def test_scalars(self, make, expected):
        """Times are written in ISO form, missing values say so."""
        assert read(make(self.pd)) == expected


class TestNumpy:
    """Arrays and scalars of every dtype."""

    np = pytest.importorskip("numpy")

    @pytest.mark.parametrize("code", [*"?bhilqBHILQ", *"efd", "m8[ns]", "M8[ns]", *"gFDG", "S3", "U3", "V3", "O"])
    def test_every_dtype(self, code):
        """An array, its scalars and its 0-d form are written in every dtype, alike wherever they stand."""
        array = self.np.ones(3, dtype=code) if code not in ("M8[ns]", "V3") else self.np.zeros(3, dtype=code)

        whole = read(array)

        assert len(whole) == 3
        assert read(array[0]) == whole[0]
        assert read(self.np.array(array[0], dtype=code)) == whole[0]

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (np.float32(0.5), 0.5),
            (np.float64("nan"), None),
            (np.longdouble(0.25), 0.25),
            (np.clongdouble(1 + 2j), "(1+2j)"),
            (np.complex64(1 + 2j), "(1+2j)"),
            (np.datetime64("2026-01-02T03:04:05.123456789"), "2026-01-02T03:04:05.123456789"),
            (np.array(["2026-01-02", "NaT"], dtype="M8[D]"), ["2026-01-02", "NaT"]),
            (np.timedelta64(5, "s"), "5 seconds"),
            (np.bool_(True), True),
            (np.str_("text"), "text"),
            (np.array([(1, 2.5, b"ab")], dtype=[("a", "i4"), ("b", "f8"), ("c", "S2")])[0].tolist()[:2], [1, 2.5]),
            (np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]), [[1, 2.5]]),
            (np.array([{"a": 1}, None, {2}], dtype=object), [{"a": 1}, None, [2]]),
            (np.array([[1, 2], [3, 4]]).T, [[1, 3], [2, 4]]),
            (np.array([1, 2], dtype=">i4"), [1, 2]),
            (np.ma.masked_array([1, 2], mask=[False, True]), [1, None]),
            (np.array([]), []),
            ({np.int64(3): 1}, {"3": 1}),
        ],
        ids=repr,
    )
    def test_content(self, value, expected):
        """Small arrays and scalars are written whole."""
        assert read(value) == expected

    def test_large_array(self):
        """A large array is its dtype, shape and edges."""
        assert read(self.np.arange(3000.0).reshape(3, 1000)) == {
            "type": "numpy.ndarray",
            "dtype": "float64",
            "shape": [3, 1000],
            "head": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
            "tail": [2992.0, 2993.0, 2994.0, 2995.0, 2996.0, 2997.0, 2998.0, 2999.0],
        }

    def test_token_ids_are_kept(self):
        """A long list of integers is token ids, and is kept whole."""
        assert read({"prompt_ids": self.np.arange(8192)}) == {"prompt_ids": list(range(8192))}

    def test_snapshot_of_an_array(self):
        """What is written is the array at the call."""
        array = self.np.zeros(2)
        text = snapshot(array)
        array[:] = 1

        assert text == b"[0.0,0.0]"


class TestTorch:
    """Tensors on the CPU."""

    @pytest.fixture
    def torch(self) -> Any:
        """The package, if it is there."""
        return pytest.importorskip("torch", reason="torch is not installed")

    @pytest.mark.parametrize(
        ("make", "expected"),
        [
            (lambda torch: torch.tensor([0.5, 1.0], dtype=torch.bfloat16), [0.5, 1.0]),
            (lambda torch: torch.tensor([0.5], dtype=torch.float16), [0.5]),
            (lambda torch: torch.tensor([True, False]), [True, False]),
            (lambda torch: torch.tensor([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
            (lambda torch: torch.tensor(7), 7),
            (lambda torch: torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
            (lambda torch: torch.ones(2, requires_grad=True), [1.0, 1.0]),
            (lambda torch: torch.nn.Parameter(torch.ones(2)), [1.0, 1.0]),
            (lambda torch: torch.arange(8192), list(range(8192))),
            (lambda torch: torch.arange(4)[::2], [0, 2]),
            (lambda torch: torch.empty(0), []),
            (lambda torch: torch.Size([2, 3]), [2, 3]),
            (lambda torch: torch.float32, "dtype(torch.float32)"),
            (lambda torch: torch.zeros(2, dtype=torch.float8_e4m3fn), [0.0, 0.0]),
        ],
    )
    def test_small(self, torch, make, expected):
        """Small tensors and token ids are written whole, whatever the dtype."""
        assert read(make(torch)) == expected

    def test_large(self, torch):
        """A large tensor is its dtype, shape and edges."""
        tensor = torch.arange(4000, dtype=torch.float32).to(torch.bfloat16).reshape(40, 100)

        assert read(tensor) == {
            "type": "torch.Tensor",
            "dtype": "bfloat16",
            "shape": [40, 100],
            "head": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
            "tail": [4000.0] * 8,
        }

    def test_large_and_transposed(self, torch):
        """The edges of a tensor that isn't contiguous are those of its first and last row; nothing is copied."""
        seen = read(torch.arange(4000).reshape(40, 100).T)

        assert seen["head"] == [0, 100, 200, 300, 400, 500, 600, 700]
        assert seen["tail"] == [3299, 3399, 3499, 3599, 3699, 3799, 3899, 3999]

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize(
        ("make", "dtype", "shape", "device"),
        [
            (lambda torch: torch.sparse_coo_tensor([[0]], [1.0], (5,)), "float32", [5], "cpu"),
            (lambda torch: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "qint8", [3], "cpu"),
            (lambda torch: torch.ones(2, 2, dtype=torch.complex64), "complex64", [2, 2], "cpu"),
            (lambda torch: torch.ones(4, device="meta"), "float32", [4], "meta"),
            (lambda torch: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "float32", None, "cpu"),
        ],
        ids=["sparse", "quantized", "complex", "meta", "nested"],
    )
    def test_described(self, torch, make, dtype, shape, device):
        """What can't be read cheaply is described only: an accelerator would be waited for."""
        assert read(make(torch)) == {"type": "torch.Tensor", "dtype": dtype, "shape": shape, "device": device}

    def test_fields_of_a_dataclass(self, torch):
        """A tensor in a dataclass is written like any other."""
        assert read(Frozen(torch.tensor([1.0]))) == {"x": [1.0], "tags": []}


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


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**62, 2**65)
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.text(st.characters(categories=["Cs"]))
    | st.binary()
    | st.datetimes()
    | st.complex_numbers()
    | st.decimals()
    | st.builds(Classless)
)
_KEYS = st.text(st.characters(codec=None)) | st.integers() | st.none() | st.booleans() | st.floats() | st.binary()
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(_KEYS, inner)
        | st.tuples(inner, inner)
        | st.builds(Attrs, st.integers(), inner)
        | st.builds(Slotted, inner)
        | st.builds(collections.deque, st.lists(inner))
    ),
    max_leaves=30,
)


def _integers(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in _integers(item)]
    if isinstance(value, list):
        return [number for item in value for number in _integers(item)]
    return [value] if isinstance(value, int) else []


class TestFinishedPayload:
    """What leaves the process."""

    @settings(max_examples=300, deadline=None)
    @given(value=_VALUES, limit=st.integers(5, 2000))
    def test_any_value(self, value, limit):
        """Any value comes out as valid JSON in UTF-8, with all integers within 64 signed bits, within the limit."""
        for text in (snapshot(value), snapshot_arguments({"value": value})):
            finished = PayloadFinisher(limit, Redactor())(text)

            assert len(finished.encode()) <= limit
            assert all(-(2**63) <= number < 2**63 for number in _integers(orjson.loads(finished)))

    @settings(max_examples=100, deadline=None)
    @given(value=st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(), st.lists))
    def test_plain_values_stay_as_they_are(self, value):
        """What JSON can hold comes out unchanged."""
        assert orjson.loads(PayloadFinisher(2**20, None)(snapshot(value))) == value
