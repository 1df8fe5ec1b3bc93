"""One trajectory of a trace folder: what its index says at once, its spans on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout.errors import RolloutTraceError, UnreadableTraceError
from otel_rollout.trace_folder.index_entry import IndexEntry, Row, attributes_of, place_of
from otel_rollout.trace_folder.otlp_json import encode_line
from otel_rollout.trace_folder.stored_file import MovedError, Part

__all__ = ["RecordedTrajectory", "main_row"]

_HAS_ROOT: Final = place_of("has_root")
_STEP: Final = place_of("step")
_START_TIME: Final = place_of("start_time")
_NAME: Final = place_of("name")


class RecordedTrajectory:
    """A trajectory as it was recorded; `read` makes them.

    Args:
        row: What the index says of it: the `main_row` of its parts.
        parts: The stored lines that hold its spans, at least one.
        find: Finds its lines anew, where they have moved since.
    """

    __slots__ = (
        "_find",
        "_parts",
        "_row",
        "_spans",
        "end_time",
        "experiment_name",
        "has_root",
        "name",
        "project_name",
        "reward",
        "rollout_n",
        "run_id",
        "sample_index",
        "start_time",
        "status",
        "step",
        "trace_id",
        "validate",
    )

    # Plain values: thousands are asked for them, and a property takes ten times as long.
    trace_id: str
    """The trace id, 32 hexadecimal digits."""
    step: int | None
    """The training step, where it is a whole number."""
    sample_index: int | str | None
    """Which prompt of the dataset."""
    rollout_n: int | str | None
    """Which rollout of the prompt."""
    validate: bool
    """Whether it is part of a validation pass."""
    experiment_name: str | None
    """The experiment given to `init`."""
    status: str | None
    """`completed`, `error`, `cancelled` or `truncated`; None without a root."""
    reward: float | None
    """The reward given to `annotate`."""
    start_time: int
    """When its first span started, in nanoseconds since 1970."""
    end_time: int
    """When its last span ended, in nanoseconds since 1970."""
    has_root: bool
    """Whether its root has come: not while it is running, nor if its process ended before it did."""
    name: str
    """The root's name; without a root, that of one of its spans."""
    project_name: str | None
    """The project given to `init`."""
    run_id: str | None
    """The run that it was recorded in."""

    def __init__(self, row: Row, parts: Sequence[Part], find: Callable[[str], Sequence[Part]]) -> None:
        self._row = row
        self._parts = parts
        self._find = find
        self._spans: list[ReadableSpan] | None = None
        (
            self.trace_id,
            self.start_time,
            self.end_time,
            self.has_root,
            self.step,
            self.sample_index,
            self.rollout_n,
            validate,
            self.experiment_name,
            self.status,
            self.reward,
            _,  # One by one: a star makes a list, which takes half as long again.
            _,
            _,
            _,
            _,
            _,
            self.name,
            self.project_name,
            self.run_id,
            _,
        ) = row
        self.validate = validate is True
        if len(parts) > 1:
            self.start_time = min(entry.start_time for entry in self._entries())
            self.end_time = max(entry.end_time for entry in self._entries())

    def __repr__(self) -> str:
        tags = f"step={self.step!r} sample_index={self.sample_index!r} rollout_n={self.rollout_n!r}"
        return f"<RecordedTrajectory {self.trace_id} {tags} status={self.status!r} reward={self.reward!r}>"

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The root's scalar attributes without payload; without a root, the tags."""
        return attributes_of(self._row)

    @property
    def failed(self) -> bool:
        """Whether it ended in an error; one that was cancelled did not."""
        if self.status is not None:
            return self.status == "error"
        return self.has_root and IndexEntry._make(self._row).status_code == StatusCode.ERROR.value

    @property
    def duration(self) -> float:
        """The seconds from its start to its end."""
        return (self.end_time - self.start_time) / 1e9

    @property
    def span_count(self) -> int:
        """How many spans it has."""
        if len(self._parts) > 1 and any(file.is_journal for file, _ in self._parts):
            # After a crash, a journal still has spans that are in a frame already.
            with suppress(UnreadableTraceError):
                return len(self.spans)
        return sum(entry.spans for entry in self._entries())

    @property
    def size_bytes(self) -> int:
        """How many bytes of OTLP JSON it is."""
        return sum(entry.bytes for entry in self._entries())

    @property
    def stored_bytes(self) -> int:
        """How many bytes it takes on disk, without the index."""
        return sum(entry.length for entry in self._entries())

    @property
    def spans(self) -> list[ReadableSpan]:
        """All of its spans, the root last; read on first use, and each parsed when something of it is asked for.

        Raises:
            UnreadableTraceError: The file is damaged or gone; of a span, where it is asked for something.
        """
        if self._spans is None:
            try:
                self._spans = self._find_and_read()
            except RolloutTraceError:
                raise
            except (OSError, ValueError) as error:
                raise UnreadableTraceError(f"the trajectory {self.trace_id} can't be read: {error}") from error
        return self._spans

    def otlp_json(self) -> bytes:
        """Return it as one line of OTLP JSON, as the `file` exporter writes it and any OTLP receiver takes it.

        Raises:
            UnreadableTraceError: The file is damaged or gone, or has what OTLP has no room for.
        """
        spans = self.spans
        try:
            return encode_line(spans)
        except (ArithmeticError, RecursionError, TypeError) as error:
            raise UnreadableTraceError(f"the trajectory {self.trace_id} can't be said in OTLP: {error}") from error

    def _find_and_read(self) -> list[ReadableSpan]:
        try:
            return self._read()
        except MovedError:
            # It was running when it was listed: its spans have gone from the journal to their final place.
            self._parts = self._find(self.trace_id) or self._parts
            return self._read()

    def _entries(self) -> Iterator[IndexEntry]:
        return (IndexEntry._make(row) for _, row in self._parts)

    def _read(self) -> list[ReadableSpan]:
        lines = [file.read_spans(row) for file, row in self._parts]
        if len(lines) == 1:
            return lines[0]
        spans = {span.context.span_id: span for line in lines for span in line if span.context}
        return sorted(spans.values(), key=lambda span: span.parent is None)


def main_row(parts: Sequence[Part]) -> Row:
    """Return what the index says of the part that speaks for the trajectory, in whatever order they stand.

    Args:
        parts: The parts: the one with the root, else of those that know their step the one that started first.
    """
    if len(parts) == 1:
        return parts[0][1]
    return min(
        (row for _, row in parts),
        key=lambda row: (not row[_HAS_ROOT], row[_STEP] is None, row[_START_TIME], row[_NAME]),
    )
