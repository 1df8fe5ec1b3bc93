"""An exception as data: its type, message and frames, read without running code of its class."""

from __future__ import annotations

import builtins
import os
import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from traceback import FrameSummary, StackSummary
from types import CodeType, TracebackType
from typing import Any, Final, NamedTuple

from otel_rollout import semconv
from otel_rollout.record.object_reading import class_name, fields_of, is_one_of, is_subclass, module_of
from otel_rollout.text.sanitize import integer_text, replace_surrogates

MAX_FRAMES: Final = 64
"""At most this many frames of a traceback are kept, the innermost."""
MAX_HOPS: Final = 10_000
"""At most this many frames of a traceback are read."""
MAX_CHAIN: Final = 8
"""At most this many exceptions of a chain of causes are kept."""
MAX_MESSAGE_CHARACTERS: Final = 64 * 1024
MAX_ARGUMENTS: Final = 16

_PACKAGE: Final = Path(__file__).parent.parent
_WRAPPERS: Final = tuple(f"{_PACKAGE / folder}{os.sep}" for folder in ("record", "hooks"))
"""The folders of the wrappers around traced functions."""

_args = BaseException.__dict__["args"].__get__
_cause = BaseException.__dict__["__cause__"].__get__
_context = BaseException.__dict__["__context__"].__get__
_suppresses_context = BaseException.__dict__["__suppress_context__"].__get__
_traceback = BaseException.__dict__["__traceback__"].__get__
_GROUP: Final[Any] = getattr(builtins, "BaseExceptionGroup", None)
"""Python 3.10 has no groups."""
_SCALARS: Final = (int, float, bool, type(None))
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"
"""The lines of Python's own tracebacks."""


class _Frame(NamedTuple):
    """One frame of a traceback."""

    code: CodeType
    line: int
    instruction: int


class ExceptionRecord:
    """An exception as it was when it was recorded; locals of the traceback's frames are not kept.

    Args:
        error: The exception.
    """

    __slots__ = ("chain", "message", "type_name")

    def __init__(self, error: BaseException) -> None:
        self.type_name = exception_type_name(error)
        self.message = exception_message(error)
        self.chain = list(_chain(error))

    @property
    def size(self) -> int:
        """The estimated bytes of the record in memory."""
        return sum(2000 + 4 * len(text) + 200 * len(frames) for _, text, frames in self.chain)

    def format(self) -> str:
        """Return the traceback as Python prints it, causes first; reads source files."""
        parts: list[str] = []
        for joint, text, frames in reversed(self.chain):
            lines = StackSummary.from_list([_summary(frame) for frame in frames]).format()
            parts += (*(["Traceback (most recent call last):\n"] if lines else []), *lines, text, "\n", joint)
        return "".join(parts)

    def attributes(self) -> dict[str, str]:
        """Return the attributes of an exception's event, without limits; reads source files."""
        return {
            semconv.EXCEPTION_TYPE: self.type_name,
            semconv.EXCEPTION_MESSAGE: self.message,
            semconv.EXCEPTION_STACKTRACE: self.format(),
            semconv.EXCEPTION_ESCAPED: "False",
        }


def exception_type_name(error: BaseException) -> str:
    """Return the name of an exception's class, with its module unless that is `builtins`."""
    return class_name(type(error)).removeprefix("builtins.")


def exception_text(error: BaseException) -> str:
    """Return the class and message of an exception, as in the last line of a traceback."""
    name = exception_type_name(error)
    message = exception_message(error)
    return f"{name}: {message}" if message else name


