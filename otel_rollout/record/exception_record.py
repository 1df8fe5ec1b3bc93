"""An exception as data: its type, message and frames, without the locals that its traceback keeps alive."""

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
from typing import Any, Final, TypeAlias

from otel_rollout import semconv
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record.fields import class_name, module_of
from otel_rollout.text.sanitize import integer_text, replace_surrogates

MAX_FRAMES: Final = 64
"""The innermost frames that are kept, of the first 512 of a traceback."""
MAX_CHAIN: Final = 8
"""The exceptions that are kept of a chain of causes."""
MAX_PARTS: Final = 16
"""The arguments, notes and exceptions of a group that are shown, of 64 lines in all."""

_PACKAGE: Final = Path(__file__).parent.parent
_WRAPPERS: Final = tuple(f"{_PACKAGE / folder}{os.sep}" for folder in ("record", "hooks"))
"""The folders of the wrappers around traced functions."""
_GROUP: Final[Any] = getattr(builtins, "BaseExceptionGroup", ())
"""Python 3.10 has no groups."""
_SCALARS: Final = frozenset((str, int, float, bool, type(None)))
_Frame: TypeAlias = tuple[CodeType, int, int]
"""The code, line and instruction of a frame."""
_SHOWS_ARGUMENTS: Final = (BaseException.__str__, KeyError.__str__)
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"
"""The lines of Python's own tracebacks."""


class ExceptionRecord:
    """An exception as it was when it was recorded."""

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
    """Return the `str` of an exception; arguments that aren't scalars are shown by their class."""
    try:
        if module_of(type(error)) == "pydantic_core" and type(error).__name__ == "ValidationError":
            text = _validation_message(error)
        elif type(error).__str__ in _SHOWS_ARGUMENTS and not {*map(type, error.args)} <= _SCALARS:
            # The `repr` of a tensor may wait for its device.
            text = _arguments(error)
        else:
            text = str(error)
    except Exception as raised:
        if is_programs(raised):
            raise
        text = _arguments(error)
    return replace_surrogates(text[: 64 * 1024])


def _validation_message(error: Any) -> str:
    count = error.error_count()
    given = {"include_url": False, "include_context": False, "include_input": False}
    # Many problems are only counted.
    problems = error.errors(**given) if count <= 256 else []
    lines = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems[:MAX_PARTS]]
    return f"{count} validation errors for {error.title}\n" + "\n".join(lines)


def _arguments(error: BaseException) -> str:
    return ", ".join(
        integer_text(value)
        if type(value) is int
        else (repr(value) if type(value) in _SCALARS else f"<{class_name(type(value))}>")
        for value in error.args[:MAX_PARTS]
    )


def _chain(error: BaseException) -> Iterator[tuple[str, str, list[_Frame]]]:
    """Yield, for each exception of a chain, the line between it and its consequence, its text and its frames."""
    current: BaseException | None = error
    joint = ""
    seen: set[int] = set()
    while current is not None and id(current) not in seen and len(seen) < MAX_CHAIN:
        seen.add(id(current))
        yield joint, "\n".join(islice(_last_lines(current), 64)), _frames(current.__traceback__)
        if current.__cause__ is not None:
            joint, current = _CAUSE, current.__cause__
        else:
            joint, current = _CONTEXT, None if current.__suppress_context__ else current.__context__


def _last_lines(error: BaseException, depth: int = 1) -> Iterator[str]:
    """Yield the text of an exception, its notes, and a line for each exception of a group."""
    yield exception_text(error)
    notes = getattr(error, "__notes__", None)
    yield from [note for note in notes[:MAX_PARTS] if type(note) is str] if type(notes) is list else []
    if isinstance(error, _GROUP) and depth <= MAX_CHAIN:
        for inner in error.exceptions[:MAX_PARTS]:
            for line in _last_lines(inner, depth + 1):
                yield f"  | {line}"


def _frames(trace: TracebackType | None) -> list[_Frame]:
    """Return the innermost frames, without our wrappers around the traced functions."""
    kept: deque[TracebackType] = deque(maxlen=2 * MAX_FRAMES)
    for _ in range(512):
        if trace is None:
            break
        kept.append(trace)
        trace = trace.tb_next
    frames = [(each.tb_frame.f_code, each.tb_lineno, each.tb_lasti) for each in kept]
    return [frame for frame in frames if not frame[0].co_filename.startswith(_WRAPPERS)][-MAX_FRAMES:]


def _summary(frame: _Frame) -> FrameSummary:
    code, line, instruction = frame
    columns: dict[str, Any] = {}
    if sys.version_info >= (3, 11) and instruction >= 0:
        position = next(islice(code.co_positions(), instruction // 2, None), (line, None, None, None))
        columns = dict(zip(("end_lineno", "colno", "end_colno"), position[1:], strict=True))
    return FrameSummary(code.co_filename, line, code.co_name, lookup_line=False, **columns)
