"""The snapshot of values of known types: what a reader sees of each."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import fractions
import signal
import threading
import types
import uuid
from contextlib import suppress
from typing import Any, NamedTuple

import orjson
import pydantic
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.record import take_snapshot, to_json
from otel_rollout.testing import InMemorySpanExporter
from tests.delivery.queues import until
from tests.payload_values import Attrs, Frozen, Slotted, read

pytestmark = pytest.mark.every_python


def _released() -> memoryview:
    view = memoryview(b"abcd")
    view.release()
    return view


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


class Paris(dt.tzinfo):
    """A time zone of another library, whose code is not called."""

    def __repr__(self) -> str:
        return "Paris"

    def utcoffset(self, moment: dt.datetime | None) -> dt.timedelta:
        """Fail."""
        raise AssertionError


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
            (types.MappingProxyType({"a": 1}), "<builtins.mappingproxy>"),
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
            (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=Paris()), f"2026-01-02T03:04:05 ({__name__}.Paris)"),
            (dt.date(2026, 1, 2), "2026-01-02"),
            (dt.time(3, 4), "03:04:00"),
            (b"\x00\xff" * 100, {"type": "bytes", "length": 200, "head": "00ff00ff00ff00ff"}),
            (bytearray(b"ab"), {"type": "bytearray", "length": 2, "head": "6162"}),
            # Their repr is an address.
            pytest.param(memoryview(b""), {"type": "memoryview", "length": 0}, id="memoryview"),
            pytest.param(fractions.Fraction(3, 4), "3/4", id="fraction"),
            pytest.param(fractions.Fraction(8, 2), "4", id="whole fraction"),
            pytest.param(_released(), {"type": "memoryview", "released": True}, id="released memoryview"),
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
    np = pytest.importorskip("numpy")

    def test_frame(self):
        """A frame is its shape, columns and first rows."""
        day = self.pd.Series(["2026-01-02"] * 20, dtype="datetime64[us]")
        frame = self.pd.DataFrame({"a": range(20), "b": [0.5] * 20, "c": day})

        assert read(frame) == {
            "type": "pandas.DataFrame",
            "shape": [20, 3],
            "columns": ["a", "b", "c"],
            "head": [[row, 0.5, "2026-01-02T00:00:00"] for row in range(8)],
        }

    def test_signals_while_a_frame_is_read(self):
        """What a signal handler raises comes out, though pandas itself drops it in many places."""

        class AlarmError(Exception):
            pass

        def on_alarm(number, frame):
            alarms.append(number)
            raise AlarmError

        def read_until_alarm(seconds):
            count = len(alarms)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            read(frame)
            until(lambda: len(alarms) > count)

        alarms = []
        frame = self.pd.DataFrame({"a": ["x", None], "b": self.pd.Series(["x", "y"], dtype="string")})
        # pandas imports at first use, and CPython ignores what strikes the end of an import.
        read(frame)
        previous = signal.signal(signal.SIGALRM, on_alarm)
        try:
            for number in range(200):
                with pytest.raises(AlarmError):
                    read_until_alarm(0.00001 + number * 0.000005)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)

    def test_a_subclass_is_named(self):
        """A subclass of a frame may override any function: none is called."""

        class Frame(self.pd.DataFrame):
            @property
            def iloc(self):
                raise AttributeError("called")

        assert read(Frame({"a": [1]})) == f"<{__name__}.{Frame.__qualname__}>"

    def test_names_of_columns_that_are_no_text(self):
        """A column's name may be any object: no method of it runs."""

        class Name:
            def __str__(self):
                raise AttributeError("called")

            __repr__ = __str__

        names = self.np.empty(2, dtype=object)
        names[:] = [Name(), 7]

        assert read(self.pd.DataFrame(self.np.zeros((1, 2)), columns=names))["columns"][1] == "7"

    def test_names_of_several_levels(self):
        """Columns that have names of several levels are named by all of them."""
        names = self.pd.MultiIndex.from_tuples([("loss", "train"), ("loss", "test"), ("steps", 1)])
        described = read(self.pd.DataFrame([[0.5, 0.6, 7]], columns=names))

        assert described["shape"] == [1, 3]
        assert described["columns"] == ["loss / train", "loss / test", "steps / 1"]
        assert described["head"] == [[0.5, 0.6, 7]]

    @pytest.mark.parametrize("kind", ["CategoricalIndex", "IntervalIndex", "PeriodIndex", "RangeIndex"])
    def test_shape_with_any_index(self, kind):
        """A frame has as many rows and columns as its index, whatever that holds its values in."""
        index = {
            "CategoricalIndex": lambda: self.pd.CategoricalIndex(["a", "b", "a"]),
            "IntervalIndex": lambda: self.pd.interval_range(0, 3),
            "PeriodIndex": lambda: self.pd.period_range("2026", periods=3),
            "RangeIndex": lambda: self.pd.RangeIndex(10, 40, 10),
        }[kind]()
        described = read(self.pd.DataFrame([[1, 2, 3]] * 3, index=index, columns=index))

        assert (described["shape"], described["head"]) == ([3, 3], [[1, 2, 3]] * 3)
        named = [f"<{type(name).__module__}.{type(name).__qualname__}>" for name in index]
        expected = {"CategoricalIndex": ["a", "b", "a"], "RangeIndex": ["10", "20", "30"]}
        assert described["columns"] == expected.get(kind, named)

    def test_many_columns(self):
        """The first hundred are shown, from as many arrays."""
        frame = self.pd.DataFrame({str(number): [f"x{number}"] for number in range(300)})
        described = read(frame)

        assert described["head"] == [[f"x{number}" for number in range(100)]]
        assert len(described["columns"]) == 100

    def test_missing_values_beside_others(self):
        """A missing value is none."""
        frame = self.pd.DataFrame({"a": self.pd.array([1, None], dtype="Int64"), "b": ["x", None]})

        assert read(frame)["head"] == [[1, "x"], [None, None]]
        assert read(frame["a"])["head"] == [1, None]

    def test_columns_in_arrow(self):
        """Texts and numbers are shown; lists, and what pandas can't convert, are their type."""
        pa = pytest.importorskip("pyarrow")
        columns = {
            "text": (pa.array(["é", None]), ["é", None]),
            "number": (pa.array([1, 2]), [1, 2]),
            "far": (pa.array([2**62] * 2, pa.timestamp("s")), ["<timestamp[s][pyarrow]>"] * 2),
            "lists": (pa.array([[1], list(range(100_000))]), ["<list<item: int64>[pyarrow]>"] * 2),
        }
        frame = self.pd.DataFrame(
            {
                name: self.pd.arrays.ArrowExtensionArray(pa.chunked_array([array]))
                for name, (array, _) in columns.items()
            }
        )

        assert read(frame)["head"] == [[*row] for row in zip(*(cells for _, cells in columns.values()), strict=True)]

    def test_duplicate_columns(self):
        """Columns of one name cost no column and no warning."""
        frame = self.pd.DataFrame([[1, 2]], columns=["a", "a"])

        assert read(frame)["head"] == [[1, 2]]

    def test_series_with_a_float_index(self):
        """The head is by position, with any index."""
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
            (lambda pd: pd.NA, None),
            (lambda pd: pd.Timedelta("1s"), "0:00:01"),
        ],
    )
    def test_scalars(self, make, expected):
        """Times are written in ISO form, a missing time says so."""
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
        """The payload has the array at the call."""
        array = self.np.zeros(2)
        taken = take_snapshot(array)
        array[:] = 1

        assert to_json(taken) == b"[0.0,0.0]"


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
            (lambda torch: torch.float32, "torch.float32"),
            (lambda torch: torch.zeros(2, dtype=torch.float8_e4m3fn), [0.0, 0.0]),
        ],
    )
    def test_small(self, torch, make, expected):
        """Small tensors and token ids of any dtype are written whole."""
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
        """Tensors that are expensive to read are only described: reading would wait for the accelerator."""
        assert read(make(torch)) == {"type": "torch.Tensor", "dtype": dtype, "shape": shape, "device": device}

    def test_fields_of_a_dataclass(self, torch):
        """A tensor in a dataclass is written like any other."""
        assert read(Frozen(torch.tensor([1.0]))) == {"x": [1.0], "tags": []}


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
            chat([{"role": "user", "content": "Is it?"}] * 100, Frozen(1))
            with suppress(ValueError):
                chat('{"role": "user"}', None)
            annotate(reward=1.0, parts={"format": 0.5}, output={"answer": [1, "x"]}, extra=Frozen(1))
        assert threading.get_ident() not in threads
        assert otel_rollout.flush(60)
        assert threading.get_ident() not in threads
        assert len(exporter.spans) == 3
        assert threads
