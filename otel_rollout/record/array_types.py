"""Readers of the arrays, tensors and numbers of numpy and torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Final, cast

from otel_rollout.record.object_reading import Reader, Substitute, class_name, is_subclass

MAX_ARRAY_ELEMENTS: Final = 1024
"""Arrays and tensors with more elements are summarized, except for one-dimensional integer ones (token ids)."""
ARRAY_EDGE_ELEMENTS: Final = 8
_modules: Final = sys.modules


def read_numpy(numpy: Any) -> Reader:
    """Return the reader of arrays and numbers of numpy.

    Args:
        numpy: The module.
    """

    def read(value: Any, room: int, deep: bool) -> Any:
        if is_subclass(type(value), numpy.generic):
            return _read_numpy_scalar(numpy, value)
        if type(value) is numpy.ma.MaskedArray:
            return value.tolist() if value.size <= MAX_ARRAY_ELEMENTS else _array_summary(numpy, value)
        return _read_array(numpy, value, room)

    return read


def _read_numpy_scalar(numpy: Any, value: Any) -> Any:
    kind = value.dtype.kind
    if kind in "mM":
        # `item()` of one in nanoseconds would be a bare number.
        return numpy.array(value).astype(str).item()
    item = numpy.generic.item(value)
    if isinstance(item, numpy.generic):
        # `longdouble` and `clongdouble` are wider than Python's numbers.
        return float(item) if kind == "f" else complex.__repr__(complex(item))
    return complex.__repr__(item) if type(item) is complex else Substitute(item)


def _read_array(numpy: Any, value: Any, room: int) -> Any:
    size, kind = numpy.ndarray.size.__get__(value), numpy.ndarray.dtype.__get__(value).kind
    shape = numpy.ndarray.shape.__get__(value)
    is_ids = len(shape) == 1 and kind in "iu" and size <= room
    if size > MAX_ARRAY_ELEMENTS and not is_ids:
        return _array_summary(numpy, value)
    if kind in "iufb" and shape:
        # A private copy, which orjson writes on the delivery thread; it supports neither longdouble nor half.
        copied = numpy.array(value, copy=True, order="C", subok=False)
        if not copied.dtype.isnative:
            copied = copied.astype(copied.dtype.newbyteorder("="))
        if copied.dtype.itemsize in (1, 2, 4, 8):
            return copied
        return copied.astype(numpy.float64)
    return Substitute(read_elements(numpy, value))


def read_elements(numpy: Any, value: Any) -> Any:
    """Return the elements of an array as lists of Python's own objects, times as text."""
    plain = numpy.asarray(value) if type(value) is numpy.ndarray else numpy.array(value, subok=False)
    return (plain.astype(str) if plain.dtype.kind in "mM" else plain).tolist()


def _array_summary(numpy: Any, value: Any) -> dict[str, Any]:
    plain = value if type(value) is numpy.ndarray else numpy.ndarray.view(value, numpy.ndarray)
    flat = plain.ravel(order="K") if plain.flags.forc else plain.flat
    return {
        "type": class_name(type(value)),
        "dtype": str(plain.dtype),
        "shape": list(plain.shape),
        "head": read_elements(numpy, flat[:ARRAY_EDGE_ELEMENTS]),
        "tail": read_elements(numpy, flat[-ARRAY_EDGE_ELEMENTS:]),
    }


def length_of_array(value: Any) -> int | None:
    """Return the length of an array or a tensor of one dimension; None for other values."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and is_subclass(type(value), numpy.ndarray):
        shape = numpy.ndarray.shape.__get__(value)
        return int(shape[0]) if len(shape) == 1 else None
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not getattr(torch, "Tensor", None):
        return None
    with unseen(torch):
        return int(value.shape[0]) if value.dim() == 1 else None


def read_torch(torch: Any) -> Reader:
    """Return the reader of tensors of torch.

    Args:
        torch: The module.
    """

    def read(value: Any, room: int, deep: bool) -> Any:
        try:
            with unseen(torch):
                return _read_tensor(torch, value, room)
        except RuntimeError as error:
            # A function of torch can't read it: it stands for others, in vmap or functionalize.
            if not _is_raised_in(cast("FunctionType", _read_tensor), error):
                raise
            return f"<{class_name(type(value))} without storage>"

    return read


def _is_raised_in(function: FunctionType, error: BaseException) -> bool:
    """Return True if a C function that this function called has raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return type(error) is RuntimeError and trace is not None and trace.tb_frame.f_code is function.__code__


def is_compiling() -> bool:
    """Return True while `torch.compile` traces the caller: it would compile our code, or fail on it."""
    torch = _modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


@contextmanager
def unseen(torch: Any) -> Iterator[None]:
    """Read tensors without modes, subclasses, traces and graphs of the program noticing it.

    Args:
        torch: The module.
    """
    # There is no public way.
    parts = torch._C  # noqa: SLF001
    with parts.DisableTorchFunction(), parts._DisableTorchDispatch(), torch.no_grad():  # noqa: SLF001
        tracing = parts._get_tracing_state()  # noqa: SLF001
        if tracing is not None:
            parts._set_tracing_state(None)  # noqa: SLF001
        try:
            yield
        finally:
            if tracing is not None:
                parts._set_tracing_state(tracing)  # noqa: SLF001


def _read_tensor(torch: Any, value: Any, room: int) -> Any:
    kind = type(value)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        # A subclass may override any function (`__torch_function__`), and may be spread over machines.
        return f"<{class_name(kind)}>"
    dtype = str(value.dtype).removeprefix("torch.")
    if (
        value.device.type != "cpu"
        or value.layout is not torch.strided
        or value.is_quantized
        or value.is_nested
        or value.dtype.is_complex
    ):
        # Reading a tensor on an accelerator would wait for all work queued before it.
        shape = None if value.is_nested else [int(length) for length in value.shape]
        return {"type": class_name(kind), "dtype": dtype, "shape": shape, "device": str(value.device)}
    count = value.numel()
    numpy = sys.modules.get("numpy")
    if value.dim() == 1 and not value.dtype.is_floating_point and count <= room and numpy is not None:
        # Read a copy: a tensor that was given to numpy can't be resized any more.
        return _read_array(numpy, value.clone().numpy(), room)
    if count <= MAX_ARRAY_ELEMENTS:
        return value.tolist()
    if value.is_contiguous():
        first = last = value.reshape(-1)
    else:
        first, last = value[(0,) * (value.dim() - 1)], value[(-1,) * (value.dim() - 1)]
    return {
        "type": "torch.Tensor",
        "dtype": dtype,
        "shape": list(value.shape),
        "head": first[:ARRAY_EDGE_ELEMENTS].tolist(),
        "tail": last[-ARRAY_EDGE_ELEMENTS:].tolist(),
    }