def exception_message(error: BaseException) -> str:
    """Return the message of an exception as Python's own classes build it from the arguments.

    A user's `__str__` is not called.
    """
    kind = type(error)
    arguments = _args(error)
    arguments = arguments if type(arguments) is tuple else ()
    if module_of(kind) == "pydantic_core" and kind.__name__ == "ValidationError":
        text = _validation_message(error)
    elif len(arguments) == 1 and is_one_of(type(arguments[0]), (str,)) and not is_subclass(kind, KeyError):
        text = arguments[0]
    elif _GROUP is not None and is_subclass(kind, _GROUP):
        text = f"{_GROUP.message.__get__(error)} ({len(_GROUP.exceptions.__get__(error))} sub-exceptions)"
    elif is_subclass(kind, OSError) and len(arguments) == 2:
        text = _os_message(error, arguments)
    elif not arguments:
        text = _fields_text(error)
    else:
        text = ", ".join(_shown(argument) for argument in arguments[:MAX_ARGUMENTS])
    return replace_surrogates(text[:MAX_MESSAGE_CHARACTERS])


def _os_message(error: Any, arguments: tuple[Any, ...]) -> str:
    number, reason = arguments
    filename = OSError.filename.__get__(error)
    text = f"[Errno {_shown(number)}] {reason if type(reason) is str else _shown(reason)}"
    return f"{text}: {_shown(filename)}" if filename is not None else text


def _validation_message(error: Any) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in islice(problems, MAX_ARGUMENTS)]
    return f"{len(problems)} validation errors for {error.title}\n" + "\n".join(lines)


def _fields_text(error: BaseException) -> str:
    first = [*islice(fields_of(error).items(), MAX_ARGUMENTS)]
    return ", ".join(f"{key}={_shown(item)}" for key, item in first if type(key) is str and key[:1] != "_")


def _shown(value: Any) -> str:
    """Return the repr of a scalar, the class of any other value."""
    kind = type(value)
    if kind is str or kind is bytes:
        return repr(value[:MAX_MESSAGE_CHARACTERS])
    if kind is int:
        return integer_text(value)
    return repr(value) if is_one_of(kind, _SCALARS) else f"<{class_name(kind)}>"


def _chain(error: BaseException) -> Iterator[tuple[str, str, list[_Frame]]]:
    """Yield, for each exception of a chain, the line between it and its consequence, its text and its frames."""
    current: BaseException | None = error
    joint = ""
    seen: set[int] = set()
    while current is not None and id(current) not in seen and len(seen) < MAX_CHAIN:
        seen.add(id(current))
        yield joint, _last_lines(current), _frames(_traceback(current))
        cause = _cause(current)
        if cause is not None:
            joint, current = _CAUSE, cause
        else:
            joint, current = _CONTEXT, None if _suppresses_context(current) else _context(current)


def _last_lines(error: BaseException) -> str:
    notes = fields_of(error).get("__notes__")
    texts = [note for note in islice(notes, MAX_ARGUMENTS) if type(note) is str] if type(notes) is list else []
    return "\n".join([exception_text(error), *texts, *_group_lines(error, 1)])


def _group_lines(error: BaseException, depth: int) -> list[str]:
    """Return a line for each exception of a group."""
    if _GROUP is None or not is_subclass(type(error), _GROUP) or depth > MAX_CHAIN:
        return []
    lines = []
    for inner in islice(_GROUP.exceptions.__get__(error), MAX_ARGUMENTS):
        lines += [f"{'  ' * depth}| {exception_text(inner)}", *_group_lines(inner, depth + 1)]
    return lines


def _frames(trace: TracebackType | None) -> list[_Frame]:
    """Return the innermost frames, without our wrappers around the traced functions."""
    kept: deque[_Frame] = deque(maxlen=MAX_FRAMES)
    hops = 0
    while trace is not None and hops < MAX_HOPS:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_WRAPPERS):
            kept.append(_Frame(code, trace.tb_lineno, trace.tb_lasti))
        trace = trace.tb_next
        hops += 1
    return list(kept)


def _summary(frame: _Frame) -> FrameSummary:
    code, line, instruction = frame
    columns: dict[str, Any] = {}
    if sys.version_info >= (3, 11) and instruction >= 0:
        position = next(islice(code.co_positions(), instruction // 2, None), (line, None, None, None))
        columns = dict(zip(("end_lineno", "colno", "end_colno"), position[1:], strict=True))
    return FrameSummary(code.co_filename, line, code.co_name, lookup_line=False, **columns)
