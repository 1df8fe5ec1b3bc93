"""Values of the libraries that agents use, where these are installed, with hostile parts and with hidden ones."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any

from tests.fuzz.hostile import Descriptor, Slotted, _method, make_hostile

__all__ = ["HIDDEN", "holders", "library_values"]

HIDDEN = "hidden-7f3a9c"
"""Stands in what a class keeps out of its own repr: it must not leave the process."""

Maker = Callable[[], Any]
Holder = Callable[[Any], Any]


def is_installed(name: str) -> bool:
    """Return whether a library can be imported."""
    return importlib.util.find_spec(name) is not None


@dataclasses.dataclass
class Data:
    """A dataclass."""

    value: Any = None
    secret: str = dataclasses.field(default=HIDDEN, repr=False)


@dataclasses.dataclass
class HostileData:
    """A dataclass with code."""

    value: Any = None
    lazy: Any = dataclasses.field(default=None, init=False)
    secret: str = dataclasses.field(default=HIDDEN, repr=False)
    __repr__ = _method("HostileData", "__repr__", object.__repr__)
    __eq__ = _method("HostileData", "__eq__", object.__eq__)
    __hash__ = _method("HostileData", "__hash__", object.__hash__)
    __getattr__ = _method("HostileData", "__getattr__", lambda self, name: None)


HostileData.lazy = Descriptor()


def holders() -> list[Holder]:
    """Return what puts a value into an object that has it as a field."""
    found: list[Holder] = [Data, HostileData, Slotted]
    if is_installed("attrs"):
        found += _attrs_holders()
    if is_installed("pydantic"):
        found += _pydantic_holders()
    return found


def _attrs_holders() -> list[Holder]:
    import attrs

    @attrs.define
    class Attrs:
        value: Any = None
        secret: str = attrs.field(default=HIDDEN, repr=False)

    @attrs.define(slots=False, repr=False, eq=False)
    class HostileAttrs:
        value: Any = None
        secret: str = attrs.field(default=HIDDEN, repr=False)
        __repr__ = _method("HostileAttrs", "__repr__", object.__repr__)
        __getattribute__ = _method("HostileAttrs", "__getattribute__", object.__getattribute__)

    return [Attrs, HostileAttrs]


def _pydantic_holders() -> list[Holder]:
    import pydantic

    class Model(pydantic.BaseModel):
        value: Any = None
        secret: pydantic.SecretStr = pydantic.SecretStr(HIDDEN)
        unshown: str = pydantic.Field(default=HIDDEN, repr=False)
        excluded: str = pydantic.Field(default=HIDDEN, exclude=True)

    class HostileModel(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow", arbitrary_types_allowed=True)
        value: Any = None
        _private: Any = pydantic.PrivateAttr(default=HIDDEN)

        @pydantic.field_serializer("value")
        def write_value(self, value: Any) -> Any:
            return _method("HostileModel", "field_serializer", lambda self: "written")(self)

        __repr__ = _method("HostileModel", "__repr__", object.__repr__)
        __str__ = _method("HostileModel", "__str__", object.__repr__)
        __iter__ = _method("HostileModel", "__iter__", pydantic.BaseModel.__iter__)
        __eq__ = _method("HostileModel", "__eq__", object.__eq__)
        __hash__ = _method("HostileModel", "__hash__", object.__hash__)
        model_dump = _method("HostileModel", "model_dump", pydantic.BaseModel.model_dump)

    return [
        lambda value: Model.model_construct(value=value),
        lambda value: HostileModel.model_construct(value=value, extra=value),
    ]


def library_values() -> list[Maker]:
    """Return what makes a value of each library that is installed."""
    makers: list[Maker] = []
    for name, make in (
        ("numpy", _numpy),
        ("torch", _torch),
        ("pandas", _pandas),
        ("PIL", _pillow),
        ("omegaconf", _omegaconf),
        ("pydantic", _pydantic),
    ):
        if is_installed(name):
            makers += make()
    return makers


def _numpy() -> list[Maker]:
    import numpy as np

    hostile = make_hostile(object)

    def finalized(array: Any, other: Any) -> None:
        return None

    namespace = {
        "__array_finalize__": _method("HostileArray", "__array_finalize__", finalized),
        "__array_wrap__": _method("HostileArray", "__array_wrap__", lambda array, other, *rest: other),
        "__array_ufunc__": _method("HostileArray", "__array_ufunc__", lambda array, *rest, **named: NotImplemented),
        "__getitem__": _method("HostileArray", "__getitem__", np.ndarray.__getitem__),
        "tolist": _method("HostileArray", "tolist", np.ndarray.tolist),
        "shape": property(_method("HostileArray", "shape", np.ndarray.shape.__get__)),
        "__repr__": _method("HostileArray", "__repr__", lambda array: "array"),
    }
    array_class = type("HostileArray", (np.ndarray,), namespace)

    def objects() -> Any:
        array = np.empty(3, dtype=object)
        array[:] = [hostile(), {"key": hostile()}, [hostile()]]
        return array

    return [
        lambda: np.arange(6).reshape(2, 3),
        lambda: np.arange(5_000),
        lambda: np.zeros((300, 300), dtype=np.float16),
        lambda: np.array([float("nan"), float("inf")]),
        lambda: np.array(7),
        lambda: np.int64(7),
        lambda: np.longdouble(1.5),
        lambda: np.datetime64("2026-01-01T00:00:00", "ns"),
        lambda: np.array(["text", "\ud800"]),
        lambda: np.array([(1, b"x")], dtype=[("a", "i4"), ("b", "S3")]),
        lambda: np.arange(3).view(array_class),
        lambda: np.arange(5_000).view(array_class),
        objects,
    ]


def _torch() -> list[Maker]:
    import torch

    def torch_function(function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super(tensor_class, tensor_class).__torch_function__(function, types, args, kwargs or {})

    call = _method("HostileTensor", "__torch_function__", lambda cls, *rest: torch_function(*rest))
    namespace = {
        "__torch_function__": classmethod(call),
        "__repr__": _method("HostileTensor", "__repr__", lambda tensor: "tensor"),
    }
    tensor_class = type("HostileTensor", (torch.Tensor,), namespace)
    return [
        lambda: torch.arange(6).reshape(2, 3),
        lambda: torch.arange(5_000),
        lambda: torch.zeros(300, 300, requires_grad=True),
        lambda: torch.zeros(3, dtype=torch.bfloat16),
        lambda: torch.tensor(7),
        lambda: torch.arange(3).as_subclass(tensor_class),
    ]


def _pandas() -> list[Maker]:
    import numpy as np
    import pandas as pd

    hostile = make_hostile(object)
    label = make_hostile(str)

    def columns() -> Any:
        array = np.empty(2, dtype=object)
        array[:] = [hostile(), label("two")]
        return array

    return [
        lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
        lambda: pd.Series([1.5, None]),
        lambda: pd.Series(columns(), dtype=object),
        lambda: pd.DataFrame({"a": pd.Series(columns(), dtype=object)}),
        lambda: pd.DataFrame(np.zeros((1, 2)), columns=columns()),
        lambda: pd.Timestamp("2026-01-01"),
        lambda: pd.NaT,
    ]


def _pillow() -> list[Maker]:
    from PIL import Image

    namespace = {name: property(_method("HostileImage", name, lambda image: 1)) for name in ("size", "mode", "width")}
    image_class = type("HostileImage", (Image.Image,), namespace)
    return [lambda: Image.new("RGB", (4, 3)), lambda: image_class.__new__(image_class)]


def _omegaconf() -> list[Maker]:
    from omegaconf import OmegaConf

    return [lambda: OmegaConf.create({"a": {"b": [1, 2]}, "c": "${a.b}", "d": "${nowhere}", "e": "???"})]


def _pydantic() -> list[Maker]:
    import pydantic

    return [lambda: pydantic.SecretStr(HIDDEN), lambda: {"key": [pydantic.SecretBytes(HIDDEN.encode())]}]
